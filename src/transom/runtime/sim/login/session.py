"""Somebody logs in to a simulated machine: a command of theirs, or a shell.

A command of several words is a program of the machine with its arguments. What is no program, and a command of one word,
is a line for the machine's shell, as with ssh: PowerShell on Windows, sh on Linux.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, cast

from transom.runtime.api import Output
from transom.runtime.sim.core import Core
from transom.runtime.sim.login.context import LoginContext
from transom.runtime.sim.login.machine import WindowsMachine
from transom.runtime.sim.program_api import ProcessEntry, ProgramContext, Stdin
from transom.runtime.sim.programs.process import Process, TaskProgram
from transom.runtime.sim.streams import NO_INPUT, Client, Input
from transom.runtime.sim.table import Table
from transom.runtime.sim.terminal import Terminal

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/\\=*+-]+")


def login(
    core: Core, machine: WindowsMachine | None, command: Sequence[str], output: Output, *, stdin: bool = False,
    tty: bool = False,
) -> Client:  # fmt: skip
    """No command: a shell."""
    processes = machine.processes if machine is not None else _linux_processes(core)
    given = Input() if stdin else None
    client = Client(output, given, None)
    if tty:
        client.terminal = Terminal(
            windows=core.windows,
            lines=given.feed if given is not None else _nowhere,
            echo=lambda data: client.said("stdout", data),
            signal=lambda name: context.signalled(name),
        )
    source: Stdin = given if given is not None else NO_INPUT
    shell = ["powershell.exe"] if machine is not None else ["sh"]
    context = LoginContext(core, machine, processes, list(command) or shell, client, source)
    seen = cast(ProgramContext, context)
    context.program = TaskProgram(seen, _windows if machine is not None else _linux)
    client.on_close = context.kill
    client.on_resize = lambda: None if core.windows else context.signalled("SIGWINCH")
    return client


def _linux_processes(core: Core) -> Table:
    init = ProcessEntry(1, 0, "root", ("/sbin/init",), core.host.boot_time, 12 << 20)
    return Table(core.host.time, windows=False, first=init)


def _nowhere(data: bytes) -> None:
    """Nobody reads what is typed."""


async def _windows(process: Process) -> int:
    from transom.runtime.sim.programs.powershell import main
    from transom.runtime.sim.programs.win.launch import find

    words = list(process.argv)
    if len(words) > 1:
        try:
            command = find(process.context, words[0], process.cwd)
        except OSError:
            return await main.line(process, " ".join(_quoted(word) for word in words))
        result = command(process)
        return result if isinstance(result, int) else await result
    if words == ["powershell.exe"]:
        return await main.run(process)
    return await main.line(process, words[0])


def _quoted(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else "'" + word.replace("'", "''") + "'"


async def _linux(process: Process) -> int:
    from transom.runtime.sim.programs.launch import find
    from transom.runtime.sim.programs.sh.main import run

    words = list(process.argv)
    if len(words) > 1:
        try:
            result = find(process, words[0])(process)
        except OSError:
            return process.fail(f"{words[0]}: not found", 127)
        return result if isinstance(result, int) else await result
    process.argv = ["sh"] if words == ["sh"] else ["sh", "-c", words[0]]
    return await run(process)
