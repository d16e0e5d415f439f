"""Single files of wheels, without downloading the rest: a wheel is a zip archive, whose list of
contents is at its end.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Sequence
from typing import Any

_SECONDS = 60
_AT_ONCE = 1 << 16  # bytes


class Unobtainable(Exception):
    """The text says what cannot be had."""


def open_wheel(package: str, number: str, tag: str, platform: str) -> zipfile.ZipFile:
    """`tag` is a Python's, as 311. Raises Unobtainable, and OSError while it is read."""
    wheel = f"{package.replace('-', '_')}-{number}-cp{tag}-cp{tag}-{platform}.whl"
    links = [link for link in _links(package, tag, platform) if link.endswith(f"/{wheel}")]
    if not links:
        raise Unobtainable(f"pip finds no {wheel}")
    return zipfile.ZipFile(io.BufferedReader(_Remote(links[0]), _AT_ONCE))


def _links(package: str, tag: str, platform: str) -> Sequence[str]:
    """Where pip would get a package from; it says so when it is asked for the versions."""
    options = (
        "--only-binary=:all:",
        f"--platform={platform}",
        f"--python-version={tag}",
        "--retries=1",
        "--timeout=15",
    )
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "index",
        "versions",
        package,
        "-vvv",
        *options,
    ]
    try:
        recorded = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as problem:
        raise Unobtainable(f"no answer from where pip looks for {package}") from problem
    return re.findall(r"Found link ([^\s#]+)", recorded.stdout)


class _Remote(io.RawIOBase):
    """A file that is fetched where it is read."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._at = 0
        with urllib.request.urlopen(
            urllib.request.Request(url, method="HEAD"), timeout=_SECONDS
        ) as answer:
            self._size = int(answer.headers["Content-Length"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        end = min(self._at + len(view), self._size)
        if end <= self._at:
            return 0
        request = urllib.request.Request(
            self._url, headers={"Range": f"bytes={self._at}-{end - 1}"}
        )
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            if answer.status != 206:
                raise OSError("the server has only whole files")
            data: bytes = answer.read()
        view[: len(data)] = data
        self._at += len(data)
        return len(data)
