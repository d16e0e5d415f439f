"""What a simulated container's command does. `start` is the only door.

A program sees its container through its `ProgramContext` and nothing else: no real files, processes or sockets. Commands
are functions in tables (`commands/`, `cmd/`, `powershell/`), programs that serve are rows of `servers/table.py`.
"""

from __future__ import annotations

from transom.runtime.sim.program_api import Program, ProgramContext


def start(context: ProgramContext) -> Program:
    """Raises FileNotFoundError, PermissionError or IsADirectoryError where there is nothing to run."""
    if context.os == "windows":
        from transom.runtime.sim.programs.start_windows import start as start_there
    else:
        from transom.runtime.sim.programs.start_linux import start as start_there
    return start_there(context)
