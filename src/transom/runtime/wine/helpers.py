"""The native helpers: small C programs for Wine containers, shipped as binaries with their sources.

MinGW builds the Windows programs without a C library, the C compiler builds the Linux ones;
`SOURCES` defines how. Builds are reproducible with the same compiler (`native/built/SUMS` lists the
compilers, and the hashes of sources and binaries). A missing helper can be built into a directory
of the caller; without it containers still run, with fewer features.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from subprocess import SubprocessError
from typing import Final

from transom.kit.lazy_dataclass import dataclass
from transom.kit.programs import run_program
from transom.kit.trust import find_program

FOLDER: Final = Path(__file__).parent / "native"
BUILT: Final = FOLDER / "built"

_WINDOWS: Final = "x86_64-w64-mingw32-gcc"
_LINUX: Final = "gcc"
_COMMON: Final = (
    "-Os",
    "-s",
    "-std=c11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fno-asynchronous-unwind-tables",
)
_WINDOWS_FLAGS: Final = (
    *_COMMON,
    "-ffreestanding",
    "-nostdlib",
    "-Wl,--no-insert-timestamp",
    "-Wl,-e,start",
)
_LINUX_FLAGS: Final = (*_COMMON, "-Wl,--build-id=none")
_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Helper:
    name: str
    sources: tuple[str, ...]
    compiler: str
    flags: tuple[str, ...]
    libraries: tuple[str, ...]
    without: str  # what does not work without it


HELPERS: Final[Mapping[str, Helper]] = {
    helper.name: helper
    for helper in (
        Helper(
            "winrun.exe",
            ("winrun.c", "services.c", "services.h"),
            _WINDOWS,
            _WINDOWS_FLAGS,
            ("-lkernel32", "-ladvapi32", "-lntdll"),
            "exit codes are known modulo 256 only, programs have Unix pipes as standard "
            "handles (Node.js needs Win32 ones), "
            "arguments are quoted by Wine, and only the variables that the container itself "
            "sets are as on Windows",
        ),
        Helper(
            "winctrl.exe",
            ("winctrl.c", "services.c", "services.h"),
            _WINDOWS,
            _WINDOWS_FLAGS,
            ("-lkernel32", "-ladvapi32", "-lntdll"),
            "containers are ended at once instead of receiving CTRL_SHUTDOWN_EVENT",
        ),
        Helper(
            "hidevars.dll",
            ("hidevars.c",),
            _WINDOWS,
            (*_WINDOWS_FLAGS, "-shared"),
            (),
            "programs that list their environment see variables of Wine",
        ),
        Helper(
            "pipeserve.exe",
            ("pipeserve.c",),
            _WINDOWS,
            _WINDOWS_FLAGS,
            ("-lkernel32", "-lntdll"),
            "named pipes of the node cannot be mounted",
        ),
        Helper(
            "bcryptprimitives.dll",
            ("bcryptprimitives.c",),
            _WINDOWS,
            (*_WINDOWS_FLAGS, "-shared"),
            ("-ladvapi32", "-lkernel32"),
            "programs made by Go 1.20 or later do not start",
        ),
        Helper(
            "tar.exe",
            ("tar.c",),
            _WINDOWS,
            _WINDOWS_FLAGS,
            ("-lkernel32", "-lmsvcrt"),
            "files cannot be copied by kubectl cp",
        ),
        Helper(
            "curl.exe",
            ("curl.c",),
            _WINDOWS,
            _WINDOWS_FLAGS,
            ("-lkernel32", "-lmsvcrt", "-lws2_32"),
            "there is no curl.exe",
        ),
        Helper(
            "ipconfig.exe",
            ("ipconfig.c",),
            _WINDOWS,
            _WINDOWS_FLAGS,
            ("-lkernel32", "-lmsvcrt", "-lws2_32", "-liphlpapi"),
            "ipconfig does not show the name servers",
        ),
        Helper(
            "nslookup.exe",
            ("nslookup.c",),
            _WINDOWS,
            _WINDOWS_FLAGS,
            ("-lkernel32", "-lmsvcrt", "-lws2_32", "-liphlpapi"),
            "there is no nslookup.exe",
        ),
        Helper(
            "ping.exe",
            ("ping.c",),
            _WINDOWS,
            _WINDOWS_FLAGS,
            ("-lkernel32", "-lmsvcrt", "-lws2_32", "-liphlpapi"),
            "ping does not know -t",
        ),
        Helper(
            "standin.exe",
            ("standin.c",),
            _WINDOWS,
            _WINDOWS_FLAGS,
            ("-lkernel32", "-ladvapi32", "-lws2_32"),
            (
                "PowerShell, tasklist, systeminfo and findstr are stubs of Wine's that do "
                "nothing, timeout and sort are missing"
            ),
        ),
        Helper(
            "init",
            ("init.c", "pipes.c", "pipes.h"),
            _LINUX,
            _LINUX_FLAGS,
            (),
            (
                "containers are ended at once instead of receiving CTRL_SHUTDOWN_EVENT, and "
                "their registry is not saved"
            ),
        ),
        Helper(
            "wdns.so",
            ("wdns.c",),
            _LINUX,
            (*_LINUX_FLAGS, "-fPIC", "-shared"),
            (),
            "names with a dot in them are also tried with the pod's suffix, as Linux does it",
        ),
    )
}


# Programs to run in containers, built and shipped in the same way.
PROGRAMS: Final[Mapping[str, Helper]] = {
    "winweb.exe": Helper(
        "winweb.exe",
        ("winweb.c",),
        _WINDOWS,
        _WINDOWS_FLAGS,
        ("-lkernel32", "-lntdll", "-lmsvcrt", "-lws2_32"),
        "the demo needs the network to fetch its web server for Windows",
    ),
}


def source_hash(helper: Helper, folder: Path = FOLDER) -> str:
    """A hash of everything that determines the build, except the compiler's version."""
    digest = hashlib.sha256(" ".join((helper.compiler, *helper.flags, *helper.libraries)).encode())
    for source in helper.sources:
        digest.update((folder / source).read_bytes())
    return digest.hexdigest()


def build_helper(helper: Helper, target: Path, folder: Path = FOLDER) -> None:
    """Raises OSError or SubprocessError."""
    files = [str(folder / source) for source in helper.sources if source.endswith(".c")]
    command = [helper.compiler, *helper.flags, "-o", target.name, *files, *helper.libraries]
    # The target has its final name, which is embedded in libraries, without a directory.
    run_program(command, cwd=str(target.parent), check=True, timeout=_SECONDS)


def compiler_version(helper: Helper) -> str:
    """Empty when it does not exist."""
    if find_program(helper.compiler) is None:
        return ""
    answer = run_program([helper.compiler, "--version"], timeout=_SECONDS)
    return answer.stdout.decode(errors="replace").partition("\n")[0].strip()


class Helpers:
    """The available helpers by name: shipped ones, otherwise built ones in `cache`."""

    def __init__(self, cache: Path, shipped: Path = BUILT) -> None:
        self._found: dict[str, Path] = {}
        for helper in HELPERS.values():
            path = _shipped(helper, shipped) or _built(helper, cache)
            if path is not None:
                self._found[helper.name] = path

    def get(self, name: str) -> Path | None:
        return self._found.get(name)

    def missing(self) -> list[str]:
        return [
            f"without {name}, {helper.without}"
            for name, helper in HELPERS.items()
            if name not in self._found
        ]

    def hash(self, names: Iterable[str]) -> str:
        """Changes with any of these."""
        digest = hashlib.sha256()
        for name in sorted(set(names) & set(self._found)):
            digest.update(name.encode() + b"\0" + self._found[name].read_bytes())
        return digest.hexdigest()[:12]


def helper_program(name: str, cache: Path) -> Path | None:
    return _shipped(PROGRAMS[name], BUILT) or _built(PROGRAMS[name], cache)


def _shipped(helper: Helper, folder: Path) -> Path | None:
    path = folder / helper.name
    return path if path.is_file() else None


def _built(helper: Helper, cache: Path) -> Path | None:
    folder = cache / "helpers" / source_hash(helper)[:16]
    path = folder / helper.name
    if path.is_file():
        return path
    if find_program(helper.compiler) is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    try:
        build_helper(helper, path)
    except (OSError, SubprocessError):
        path.unlink(missing_ok=True)
        return None
    return path


def helper_checksums(folder: Path = BUILT) -> dict[str, tuple[str, str, str]]:
    """By helper: the hash of its sources, of the result, and the compiler's version."""
    found = {}
    for line in (folder / "SUMS").read_text().splitlines():
        name, source, made, version = line.split(maxsplit=3)
        found[name] = (source, made, version)
    return found


def rebuild_helpers(target: Path, helpers: Iterable[Helper], folder: Path) -> None:
    target.mkdir(exist_ok=True)
    lines = []
    for helper in helpers:
        path = target / helper.name
        build_helper(helper, path, folder)
        made = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(
            f"{helper.name} {source_hash(helper, folder)} {made} {compiler_version(helper)}\n"
        )
    (target / "SUMS").write_text("".join(lines))


if __name__ == "__main__":  # after a change of a source
    rebuild_helpers(BUILT, (*HELPERS.values(), *PROGRAMS.values()), FOLDER)
