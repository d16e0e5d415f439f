"""query, quser and qwinsta."""

from __future__ import annotations

from typing import Final

from transom.userland.process import Command, Process
from transom.userland.windows import wmi
from transom.userland.windows.priorities import sessions_of


def _no_users(process: Process) -> int:
    """No user has a desktop: logins come through the container runtime or the network."""
    process.complain("No User exists for *")
    return 1


def qwinsta(process: Process) -> int:
    process.print_line(" SESSIONNAME       USERNAME                 ID  STATE   TYPE        DEVICE")
    session = sessions_of(process.context)
    for number in sorted({session(entry) for entry in wmi.wmi_processes(process.context)}):
        name = "services" if number == 0 else ""
        process.print_line(f" {name:<42} {number:>2}  Disc")
    return 0


def query(process: Process) -> int:
    what = process.argv[1].lower() if len(process.argv) > 1 else ""
    if what == "user":
        return _no_users(process)
    if what in ("session", "winsta"):
        return qwinsta(process)
    process.print_line("QUERY { PROCESS | SESSION | TERMSERVER | USER }")
    return 1


COMMANDS: Final[dict[str, Command]] = {
    "query": query,
    "quser": _no_users,
    "qwinsta": qwinsta,
}
