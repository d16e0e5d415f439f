"""Commands in running containers: exec, attach, and connections to ports of a sandbox."""

from __future__ import annotations

import asyncio
import posixpath
import socket
import time
from collections.abc import Sequence

from transom.runtime.api import ExecResult, Output, RuntimeFailure
from transom.runtime.exec_output import ExecOutput
from transom.runtime.records import cri_exit_code
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.records import ContainerProgram, SimContainer, SimSandbox
from transom.runtime.sim.sockets import PAGING_DELAY
from transom.runtime.sim.streams import ExecClient, begin_program
from transom.runtime.sim.texts import Fault
from transom.userland.termination import DOTNET, LINUX_KILLED

_CANNOT_EXEC = 126
_LAST_WORDS = (
    0.1  # seconds to wait for output after the end of the input; undefined in real runtimes
)


def exec_sim(
    core: SimCore,
    c: SimContainer,
    command: Sequence[str],
    output: Output,
    *,
    stdin: bool = False,
    tty: bool = False,
) -> ExecClient:
    """Raises RuntimeFailure."""
    _require_running(core, c)

    def signalled(name: str) -> None:
        context.signalled(name)

    client, source = begin_program(
        output, stdin=stdin, tty=tty, windows=core.windows, signal=signalled
    )
    context = core.create_program(
        core,
        c,
        tuple(command),
        sink=client.write_output,
        on_exit=lambda ended, code: _ended(c, ended, code),
        stdin=source,
        pty=client.terminal,
        client=client,
    )
    c.execs += (context,)
    try:
        context.program = context.start(context)
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
    client.write_output("stdout", f"{text}\r\n".encode())  # docker has begun to stream by then
    client.finish(_CANNOT_EXEC)
    return client


def start_delay(core: SimCore) -> float:
    """The delay in seconds before a process starts on a machine that is swapping."""
    return PAGING_DELAY * (core.host.slowdown() - 1.0)


def _require_running(core: SimCore, c: SimContainer) -> None:
    if c.state != "running":
        raise core.texts.not_running(c.id, c.state)


def _leave(c: SimContainer, context: ContainerProgram) -> None:
    c.execs = tuple(other for other in c.execs if other is not context)


def _ended(c: SimContainer, context: ContainerProgram, code: int) -> None:
    _leave(c, context)
    if context.client is not None:
        context.client.finish(cri_exit_code(code))


def _ended_with(os: str) -> int:
    """The exit code of a command that the runtime ends."""
    return cri_exit_code(DOTNET) if os == "windows" else LINUX_KILLED


def _abandoned(c: SimContainer, context: ContainerProgram) -> None:
    """The client has disconnected."""
    if not context.done:
        _leave(c, context)
        context.kill()
        if context.client is not None:
            context.client.finish(_ended_with(context.os))


async def exec_sync_sim(
    core: SimCore, c: SimContainer, command: Sequence[str], seconds: float
) -> ExecResult:
    output = ExecOutput()
    late = start_delay(core)
    if late and 0 < seconds <= late:
        await core.clock.sleep(seconds)
        raise core.texts.exec_timeout(seconds)
    if late:
        await core.clock.sleep(late)
        seconds -= late if seconds > 0 else 0
    client = exec_sim(core, c, command, output)
    if seconds > 0:
        timed_out = False

        def give_up() -> None:
            nonlocal timed_out
            timed_out = True
            client.finish(_ended_with(core.os))
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
    return output.result(cri_exit_code(code))


def attach_sim(
    core: SimCore, c: SimContainer, output: Output, *, stdin: bool = False
) -> ExecClient:
    """Raises RuntimeFailure. A container's input outlives the client, unless stdinOnce is set: a
    client that closes its input detaches, and soon receives no more output either.
    """
    _require_running(core, c)
    client = ExecClient(output, c.input if stdin else None, c.terminal)
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


def port_forward_sim(core: SimCore, sandbox: SimSandbox, port: int) -> socket.socket:
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
