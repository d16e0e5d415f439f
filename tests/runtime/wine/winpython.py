"""A Python for Windows under Wine, made of wheels: as a package there is none.

The wheel of Panda3D has CPython's own libraries, for games that are frozen; that of freeze-core has
a program that loads them. What is written in Python is that of the Python that runs the tests. The
files, 6 MB of the wheels' 70, are kept under .tools.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.wine.wheels import Unobtainable, open_wheel

import transom
from transom.runtime.wine import installation, template
from transom.runtime.wine.helpers import BUILT, Helpers
from transom.runtime.wine.installation import WineInstallation
from transom.windows import builds

_TAG = f"{sys.version_info.major}{sys.version_info.minor}"
STREAMS = ("stdin", "stdout", "stderr")
_SECONDS = 60
_MODULES = ("_asyncio", "_overlapped", "_socket", "_ssl", "select", "unicodedata")
# Of each package its version, and the files wanted of its wheel; the group is where they go.
_WHEELS = {
    "panda3d": (
        "1.10.16",
        rf"deploy_libs/((python{_TAG}|VCRUNTIME140|libcrypto-3|libssl-3)\.dll|({'|'.join(_MODULES)})\.pyd)",
    ),
    "freeze-core": ("0.8.1", rf"freeze_core/bases/(console-cpython-{_TAG}-win_amd64\.exe)"),
    "orjson": (version("orjson"), r"(orjson/.*\.pyd?)"),
    "httptools": (version("httptools"), r"(httptools/.*\.pyd?)"),
    "pyyaml": (version("pyyaml"), r"(yaml/.*\.pyd?)"),
}
_KEPT = (
    Path(__file__).parents[3]
    / ".tools"
    / f"python{_TAG}-windows-{zlib.crc32(repr(_WHEELS).encode()):08x}"
)
# What the program of freeze-core runs first.
_START = """
import sys

def run(name):
    sys.dont_write_bytecode = True
    sys.path += {paths!r}
    import runpy
    sys.argv.pop(0)
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


class WindowsPython:
    """In a Windows of its own. Drive Z: is this machine."""

    def __init__(self, wine: WineInstallation, folder: Path, before: Sequence[str]) -> None:
        self._before = before
        self.wine = wine
        self.prefix = folder / "prefix"
        self.program = folder / "python" / "python.exe"
        self._environment = wine.environment(str(self.prefix))

    def start(self, *command: str | Path, **how: Any) -> subprocess.Popen[bytes]:
        """A Windows program by its path on this machine."""
        words = [*self._before, str(self.wine.loader), *map(str, command)]
        return subprocess.Popen(words, env=self._environment, cwd="/", **how)

    def start_script(self, script: Path, *words: str, **how: Any) -> subprocess.Popen[bytes]:
        return self.start(self.program, path_of(script), *words, **how)

    def end(self) -> None:
        """And everything that runs in it."""
        for option in ("--kill", "--wait"):
            subprocess.run(
                [self.wine.server, option], env=self._environment, timeout=_SECONDS, check=False
            )


def path_of(path: Path) -> str:
    """A path of this machine, as Windows has it."""
    return "Z:" + str(path).replace("/", "\\")


@contextmanager
def running(cache: Path, before: Sequence[str] = ()) -> Iterator[WindowsPython]:
    """For a test, which is skipped where there can be none. `cache` has Wine's template, or gets
    it; `before` is what all programs are started with.
    """
    wine = installation.find_wine()
    if wine is None:
        pytest.skip("Wine is not installed")
    if sysconfig.get_platform() != "linux-x86_64":
        pytest.skip("a Python for Windows needs x86_64")
    try:
        if not _KEPT.exists():
            _fetch()
    except (Unobtainable, OSError) as problem:
        pytest.skip(f"a Python for Windows cannot be had: {problem}")
    windows = template.prepare_template(cache, wine, Helpers(cache))
    folder = Path(tempfile.mkdtemp(prefix="winpython-"))
    made = WindowsPython(wine, folder, before)
    try:
        made.prefix.mkdir()
        windows.write_registry(made.prefix, builds.DEFAULT)
        shutil.copytree(windows.drive, made.prefix / "drive_c", symlinks=True)
        (made.prefix / "dosdevices/z:").symlink_to("/")
        shutil.copytree(_KEPT, made.program.parent)
        paths = (
            Path(transom.__file__).parents[1],
            *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")),
        )
        (made.program.parent / "lib/__init__python.py").write_text(
            _START.format(paths=[path_of(each) for each in paths])
        )
        _boot(made)
        yield made
    finally:
        made.end()
        shutil.rmtree(folder, ignore_errors=True)


def _boot(made: WindowsPython) -> None:
    """The first program has Wine's own for children. They keep open what it writes to, and stay
    while any program does.
    """
    keeper = made.start(
        BUILT / "pipeserve.exe", r"\\.\pipe\keeper", **dict.fromkeys(STREAMS, subprocess.PIPE)
    )
    assert keeper.stderr is not None
    assert keeper.stderr.read(1) == b".", "Windows does not start"


def _fetch() -> None:
    _KEPT.parent.mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=_KEPT.parent))
    try:
        for package, (number, wanted) in _WHEELS.items():
            _extract(package, number, wanted, work / "lib")
        for pattern, name in (
            ("console-*.exe", "python.exe"),
            ("python*.dll", ""),
            ("VCRUNTIME140.dll", ""),
        ):
            for file in work.glob(f"lib/{pattern}"):
                file.rename(work / (name or file.name))
        (work / "lib/BUILD_CONSTANTS.py").write_text('__EXECUTABLES__ = "python.exe"\n')
        try:
            work.rename(_KEPT)
        except OSError:
            if not _KEPT.exists():  # by another worker
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _extract(package: str, number: str, wanted: str, folder: Path) -> None:
    with open_wheel(package, number, _TAG, "win_amd64") as wheel:
        found = [match for name in wheel.namelist() if (match := re.fullmatch(wanted, name))]
        if not found:
            raise Unobtainable(f"the wheel of {package} {number} has no Python for Windows")
        for match in found:
            target = folder / match[1]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(wheel.read(match[0]))
