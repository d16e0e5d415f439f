"""A process's environment and command line, from the image and the container's configuration. Pure."""

from __future__ import annotations

import ntpath

from transom.hosts.windows.variables import INSTALLED
from transom.hosts.windows.variables import PATH as WINDOWS_PATH
from transom.runtime.api import ContainerConfig
from transom.runtime.sim.catalogue import Spec
from transom.runtime.sim.users import Identity

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TOOLS_PATH = r"C:\bin;C:\curl;C:\dig;C:\Windows\System32;C:\Windows;C:\Program Files\PowerShell;"
_WINDOWS_PATH = WINDOWS_PATH + r"C:\Users\{0}\AppData\Local\Microsoft\WindowsApps"


def command_line(config: ContainerConfig, spec: Spec) -> tuple[str, ...]:
    """A command of the container's own leaves nothing of the image's."""
    image = spec.info
    entrypoint = config.command or image.entrypoint
    arguments = config.args or (() if config.command else image.cmd)
    return tuple(entrypoint) + tuple(arguments)


def linux(config: ContainerConfig, spec: Spec, identity: Identity, hostname: str, tty: bool) -> dict[str, str]:
    env = {"PATH": PATH, "HOSTNAME": hostname}
    if tty:
        env["TERM"] = "xterm"
    env.update(spec.env)
    env.update(config.env)
    env.setdefault("HOME", identity.home)
    return env


def windows(config: ContainerConfig, spec: Spec, identity: Identity, hostname: str, cpus: int) -> dict[str, str]:
    """Names differ by more than case; the later one wins."""
    profile = identity.home
    env = {
        **INSTALLED,
        "APPDATA": rf"{profile}\AppData\Roaming",
        "COMPUTERNAME": hostname.upper()[:15],
        "LOCALAPPDATA": rf"{profile}\AppData\Local",
        "NUMBER_OF_PROCESSORS": str(cpus),
        "Path": _TOOLS_PATH if spec.info.userland == "busybox" else _WINDOWS_PATH.format(ntpath.basename(profile)),
        "TEMP": rf"{profile}\AppData\Local\Temp",
        "TMP": rf"{profile}\AppData\Local\Temp",
        "USERDOMAIN": "User Manager" if profile.startswith(r"C:\Users\Container") else hostname.upper()[:15],
        "USERNAME": identity.name,
        "USERPROFILE": profile,
    }
    names = {name.lower(): name for name in env}
    for name, value in (*spec.env, *config.env):
        env[names.setdefault(name.lower(), name)] = value
    return env
