"""How a Windows container's command becomes a program."""

from __future__ import annotations

from transom.runtime.sim.program_api import Program, ProgramContext
from transom.runtime.sim.programs.process import TaskProgram
from transom.runtime.sim.programs.servers.table import factory_of_image, generic, program_for
from transom.runtime.sim.programs.win.launch import find, idle_for


def start(context: ProgramContext) -> Program:
    factory = factory_of_image(context) or program_for(context, context.argv[0])
    if factory is not None:
        return factory(context)
    idle = idle_for(context)
    if idle is not None:
        return idle
    try:
        command = find(context, context.argv[0], context.cwd)
    except FileNotFoundError:
        if context.main and context.image.userland == "any" and not context.image.program:
            return generic(context)  # nobody knows the image: its own program is taken to be a server
        raise
    return TaskProgram(context, command)
