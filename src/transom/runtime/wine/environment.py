"""The environment variables of a process in a Windows container. Pure."""

from __future__ import annotations

import ntpath
from collections.abc import Iterable
from typing import Final

from transom.machines.windows.accounts import WindowsUser
from transom.machines.windows.variables import INSTALLED, PATH

_SYSTEM: Final = {
    **INSTALLED,
    "NUMBER_OF_PROCESSORS": "1",
    "Path": PATH + r"{profile}\AppData\Local\Microsoft\WindowsApps",
}
_PER_USER: Final = {
    "APPDATA": r"{profile}\AppData\Roaming",
    "LOCALAPPDATA": r"{profile}\AppData\Local",
    "TEMP": r"{profile}\AppData\Local\Temp",
    "TMP": r"{profile}\AppData\Local\Temp",
    "USERPROFILE": "{profile}",
}
_LONGEST_COMPUTER_NAME: Final = 15


def netbios_name(hostname: str) -> str:
    return hostname.upper()[:_LONGEST_COMPUTER_NAME]


def process_environment(
    user: WindowsUser, hostname: str, cpus: int, *given: Iterable[tuple[str, str]]
) -> dict[str, str]:
    """Names are case-insensitive: the first spelling is kept, the last value wins."""
    env = {
        name: value.replace("{profile}", user.profile)
        for name, value in (_SYSTEM | _PER_USER).items()
    }
    env |= {
        "COMPUTERNAME": netbios_name(hostname),
        "NUMBER_OF_PROCESSORS": str(cpus),
        "USERDOMAIN": user.domain,
        "USERNAME": user.name,
    }
    names = {name.lower(): name for name in env}
    for variables in given:
        for name, value in variables:
            env[names.setdefault(name.lower(), name)] = value
    # Wine's shell stops at an empty entry, and then reports no error for programs that it has not
    # found.
    env[names["path"]] = ";".join(filter(None, env[names["path"]].split(";")))
    return env


def image_environment(lines: Iterable[str]) -> list[tuple[str, str]]:
    """An image's `Env`."""
    return [(name, value) for name, _, value in (line.partition("=") for line in lines) if name]


def windows_search_path(env: dict[str, str]) -> list[str]:
    """The directories in which a program without a path is searched, as CreateProcess does."""
    path = next((value for name, value in env.items() if name.lower() == "path"), "")
    return [
        r"C:\Windows\System32",
        r"C:\Windows",
        *(ntpath.normpath(part) for part in path.split(";") if part),
    ]
