"""The table of commands in Linux images."""

from __future__ import annotations

from transom.userland.api import ProgramContext
from transom.userland.posix.commands import (
    archive,
    awk,
    basic,
    dumps,
    expr,
    files,
    grep,
    http,
    ip,
    look,
    names,
    network,
    sed,
    sockets,
    system,
    text,
)
from transom.userland.process import Command

COMMANDS: dict[str, Command] = {
    name: command
    for table in (
        archive,
        awk,
        basic,
        dumps,
        expr,
        files,
        grep,
        http,
        ip,
        look,
        names,
        network,
        sed,
        sockets,
        system,
        text,
    )
    for name, command in table.COMMANDS.items()
}

# Images of Debian and similar contain these only if they are installed; images of some programs do.
_NOT_IN_GNU = frozenset(
    [
        "arp",
        "dig",
        "free",
        "hd",
        "hexdump",
        "host",
        "ifconfig",
        "ip",
        "killall",
        "nc",
        "ncat",
        "netcat",
        "netstat",
        "nslookup",
        "pgrep",
        "pidof",
        "ping",
        "pkill",
        "ps",
        "redis-cli",
        "route",
        "ss",
        "top",
        "uptime",
        "watch",
        "wget",
        "xxd",
    ]
)
_WITH_PROGRAM = {
    "nginx": frozenset(("curl",)),
    "redis": frozenset(("redis-cli",)),
    "python": frozenset(("curl", "wget", "ps", "free", "top")),
    "node": frozenset(("curl", "wget", "ps", "free", "top")),
    "perl": frozenset(("curl", "wget")),
    "agnhost": frozenset(("curl", "dig", "getent", "host", "ip", "nc")),
}
_NOT_IN_BUSYBOX = frozenset(
    ["curl", "dig", "gawk", "getent", "host", "mawk", "ncat", "netcat", "redis-cli", "ss", "tini"]
)


def find_posix_tool(context: ProgramContext, name: str) -> Command | None:
    command = COMMANDS.get(name)
    if command is None:
        return _applet(context, name)
    image = context.image
    extra = _WITH_PROGRAM.get(image.program, frozenset())
    if image.userland == "none":
        return None
    named = image.name.lower()
    if (
        name in extra
        or name in image.options.get("commands", "").split(",")
        or any(mark in named for mark in _TOOLS)
    ):
        return command
    if image.userland == "gnu" and (name in _NOT_IN_GNU or name == "curl"):
        return None
    if image.userland == "busybox" and name in _NOT_IN_BUSYBOX and name not in named:
        return None
    return command


_TOOLS = (
    "dnsutils",
    "dns-testing",
    "toolbox",
    "netshoot",
    "network-multitool",
    "buildpack",
    "curlimages",
)


def _applet(context: ProgramContext, name: str) -> Command | None:
    """`busybox sh -c ...`"""
    if name != "busybox" or context.image.userland not in ("busybox", "any"):
        return None
    return applet


applet = basic.nohup
