"""Commands in running containers: exec, attach, and connections to ports of a sandbox."""

from __future__ import annotations

import asyncio
import posixpath
import socket
import time
from collections.abc import Sequence
from typing import Literal, cast

from transom.runtime.api import ExecResult, Output, RuntimeFailure
from transom.runtime.sim.context import Context
from transom.runtime.sim.core import Core
from transom.runtime.sim.program_api import ProgramContext
from transom.runtime.sim.records import ContainerRecord, SandboxRecord, int32
from transom.runtime.sim.sockets import PAGING_DELAY
from transom.runtime.sim.streams import Client, begin
from transom.runtime.sim.texts import Fault

_CANNOT_EXEC = 126
_KILLED = 137
_LAST_WORDS = 0.1  # seconds for the answer to what was typed last; where runtimes leave it to chance


def execute(
    core: Core, c: ContainerRecord, command: Sequence[str], output: Output, *, stdin: bool = False, tty: bool = False
) -> Client:
    """Raises RuntimeFailure."""
    _demand_running(core, c)

    def signalled(name: str) -> None:
        context.signalled(name)

    client, source = begin(output, stdin=stdin, tty=tty, windows=core.windows, signal=signalled)
    context = Context(
        core, c, tuple(command), sink=client.said, on_exit=lambda ended, code: _ended(c, ended, code), stdin=source,
        terminal=client.terminal, client=client,
    )  # fmt: skip
    c.execs += (context,)
    try:
        context.program = core.start(cast(ProgramContext, context))
    except FileNotFoundError:
        fault: Fault = "not-a-path" if posixpath.dirname(command[0]) else "not-found"
    except (PermissionError, IsADirectoryError):
        fault = "denied"
    except BaseException:
        _leave(c, context)
        context.release()
        raise
    else:
        client.on_close = lambda: _abandoned(c, context)
        client.on_resize = lambda: context.signalled("SIGWINCH") if not core.windows else None
        return client
    _leave(c, context)
    context.release()
    text = core.texts.exec_text(c.id, core.os, fault, command[0])
    if not core.docker:
        raise core.texts.exec_failed(core.new_id(), text)
    client.said("stdout", f"{text}\r\n".encode())  # docker has begun to stream by then
    client.finish(_CANNOT_EXEC)
    return client


def start_delay(core: Core) -> float:
    """Seconds by which a process starts late on a machine that pages."""
    return PAGING_DELAY * (core.host.slowdown() - 1.0)


def _demand_running(core: Core, c: ContainerRecord) -> None:
    if c.state != "running":
        raise core.texts.not_running(c.id, c.state)


def _leave(c: ContainerRecord, context: Context) -> None:
    c.execs = tuple(other for other in c.execs if other is not context)


def _ended(c: ContainerRecord, context: Context, code: int) -> None:
    _leave(c, context)
    if context.client is not None:
        context.client.finish(code)


def _abandoned(c: ContainerRecord, context: Context) -> None:
    """The client has gone."""
    if not context.done:
        _leave(c, context)
        context.kill()
        if context.client is not None:
            context.client.finish(_KILLED)


async def execute_now(core: Core, c: ContainerRecord, command: Sequence[str], seconds: float) -> ExecResult:
    said: dict[str, list[bytes]] = {"stdout": [], "stderr": []}

    def output(stream: Literal["stdout", "stderr"], data: bytes) -> None:
        said[stream].append(data)

    late = start_delay(core)
    if late and 0 < seconds <= late:
        await core.clock.sleep(seconds)
        raise core.texts.exec_timeout(seconds)
    if late:
        await core.clock.sleep(late)
        seconds -= late if seconds > 0 else 0
    client = execute(core, c, command, output)
    if seconds > 0:
        timed_out = False

        def give_up() -> None:
            nonlocal timed_out
            timed_out = True
            client.finish(_KILLED)
            if not core.docker:  # docker leaves the command running
                client.close()

        timer = core.clock.call_later(seconds, give_up)
        try:
            code = await client.wait()
        except asyncio.CancelledError:
            client.close()
            raise
        finally:
            timer.cancel()
        if timed_out:
            raise core.texts.exec_timeout(seconds)
    else:
        code = await client.wait()
    return ExecResult(b"".join(said["stdout"]), b"".join(said["stderr"]), int32(code))


def attach(core: Core, c: ContainerRecord, output: Output, *, stdin: bool = False) -> Client:
    """Raises RuntimeFailure. A container's input outlives whoever typed there, unless it was made for one client only: a
    client that ends its input takes its leave, and soon has no more output either."""
    _demand_running(core, c)
    client = Client(output, c.input if stdin else None, c.terminal)
    once = c.config.stdin_once and c.terminal is None
    c.attached += (client,)

    def gone() -> None:
        c.attached = tuple(other for other in c.attached if other is not client)
        if once and client.input is not None:
            client.input.end()

    def input_ended() -> None:
        if client.input is None:
            return
        if once:
            client.input.end()
        else:
            core.clock.call_later(_LAST_WORDS, leave)

    def leave() -> None:
        client.close()
        client.finish(0)

    def resized() -> None:
        if c.context is not None and not core.windows:
            c.context.signalled("SIGWINCH")

    client.on_close = gone
    client.on_input_end = input_ended
    client.on_resize = resized
    return client


def port_forward(core: Core, sandbox: SandboxRecord, port: int) -> socket.socket:
    """Raises RuntimeFailure."""
    texts = core.texts
    if not 0 < port < 65536:
        raise RuntimeFailure("Unknown", f"invalid port {port}")
    if sandbox.state != "ready" or sandbox.namespace is None:
        raise texts.not_running(sandbox.id, "exited")
    if core.windows and sandbox.image.info.options.get("wincat") != "true":
        text = texts.exec_text(sandbox.id, core.os, "not-found", "wincat.exe")
        raise RuntimeFailure("Unknown", f"{text}: ")
    connection = sandbox.namespace.connect_inside(port)
    if connection is None:
        stamp = time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(core.host.time()))
        raise texts.forward_refused(core.os, sandbox.id, port, stamp)
    return connection
