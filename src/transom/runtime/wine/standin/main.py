"""The Unix half of a stand-in: reads the greeting, selects the program, runs it to its end."""

from __future__ import annotations

import asyncio
import logging
import ntpath
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from transom.kit.lazy import lazy_import
from transom.runtime.wine.standin.channel import StandInChannel
from transom.runtime.wine.standin.context import (
    PREFIX,
    StandInContext,
    is_interrupted,
    read_greeting,
)
from transom.userland.process import Command, TaskProgram

if TYPE_CHECKING:
    from transom.userland.powershell import main as powershell_main
    from transom.userland.windows import accounts, system, task_tools, text, wmic
else:
    powershell_main = lazy_import("transom.userland.powershell.main")
    accounts = lazy_import("transom.userland.windows.accounts")
    system = lazy_import("transom.userland.windows.system")
    task_tools = lazy_import("transom.userland.windows.task_tools")
    text = lazy_import("transom.userland.windows.text")
    wmic = lazy_import("transom.userland.windows.wmic")

_STANDARD_INPUT: Final = 0
_NOT_RECOGNIZED: Final = 9009


class _Short(logging.Formatter):
    """Prints an error in one line: users have written a script, not this program."""

    def format(self, record: logging.LogRecord) -> str:
        problem = record.exc_info[1] if record.exc_info else None
        return (
            f"Transom's stand-in cannot do that: {problem!r}"
            if problem is not None
            else record.getMessage()
        )


def main() -> None:
    """Never returns."""
    os.setsid()  # the Win32 half reports terminal signals
    handler = logging.StreamHandler()
    handler.setFormatter(_Short())
    logging.basicConfig(handlers=[handler])
    asyncio.run(serve_stand_in(socket.socket(fileno=_STANDARD_INPUT)))
    sys.exit(0)


async def serve_stand_in(connection: socket.socket, prefix: Path = PREFIX) -> None:
    """Returns when the program or its Win32 half has ended."""
    ended = asyncio.Event()
    channel = StandInChannel(connection, ended.set)
    greeting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    channel.handlers["H"] = greeting.set_result
    over = asyncio.ensure_future(ended.wait())
    either: list[asyncio.Future[Any]] = [greeting, over]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not greeting.done():
        return
    context = StandInContext(channel, read_greeting(greeting.result()), ended.set, prefix)
    program = TaskProgram(context, stand_in_command(context.program), context.native.find)
    context.native.inherit(program.process)
    channel.handlers["C"] = is_interrupted(context, program.signal)
    await over
    program.kill()
    channel.close()


def stand_in_command(program: str) -> Command:
    """By the name of the file that was started."""
    stem = ntpath.splitext(ntpath.basename(program))[0].lower()
    if stem in ("powershell", "pwsh"):
        return powershell_main.run_powershell

    known: Command | None = next(
        (
            module.COMMANDS[stem]
            for module in (text, system, task_tools, wmic, accounts)
            if stem in module.COMMANDS
        ),
        None,
    )
    return known or (lambda process: process.fail("is not known to the stand-in.", _NOT_RECOGNIZED))
