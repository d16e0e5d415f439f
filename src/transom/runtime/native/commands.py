"""Commands in running containers, attached clients, and connections to ports of a sandbox."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from transom.runtime import saved
from transom.runtime.api import ExecResult, Output, RuntimeFailure
from transom.runtime.exec_output import ExecOutput
from transom.runtime.native.client import MonitorFailure, MonitorGone, connect_monitor
from transom.runtime.native.core import NativeCore
from transom.runtime.native.monitor.terminals import leave_to_program
from transom.runtime.native.platform import RunningContainer, Spec
from transom.runtime.native.records import NativeContainer, NativeSandbox
from transom.runtime.native.requests import request_of
from transom.runtime.native.runc import verifies_directory
from transom.runtime.native.streams import NativeAttach, NativeExec
from transom.runtime.records import cri_exit_code

_NETWORK_NAMESPACE = 0x40000000
_DIAL = 10.0
_LONGEST_ADDRESS = 100
_libc = ctypes.CDLL(None, use_errno=True)


def require_running(core: NativeCore, c: NativeContainer) -> None:
    if c.state != "running":
        raise core.texts.not_running(c.id, c.state)


# ---- exec ----


async def exec_native(
    core: NativeCore,
    c: NativeContainer,
    handle: RunningContainer,
    command: Sequence[str],
    output: Output,
    *,
    stdin: bool,
    tty: bool,
) -> NativeExec:
    """Raises RuntimeFailure."""
    require_running(core, c)
    identity = core.new_id()
    process = core.platform.exec_process(handle, command, tty=tty, exec_id=identity)
    process["terminal"] = tty
    try:
        return await _start(core, c, process, identity, output, stdin=stdin, tty=tty)
    except MonitorFailure as problem:
        require_running(core, c)
        raise core.platform.exec_failure(handle, identity, command, problem.text) from problem


async def _start(
    core: NativeCore,
    c: NativeContainer,
    process: Spec,
    identity: str,
    output: Output,
    *,
    stdin: bool,
    tty: bool,
) -> NativeExec:
    """Raises MonitorFailure and RuntimeFailure."""
    folder = c.folder / "execs"
    folder.mkdir(mode=0o700, exist_ok=True)
    file, pid_file, log = (folder / f"{identity}{end}" for end in (".json", ".pid", ".log"))
    key = f"{c.id}/{identity}"
    command = NativeExec(
        output, lambda: core.monitor.notify("kill", key=key, number=signal.SIGKILL)
    )

    def forget() -> None:
        core.monitor.ignore(key)
        for path in (file, pid_file, log):
            path.unlink(missing_ok=True)

    def on_event(message: dict[str, Any]) -> None:
        code = core.platform.exit_code(request_of(core, c), message["status"], identity)
        forget()
        command.ended(code)

    if not verifies_directory(core.runc.program):
        process = {
            **process,
            "cwd": "/",
        }  # the only one that a container cannot replace
    saved.save_record(file, process)
    core.monitor.listen(key, on_event)
    console = _Console(core, folder, identity) if tty else None
    argv = core.runc.exec(c.id, file, pid_file, log, console.path if console is not None else "")
    theirs = [] if tty else _pipes(command, stdin=stdin, owner=c.first_id)
    try:
        requested = core.monitor.send(
            "exec",
            key=key,
            argv=argv,
            pid_file=str(pid_file),
            runc_log=str(log),
            stdio=not tty,
            descriptors=theirs,
        )
        for fd in theirs:
            os.close(fd)
        if console is not None:
            terminal = await console.terminal(requested)
            if core.platform.raw_terminal:
                leave_to_program(terminal)
            command.use_terminal(terminal, stdin)
        await requested
    except (MonitorFailure, MonitorGone) as problem:
        forget()
        command.fail(problem)
        if isinstance(problem, MonitorGone):
            raise RuntimeFailure("Unavailable", str(problem.strerror)) from problem
        raise
    finally:
        if console is not None:
            console.close()
    return command


def _pipes(command: NativeExec, *, stdin: bool, owner: int) -> list[int]:
    """The remote ends; the local ones are the command's. `owner`: root of the container's user
    namespace, if it has one.
    """
    given, ours = (os.pipe()) if stdin else (os.open(os.devnull, os.O_RDONLY), -1)
    stdout, their_stdout = os.pipe()
    stderr, their_stderr = os.pipe()
    for fd in (their_stdout, their_stderr, *([given] if stdin else ())) if owner else ():
        os.fchown(fd, owner, owner)
    command.use_pipes(ours, stdout, stderr)
    return [given, their_stdout, their_stderr]


class _Console:
    """Where runc sends the terminal that it creates."""

    def __init__(self, core: NativeCore, folder: os.PathLike[str], identity: str) -> None:
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        name = f"{identity[:12]}.sock"
        self._own = f"/proc/self/fd/{self._folder}/{name}"
        whole = os.path.join(folder, name)
        # A full path may be too long for a socket address.
        self.path = (
            whole
            if len(whole) < _LONGEST_ADDRESS
            else f"/proc/{os.getpid()}/fd/{self._folder}/{name}"
        )
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(self._own)
        self._socket.listen(1)
        self._socket.setblocking(False)

    async def terminal(self, requested: asyncio.Future[dict[str, Any]]) -> int:
        """Raises like `asked`, when that ends without a terminal."""
        accepting = asyncio.ensure_future(asyncio.get_running_loop().sock_accept(self._socket))
        both: list[asyncio.Future[Any]] = [accepting, requested]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if requested.done() and requested.exception() is not None:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)
            await requested
        connection, _ = await accepting
        with connection:
            connection.setblocking(True)
            _, descriptors, _, _ = socket.recv_fds(connection, 4096, 1, socket.MSG_CMSG_CLOEXEC)
        if not descriptors:
            raise MonitorFailure("no terminal came")
        return descriptors[0]

    def close(self) -> None:
        self._socket.close()
        with suppress(FileNotFoundError):
            os.unlink(self._own)
        os.close(self._folder)


async def run_extra_process(
    core: NativeCore, c: NativeContainer, process: Spec, seconds: float
) -> ExecResult:
    """An extra process for the platform itself. Raises RuntimeFailure."""
    output = ExecOutput()
    try:
        command = await _start(
            core,
            c,
            process,
            core.new_id(),
            output,
            stdin=False,
            tty=False,
        )
    except MonitorFailure as problem:
        raise RuntimeFailure("Unknown", problem.text) from problem
    return await _result(core, command, output, seconds)


async def exec_sync_native(
    core: NativeCore,
    c: NativeContainer,
    handle: RunningContainer,
    command: Sequence[str],
    seconds: float,
) -> ExecResult:
    output = ExecOutput()
    started = await exec_native(core, c, handle, command, output, stdin=False, tty=False)
    return await _result(core, started, output, seconds)


async def _result(
    core: NativeCore, command: NativeExec, output: ExecOutput, seconds: float
) -> ExecResult:
    waiting = asyncio.ensure_future(command.wait())
    try:
        done, _ = await asyncio.wait([waiting], timeout=seconds or None)
    except asyncio.CancelledError:
        command.close()
        waiting.cancel()
        raise
    if not done:
        command.close()
        waiting.cancel()
        raise core.texts.exec_timeout(seconds)
    return output.result(cri_exit_code(waiting.result()))


# ---- attach ----


async def attach_native(
    core: NativeCore, c: NativeContainer, output: Output, *, stdin: bool
) -> NativeAttach:
    """Raises RuntimeFailure."""
    require_running(core, c)
    try:
        connection = connect_monitor(core.monitor.folder)
    except OSError as problem:
        raise RuntimeFailure(
            "Unavailable", f"the monitor of the containers is gone: {problem}"
        ) from problem
    request = request_of(core, c)
    attachment = NativeAttach(
        connection, output, lambda status: core.platform.exit_code(request, status)
    )
    await attachment.begin(c.id, stdin and c.config.stdin)
    return attachment


# ---- ports ----


async def port_forward_native(core: NativeCore, sandbox: NativeSandbox, port: int) -> socket.socket:
    """Raises RuntimeFailure."""
    if not 0 < port < 65536:
        raise RuntimeFailure("Unknown", f"invalid port {port}")
    if sandbox.state != "ready" or not sandbox.pid:
        raise core.texts.not_running(sandbox.id, "exited")
    namespace = f"/proc/{sandbox.pid}/ns/net"
    loop = asyncio.get_running_loop()
    result: asyncio.Future[socket.socket] = loop.create_future()

    def visit() -> None:
        """In its own thread, which ends afterwards: it never returns to the machine's namespace."""
        try:
            made: socket.socket | OSError = _dial_inside(namespace, port)
        except OSError as problem:
            made = problem
        loop.call_soon_threadsafe(_deliver, result, made)

    threading.Thread(target=visit, name="port-forward", daemon=True).start()
    try:
        connection = await result
    except OSError as problem:
        error_text = (problem.strerror or str(problem)).lower()
        raise RuntimeFailure(
            "Unknown",
            f'failed to execute portforward in network namespace "{namespace}": failed to '
            f"dial {port}: "
            f"dial tcp4 127.0.0.1:{port}: connect: {error_text}",
        ) from problem
    connection.setblocking(False)
    return connection


def _deliver(result: asyncio.Future[socket.socket], made: socket.socket | OSError) -> None:
    if result.done():
        if isinstance(made, socket.socket):
            made.close()
    elif isinstance(made, OSError):
        result.set_exception(made)
    else:
        result.set_result(made)


def _dial_inside(namespace: str, port: int) -> socket.socket:
    fd = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(fd, _NETWORK_NAMESPACE) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    finally:
        os.close(fd)
    problem: OSError | None = None
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.settimeout(_DIAL)
        try:
            connection.connect((address, port))
        except OSError as failure:
            connection.close()
            problem = problem or failure
        else:
            return connection
    raise problem or OSError(0, "no answer")
