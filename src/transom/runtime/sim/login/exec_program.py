"""Programs that a component of the node starts, as the kubelet starts FlexVolume drivers: runs the
file on the machine.

No shell is involved: a file that is missing, not executable or not a program is a system error.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from transom.kit.argv import quote_argument
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.login.context import LoginContext, find_machine_program
from transom.runtime.sim.login.machine import WindowsMachine
from transom.runtime.sim.login.session import LoginMachine, api_clients, finder
from transom.runtime.sim.streams import NO_INPUT, ExecClient, InputBuffer
from transom.runtime.sim.table import ProcessIdTable
from transom.userland.process import Process, TaskProgram

LARGEST_OUTPUT: Final = 1 << 20
_SCRIPTS: Final = (".cmd", ".bat")


class FinishedProgram(NamedTuple):
    code: int
    output: bytes  # standard output and standard error, in the order of writing
    errors: bytes = b""  # standard error, if it is kept apart


async def exec_on_machine(
    core: SimCore,
    machine: LoginMachine | None,
    argv: Sequence[str],
    seconds: float,
    *,
    stdin: bytes = b"",
    environment: Mapping[str, str] = MappingProxyType({}),
    apart: bool = False,
) -> FinishedProgram:
    """`environment` is added to the machine's; `apart` keeps standard error out of the output.
    Raises OSError when it cannot be started, TimeoutError when it takes longer; it is killed then.
    """
    if "/" in argv[0] or "\\" in argv[0]:  # other names are looked up in the path
        _check(core, argv[0])
    output, errors = bytearray(), bytearray()

    def write(stream: str, data: bytes) -> None:
        target = errors if apart and stream == "stderr" else output
        if len(target) < LARGEST_OUTPUT:
            target.extend(data)

    client = ExecClient(write, None, None)
    windows = machine if isinstance(machine, WindowsMachine) else None
    processes = (
        windows.processes if windows is not None else ProcessIdTable(core.host.time, windows=False)
    )
    find_command = finder(machine)
    words = [argv[0], *(quote_argument(word) for word in argv[1:])] if core.windows else list(argv)
    context = LoginContext(
        core,
        windows,
        processes,
        words,
        client,
        _ended_input(stdin) if stdin else NO_INPUT,
        find_command,
        clients=api_clients(machine),
    )
    context.env = {**context.env, **environment}
    failure: list[OSError] = []

    async def body(process: Process) -> int:
        try:
            command = find_machine_program(process)
        except OSError as problem:
            failure.append(problem)
            return 127
        result = command(process)
        return result if isinstance(result, int) else await result

    context.program = TaskProgram(context, body, find_command)
    timer = core.clock.call_later(seconds, context.kill) if seconds else None
    late = core.clock.monotonic() + seconds
    try:
        code = await client.wait()
    except BaseException:
        context.kill()
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if seconds and core.clock.monotonic() >= late:
        raise TimeoutError
    if failure:
        raise failure[0]
    return FinishedProgram(code, bytes(output), bytes(errors))


def _ended_input(data: bytes) -> InputBuffer:
    given = InputBuffer()
    given.feed(data)
    given.end()
    return given


def _check(core: SimCore, path: str) -> None:
    """The checks of execve and CreateProcess."""
    files = core.host.files
    state = files.stat(path)  # raises FileNotFoundError
    if state.kind == "directory":
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    content = files.read(path, 0, 2)
    if core.windows:
        if not path.lower().endswith(_SCRIPTS) and content != b"MZ":
            raise OSError(errno.ENOEXEC, "%1 is not a valid Win32 application.", path)
        return
    if not state.mode & 0o111:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    if content not in (b"#!", b"\x7fE"):
        raise OSError(errno.ENOEXEC, os.strerror(errno.ENOEXEC), path)
