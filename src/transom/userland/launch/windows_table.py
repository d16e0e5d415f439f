"""The table of programs in Windows images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transom.kit.lazy import lazy_import
from transom.machines.windows.programs import NOT_IN_NANO_SERVER
from transom.userland.api import ProgramContext
from transom.userland.cmd import main as cmd_main
from transom.userland.cmd.forfiles import forfiles
from transom.userland.posix.commands import http, table
from transom.userland.posix.sh.main import run_shell
from transom.userland.process import Command, Process
from transom.userland.windows import (
    accounts,
    acls,
    bsdtar,
    choice,
    clock,
    copying,
    counters,
    disk_tools,
    dism,
    event_tools,
    file_copying,
    names,
    network,
    power,
    registry,
    services,
    sessions,
    system,
    task_tools,
    tasks,
    text,
    volume_tools,
    wmic,
)

if TYPE_CHECKING:
    from transom.userland.powershell import main as powershell_main
else:
    powershell_main = lazy_import("transom.userland.powershell.main")


async def _curl(process: Process) -> int:
    if process.argv[1:2] in (["--version"], ["-V"]):
        process.print_line("curl 7.55.1 (Windows) libcurl/7.55.1 WinSSL")
        process.print_line("Release-Date: [unreleased]")
        process.print_line(
            "Protocols: dict file ftp ftps http https imap imaps pop3 pop3s smtp smtps telnet tftp"
        )
        process.print_line("Features: AsynchDNS IPv6 Largefile SSPI Kerberos SPNEGO NTLM SSL")
        return 0
    return int(await http.curl(process))


async def _powershell(process: Process) -> int:
    return await powershell_main.run_powershell(process)


COMMANDS: dict[str, Command] = {
    "cmd": cmd_main.run_cmd,
    "curl": _curl,
    "forfiles": forfiles,
    "powershell": _powershell,
    "pwsh": _powershell,
    "tar": bsdtar.tar,
    **accounts.COMMANDS,
    **acls.COMMANDS,
    **choice.COMMANDS,
    **clock.COMMANDS,
    **copying.COMMANDS,
    **file_copying.COMMANDS,
    **counters.COMMANDS,
    **disk_tools.COMMANDS,
    **dism.COMMANDS,
    **event_tools.COMMANDS,
    **names.COMMANDS,
    **network.COMMANDS,
    **power.COMMANDS,
    **registry.COMMANDS,
    **services.COMMANDS,
    **sessions.COMMANDS,
    **system.COMMANDS,
    **task_tools.COMMANDS,
    **tasks.COMMANDS,
    **text.COMMANDS,
    **volume_tools.COMMANDS,
    **wmic.COMMANDS,
}

_ADDED = ("curl", "dig")  # in directories of their own, besides busybox's tools


def find_windows_tool(context: ProgramContext, name: str) -> Command | None:
    image = context.image
    command = COMMANDS.get(name)
    if command is None:
        return (
            find_busybox_tool(name)
            if image.userland == "any" or (image.userland == "busybox" and name in _ADDED)
            else None
        )
    if name == "pwsh":
        there = image.options.get("pwsh") == "true" or image.userland in (
            "any",
            "windows",
            "busybox",
        )
        return command if there else None
    if (
        image.userland == "nanoserver"
        and name in NOT_IN_NANO_SERVER
        and image.options.get(name) != "true"
    ):
        return None
    return command


def find_busybox_tool(name: str) -> Command | None:
    """A tool of busybox for Windows."""
    if name in ("sh", "ash", "bash"):
        return run_shell
    return table.applet if name == "busybox" else table.COMMANDS.get(name)
