"""The machine's Wine installation: its loader, its server and its library directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from transom.kit.lazy_dataclass import dataclass
from transom.kit.programs import run_program

# The loader and its library directory, by Linux distribution. This is the loader's own path,
# because `wine` in /usr/bin is often a script that looks for it.
_PLACES: Final = (
    ("/usr/lib/wine/wine64", "/usr/lib/wine/wineserver64", "/usr/lib/x86_64-linux-gnu/wine"),
    ("/usr/bin/wine64", "/usr/bin/wineserver", "/usr/lib/x86_64-linux-gnu/wine"),
    ("/usr/bin/wine64", "/usr/bin/wineserver", "/usr/lib64/wine"),
    ("/usr/bin/wine64", "/usr/bin/wineserver", "/usr/lib/wine"),
    (
        "/opt/wine-stable/bin/wine64",
        "/opt/wine-stable/bin/wineserver",
        "/opt/wine-stable/lib64/wine",
    ),
)
# Where the Unix half of its 32-bit part is, if there is one; next to the library directory in some
# systems.
_OLDER: Final = (
    "/usr/lib/i386-linux-gnu/wine",
    "/usr/lib32/wine",
    "/usr/lib/wine",
    "/opt/wine-stable/lib/wine",
)
# Helpers take precedence over Wine's own programs of the same names. The other overrides prevent
# download prompts.
_OWN: Final = (
    "ipconfig.exe",
    "ping.exe",
    "powershell.exe",
    "findstr.exe",
    "systeminfo.exe",
    "taskkill.exe",
    "tasklist.exe",
    "whoami.exe",
)
_SECONDS: Final = 20


@dataclass(frozen=True, slots=True)
class WineInstallation:
    loader: Path
    server: Path
    libraries: Path  # has x86_64-windows and x86_64-unix

    @property
    def windows_libraries(self) -> Path:
        return self.libraries / "x86_64-windows"

    @property
    def folders(self) -> tuple[str, ...]:
        """What a container must see of this machine, read-only."""
        return ("/usr", *(() if str(self.loader).startswith("/usr/") else ("/opt",)))

    @property
    def runs_32_bit(self) -> bool:
        """Whether there are processes that make 32-bit system calls."""
        return any(Path(folder, "i386-unix").is_dir() for folder in (self.libraries, *_OLDER))

    def environment(self, prefix: str) -> dict[str, str]:
        """The environment of a Unix process that runs a Windows program in a prefix."""
        return {
            "WINEPREFIX": prefix,
            "WINELOADER": str(self.loader),
            "WINESERVER": str(self.server),
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": f"winemenubuilder.exe=d;mscoree=;mshtml=;{','.join(_OWN)}=n,b",
            "PATH": f"{self.loader.parent}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        }

    def version(self) -> str:
        """`wine-8.0 (Debian 8.0~repack-4)`. Raises OSError or SubprocessError."""
        command, environment = [str(self.loader), "--version"], self.environment("/nonexistent")
        return (
            run_program(command, env=environment, timeout=_SECONDS, check=True)
            .stdout.decode(errors="replace")
            .strip()
        )


def find_wine(places: tuple[tuple[str, str, str], ...] = _PLACES) -> WineInstallation | None:
    for loader, server, libraries in places:
        installation = WineInstallation(Path(loader), Path(server), Path(libraries))
        if (
            installation.loader.exists()
            and installation.server.exists()
            and (installation.libraries / "x86_64-unix").is_dir()
        ):
            return installation
    return None


def unix_environment(variables: Mapping[str, str]) -> list[str]:
    """In the format of an OCI specification's process."""
    return [f"{name}={value}" for name, value in variables.items()]
