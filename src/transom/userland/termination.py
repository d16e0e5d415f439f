"""How one process terminates another, and the resulting exit code. Depends on nothing.

On Linux that is SIGKILL and 137. On Windows it is TerminateProcess, whose caller chooses the exit
code: taskkill passes 1, .NET (and so Stop-Process) passes -1. The signal's name contains the code,
so that process tables only forward it.
"""

from __future__ import annotations

from typing import Final

KILL: Final = "SIGKILL"
LINUX_KILLED: Final = 137
TASKKILL: Final = 1
DOTNET: Final = 0xFFFFFFFF
_PREFIX: Final = "TerminateProcess:"


def terminate(code: int) -> str:
    """The signal that terminates a Windows process with this exit code."""
    return f"{_PREFIX}{code}"


def termination_code(signal: str, *, windows: bool) -> int | None:
    """The exit code of a process that receives this signal; None for a signal that the process
    handles itself.
    """
    if signal == KILL:
        return TASKKILL if windows else LINUX_KILLED
    return int(signal.removeprefix(_PREFIX)) if signal.startswith(_PREFIX) else None
