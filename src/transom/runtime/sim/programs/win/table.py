"""Which programs a Windows image has."""

from __future__ import annotations

from transom.runtime.sim.program_api import ProgramContext
from transom.runtime.sim.programs.cmd import main as cmd_main
from transom.runtime.sim.programs.commands import archive, http
from transom.runtime.sim.programs.launch import Command
from transom.runtime.sim.programs.powershell import main as powershell_main
from transom.runtime.sim.programs.win import names, network, system, text

COMMANDS: dict[str, Command] = {
    "cmd": cmd_main.run,
    "curl": http.curl,
    "powershell": powershell_main.run,
    "pwsh": powershell_main.run,
    "tar": archive.tar,
    **names.COMMANDS,
    **network.COMMANDS,
    **system.COMMANDS,
    **text.COMMANDS,
}

_NOT_IN_NANO = frozenset(
    [
        "powershell",
        "pwsh",
        "systeminfo",
        "nltest",
        "wmic",
        "net",
        "sc",
        "reg",
        "where",
        "robocopy",
        "xcopy",
        "getmac",
        "netstat",
        "route",
        "w32tm",
        "tzutil",
    ]
)
_ADDED = ("curl", "dig")  # in folders of their own, beside busybox's tools


def find(context: ProgramContext, name: str) -> Command | None:
    image = context.image
    command = COMMANDS.get(name)
    if command is None:
        return tool(name) if image.userland == "any" or (image.userland == "busybox" and name in _ADDED) else None
    if name == "pwsh":
        there = image.options.get("pwsh") == "true" or image.userland in ("any", "windows", "busybox")
        return command if there else None
    if image.userland == "nanoserver" and name in _NOT_IN_NANO and image.options.get(name) != "true":
        return None
    return command


def tool(name: str) -> Command | None:
    """One of busybox's, on Windows."""
    if name in ("sh", "ash", "bash"):
        from transom.runtime.sim.programs.sh.main import run

        return run
    from transom.runtime.sim.programs.commands import table

    return table.applet if name == "busybox" else table.COMMANDS.get(name)
