"""The Unix half of a stand-in: greets, finds out which program it is, runs it to its end."""

from __future__ import annotations

import asyncio
import logging
import ntpath
import os
import socket
import sys
from pathlib import Path
from typing import Any, Final, cast

from transom.runtime.sim.program_api import ProgramContext
from transom.runtime.sim.programs.launch import Command
from transom.runtime.sim.programs.process import TaskProgram
from transom.runtime.wine.standin.channel import Channel
from transom.runtime.wine.standin.context import PREFIX, StandInContext, greeting, interrupted

_STANDARD_INPUT: Final = 0
_NOT_RECOGNIZED: Final = 9009


class _Short(logging.Formatter):
    """What went wrong in this program is told in one line: whoever reads it has written a script, not this."""

    def format(self, record: logging.LogRecord) -> str:
        problem = record.exc_info[1] if record.exc_info else None
        return f"Transom's stand-in cannot do that: {problem!r}" if problem is not None else record.getMessage()


def main() -> None:
    """Never returns."""
    os.setsid()  # a terminal's signals are for the Win32 half, which tells of them
    handler = logging.StreamHandler()
    handler.setFormatter(_Short())
    logging.basicConfig(handlers=[handler])
    asyncio.run(serve(socket.socket(fileno=_STANDARD_INPUT)))
    sys.exit(0)


async def serve(connection: socket.socket, prefix: Path = PREFIX) -> None:
    """Returns when the program has ended, or its Win32 half."""
    ended = asyncio.Event()
    channel = Channel(connection, ended.set)
    said: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    channel.handlers["H"] = said.set_result
    over = asyncio.ensure_future(ended.wait())
    either: list[asyncio.Future[Any]] = [said, over]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not said.done():
        return
    context = StandInContext(channel, greeting(said.result()), prefix)
    context.on_exit(ended.set)
    program = TaskProgram(cast(ProgramContext, context), command(context.program))
    context.real.inherit(program.process)
    channel.handlers["C"] = interrupted(context, program.signal)
    await over
    program.kill()
    channel.close()


def command(program: str) -> Command:
    """By the name of the file that was started."""
    stem = ntpath.splitext(ntpath.basename(program))[0].lower()
    if stem in ("powershell", "pwsh"):
        from transom.runtime.sim.programs.powershell.main import run

        return run
    from transom.runtime.sim.programs.win import system, text

    known: Command | None = (text.COMMANDS | system.COMMANDS).get(stem)
    return known or (lambda process: process.fail("is not known to the stand-in.", _NOT_RECOGNIZED))
