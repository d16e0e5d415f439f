"""Starts the program that the command of a Windows container names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transom.kit.lazy import lazy_function
from transom.userland.api import Program, ProgramContext
from transom.userland.launch.server_table import assumed_server, image_program, program_for
from transom.userland.process import FindCommand, TaskProgram
from transom.userland.windows.idle import windows_idle_program

if TYPE_CHECKING:
    from transom.userland.launch.windows_commands import find_windows_command
else:  # servers need no commands
    find_windows_command = lazy_function(
        "transom.userland.launch.windows_commands", "find_windows_command"
    )


def start_windows_program(
    context: ProgramContext, find_command: FindCommand = find_windows_command
) -> Program:
    """`find_command` finds the programs that are no servers. Raises FileNotFoundError and
    PermissionError.
    """
    factory = image_program(context) or program_for(context, context.argv[0])
    if factory is not None:
        return factory(context)
    idle = windows_idle_program(context)
    if idle is not None:
        return idle
    try:
        command = find_command(context, context.argv[0], context.cwd)
    except FileNotFoundError:
        if context.main and context.image.userland == "any" and not context.image.program:
            return assumed_server(context)  # an unknown image: assume that its program is a server
        raise
    return TaskProgram(context, command, find_command)
