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
# Images of Kubernetes' end-to-end tests bring busybox's tools to Windows.
_WITH_TOOLS = ("busybox", "agnhost", "jessie-dnsutils", "nonroot")


def find(context: ProgramContext, name: str) -> Command | None:
    image = context.image
    command = COMMANDS.get(name)
    tools = any(mark in image.name for mark in _WITH_TOOLS)
    if command is None:
        return _tool(name) if tools or image.userland == "any" else None
    if name == "pwsh":
        there = image.options.get("pwsh") == "true" or image.userland in ("any", "windows") or tools
        return command if there else None
    if image.userland == "nanoserver" and name in _NOT_IN_NANO and not tools and image.options.get(name) != "true":
        return None
    return command


def _tool(name: str) -> Command | None:
    if name in ("sh", "bash"):
        from transom.runtime.sim.programs.sh.main import run

        return run
    from transom.runtime.sim.programs.commands import table

    return table.COMMANDS.get(name)
