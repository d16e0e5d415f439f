"""A login session on a simulated machine: one command, or a shell.

A command of several words is a program of the machine with its arguments. A single word, or
anything that is not a program, is a line for the machine's shell, as with ssh: PowerShell on
Windows, sh on Linux.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from transom.runtime.api import Output
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.login.context import LoginContext, run_machine_program
from transom.runtime.sim.login.linux_commands import find_linux_node_command
from transom.runtime.sim.login.machine import WindowsMachine
from transom.runtime.sim.login.node_commands import find_node_command
from transom.runtime.sim.login.program_sockets import ApiClients
from transom.runtime.sim.login.units import LinuxMachine
from transom.runtime.sim.streams import NO_INPUT, ExecClient, begin_program
from transom.runtime.sim.table import ProcessIdTable
from transom.userland.api import ProcessEntry
from transom.userland.launch.linux_commands import find_linux_command
from transom.userland.launch.windows_commands import find_windows_command
from transom.userland.posix.sh.main import run_shell
from transom.userland.powershell import main
from transom.userland.process import FindCommand, Process, TaskProgram

LoginMachine = WindowsMachine | LinuxMachine
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/\\=*+-]+")


def login(
    core: SimCore,
    machine: LoginMachine | None,
    command: Sequence[str],
    output: Output,
    *,
    stdin: bool = False,
    tty: bool = False,
) -> ExecClient:
    """Without a command: a shell."""
    processes = machine.processes if machine is not None else _linux_processes(core)
    windows = machine if isinstance(machine, WindowsMachine) else None
    find_command = finder(machine)

    def signalled(name: str) -> None:
        context.signalled(name)

    client, source = begin_program(
        output, stdin=stdin, tty=tty, windows=core.windows, signal=signalled
    )
    argv, body = _windows(command) if windows is not None else _linux(command)
    context = LoginContext(
        core,
        windows,
        processes,
        argv,
        client,
        source,
        find_command,
        clients=api_clients(machine),
    )
    context.program = TaskProgram(context, body, find_command)
    client.on_close = context.kill
    client.on_resize = lambda: None if core.windows else context.signalled("SIGWINCH")
    return client


def start_detached(
    core: SimCore,
    machine: WindowsMachine,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    output: Callable[[bytes], None],
    user: str,
) -> tuple[int, ExecClient]:
    """A program that no other process has started. Returns its pid, and an awaitable for its end."""
    client = ExecClient(lambda _stream, data: output(data), None, None)
    find_command = finder(machine)
    context = LoginContext(
        core,
        machine,
        machine.processes,
        argv,
        client,
        NO_INPUT,
        find_command,
        user,
        api_clients(machine),
    )
    context.env, context.cwd = dict(env), cwd
    context.program = TaskProgram(context, run_machine_program, find_command)
    return context.pid, client


def api_clients(machine: LoginMachine | None) -> ApiClients | None:
    """The programs of the node that connect to the API server."""
    if machine is None:
        return None
    return machine.units if isinstance(machine, LinuxMachine) else machine.binaries


def finder(machine: LoginMachine | None) -> FindCommand:
    """How programs on the machine find others: nodes have programs that containers lack."""
    if machine is None:
        return find_linux_command
    if isinstance(machine, LinuxMachine):
        return partial(find_linux_node_command, machine)
    return partial(find_windows_command, node_command=partial(find_node_command, machine))


def _linux_processes(core: SimCore) -> ProcessIdTable:
    init = ProcessEntry(1, 0, "root", ("/sbin/init",), core.host.boot_time, 12 << 20)
    return ProcessIdTable(core.host.time, windows=False, first=init)


Body = Callable[[Process], Awaitable[int]]


def _windows(command: Sequence[str]) -> tuple[Sequence[str], Body]:
    async def run(process: Process) -> int:
        try:
            return await run_machine_program(process)
        except FileNotFoundError:  # a cmdlet, or nothing
            return await main.run_powershell_line(
                process, " ".join(_quoted(word) for word in command)
            )

    if not command:
        return ("powershell.exe",), main.run_powershell
    if len(command) > 1:
        return command, run
    return ("powershell.exe", "-Command", command[0]), lambda process: main.run_powershell_line(
        process, command[0]
    )


def _quoted(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else "'" + word.replace("'", "''") + "'"


def _linux(command: Sequence[str]) -> tuple[Sequence[str], Body]:
    async def run(process: Process) -> int:
        try:
            return await run_machine_program(process)
        except OSError:
            process.complain(f"sh: {command[0]}: not found")
            return 127

    if len(command) > 1:
        return command, run
    return (("sh", "-c", command[0]) if command else ("sh",)), run_shell
