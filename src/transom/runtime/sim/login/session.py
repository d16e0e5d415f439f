"""Somebody logs in to a simulated machine: a command of theirs, or a shell.

A command of several words is a program of the machine with its arguments. What is no program, and a command of one word,
is a line for the machine's shell, as with ssh: PowerShell on Windows, sh on Linux.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, cast

from transom.runtime.api import Output
from transom.runtime.sim.core import Core
from transom.runtime.sim.login.context import LoginContext
from transom.runtime.sim.login.machine import WindowsMachine
from transom.runtime.sim.program_api import ProcessEntry, ProgramContext
from transom.runtime.sim.programs.process import Process, TaskProgram
from transom.runtime.sim.streams import NO_INPUT, Client, begin
from transom.runtime.sim.table import Table

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/\\=*+-]+")


def login(
    core: Core, machine: WindowsMachine | None, command: Sequence[str], output: Output, *, stdin: bool = False,
    tty: bool = False,
) -> Client:  # fmt: skip
    """No command: a shell."""
    processes = machine.processes if machine is not None else _linux_processes(core)

    def signalled(name: str) -> None:
        context.signalled(name)

    client, source = begin(output, stdin=stdin, tty=tty, windows=core.windows, signal=signalled)
    argv, body = _windows(command) if machine is not None else _linux(command)
    context = LoginContext(core, machine, processes, argv, client, source)
    context.program = TaskProgram(cast(ProgramContext, context), body)
    client.on_close = context.kill
    client.on_resize = lambda: None if core.windows else context.signalled("SIGWINCH")
    return client


def detached(
    parent: LoginContext, argv: Sequence[str], env: Mapping[str, str], cwd: str, output: Callable[[bytes], None]
) -> tuple[int, Client]:
    """A program in a window of its own: it stays when whoever started it has gone. Its process id, and its end to wait for."""
    client = Client(lambda _stream, data: output(data), None, None)
    context = LoginContext(parent.core, parent.machine, parent.processes, argv, client, NO_INPUT)
    context.env, context.cwd = dict(env), cwd
    context.program = TaskProgram(cast(ProgramContext, context), _program)
    return context.pid, client


def _linux_processes(core: Core) -> Table:
    init = ProcessEntry(1, 0, "root", ("/sbin/init",), core.host.boot_time, 12 << 20)
    return Table(core.host.time, windows=False, first=init)


Body = Callable[[Process], Awaitable[int]]


async def _program(process: Process) -> int:
    """Raises OSError when there is none of this name."""
    from transom.runtime.sim.programs.launch import find as find_on_linux
    from transom.runtime.sim.programs.win.launch import find

    name = process.argv[0]
    command = find(process.context, name, process.cwd) if process.windows else find_on_linux(process, name)
    result = command(process)
    return result if isinstance(result, int) else await result


def _windows(command: Sequence[str]) -> tuple[Sequence[str], Body]:
    from transom.runtime.sim.programs.powershell import main

    async def run(process: Process) -> int:
        try:
            return await _program(process)
        except FileNotFoundError:  # a cmdlet, or nothing
            return await main.line(process, " ".join(_quoted(word) for word in command))

    if not command:
        return ("powershell.exe",), main.run
    if len(command) > 1:
        return command, run
    return ("powershell.exe", "-Command", command[0]), lambda process: main.line(process, command[0])


def _quoted(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else "'" + word.replace("'", "''") + "'"


def _linux(command: Sequence[str]) -> tuple[Sequence[str], Body]:
    from transom.runtime.sim.programs.sh.main import run as run_shell

    async def run(process: Process) -> int:
        try:
            return await _program(process)
        except OSError:
            process.complain(f"sh: {command[0]}: not found")
            return 127

    if len(command) > 1:
        return command, run
    return (("sh", "-c", command[0]) if command else ("sh",)), run_shell
