"""Command lines of Go programs: `--name=value`, `-name value`, `--name`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

PUBLISH: Final = 2  # the controller capability PUBLISH_UNPUBLISH_VOLUME


def parse_csi_flags(argv: Sequence[str]) -> Mapping[str, str]:
    """Flags by name. A flag without a value is "true"; a word after a flag is its value."""
    out: dict[str, str] = {}
    last = ""
    for word in argv[1:]:
        if word.startswith("-"):
            last, _, value = word.lstrip("-").partition("=")
            out[last] = value if "=" in word else "true"
        elif last and out[last] == "true":
            out[last] = word
    return out


def socket_path(text: str, windows: bool) -> str:
    r"""The path in `unix:///csi/csi.sock` or `unix://C:\csi\csi.sock`; also accepts a plain path."""
    path = text.removeprefix("unix:")
    if windows:
        path = path.lstrip("/\\") if text.startswith("unix:") else path
        return path.replace("/", "\\")
    return "/" + path.lstrip("/") if text.startswith("unix:") else path
