"""A process's environment and command line, from the image and the container's configuration.
Pure.
"""

from __future__ import annotations

import ntpath
from collections.abc import Mapping

from transom.machines.windows.system import WindowsSystem
from transom.machines.windows.variables import INSTALLED
from transom.machines.windows.variables import PATH as WINDOWS_PATH
from transom.runtime.api import ContainerConfig
from transom.runtime.sim.catalogue import CatalogueImage
from transom.runtime.sim.users import ContainerIdentity

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TOOLS_PATH = r"C:\bin;C:\curl;C:\dig;C:\Windows\System32;C:\Windows;C:\Program Files\PowerShell;"
_WINDOWS_PATH = WINDOWS_PATH + r"C:\Users\{0}\AppData\Local\Microsoft\WindowsApps"


def sim_command_line(config: ContainerConfig, spec: CatalogueImage) -> tuple[str, ...]:
    """The container's own command replaces the image's entrypoint and command."""
    image = spec.info
    entrypoint = config.command or image.entrypoint
    arguments = config.args or (() if config.command else image.cmd)
    return tuple(entrypoint) + tuple(arguments)


def linux_environment(
    config: ContainerConfig,
    spec: CatalogueImage,
    identity: ContainerIdentity,
    hostname: str,
    tty: bool,
) -> dict[str, str]:
    env = {"PATH": PATH, "HOSTNAME": hostname}
    if tty:
        env["TERM"] = "xterm"
    env.update(spec.env)
    env.update(config.env)
    env.setdefault("HOME", identity.home)
    return env


def windows_environment(
    config: ContainerConfig,
    spec: CatalogueImage,
    identity: ContainerIdentity,
    hostname: str,
    cpus: int,
    system: WindowsSystem | None,
) -> dict[str, str]:
    """Names are case-insensitive; the later value wins. `system` is the container's, once it has
    one: its registry has variables, too.
    """
    profile = identity.home
    domain = identity.account.domain if identity.account is not None else ""
    env = {
        **INSTALLED,
        "APPDATA": rf"{profile}\AppData\Roaming",
        "COMPUTERNAME": hostname.upper()[:15],
        "LOCALAPPDATA": rf"{profile}\AppData\Local",
        "NUMBER_OF_PROCESSORS": str(cpus),
        "Path": _TOOLS_PATH
        if spec.info.userland == "busybox"
        else _WINDOWS_PATH.format(ntpath.basename(profile)),
        "TEMP": rf"{profile}\AppData\Local\Temp",
        "TMP": rf"{profile}\AppData\Local\Temp",
        "USERDOMAIN": domain if domain == "User Manager" else hostname.upper()[:15],
        "USERNAME": identity.name,
        "USERPROFILE": profile,
    }
    own: Mapping[str, str] = {}
    if system is not None:
        sid = identity.account.sid if identity.account is not None else ""
        own = system.changed_variables(sid, env["Path"])
    names = {name.lower(): name for name in env}
    for name, value in (*own.items(), *spec.env, *config.env):
        env[names.setdefault(name.lower(), name)] = value
    return env
