"""exec, attach and port-forward: the runtime returns the address of its streaming server, which
speaks SPDY.

The sessions are from `kit.streaming`; this module provides the other end: a `Process` of
`runtime.api`, or a socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from transom.http.outgoing import (
    CallError,
    CallTarget,
    OutgoingConnection,
    ResponseHead,
    dial_target,
)
from transom.http.sessions import SessionDriver
from transom.http.upgraded import Upgraded
from transom.kit.http_message import encode_request
from transom.kit.streaming import channels, portforward, remotecommand
from transom.kit.streaming.remotecommand import CommandStreams
from transom.network.api import Dial
from transom.runtime.api import Output, RuntimeFailure

log = logging.getLogger("transom.runtime.cri")

_KILLED: Final = 137  # output for a client that has disconnected
_LONGEST_REFUSAL: Final = 64 * 1024
# How long to wait for a port to be refused. SPDY does not acknowledge a connection, and the
# runtime, which is on this machine, reports a failed one within a few milliseconds.
_REFUSAL_SECONDS: Final = 0.05

# What the streaming server prepends to the runtime's own text; the kubelet prepends it again.
_COMPLAINTS: Final = ("error executing command in container: ", "error attaching to container: ")


async def _upgrade(
    url: str, protocols: Sequence[str], connect: Dial | None
) -> tuple[Upgraded, str]:
    """The connection, and the protocol that the server chose. Raises RuntimeFailure."""
    parts = urlsplit(url)
    host, tls = parts.hostname or "", parts.scheme == "https"
    target = CallTarget(host, parts.port or (443 if tls else 80), host, insecure=True, tls=tls)
    headers = [(b"Host", parts.netloc.encode()), *channels.spdy_request_headers(protocols)]
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    request = encode_request("POST", path, headers)
    try:
        connection = await dial_target(target, connect)
        head = await connection.send(request)
        if head.status != 101:
            raise RuntimeFailure(
                "Unknown", f"unable to upgrade connection: {await _refusal(connection, head)}"
            )
        return Upgraded(connection), head.header(
            channels.PROTOCOL_HEADER.lower().encode()
        ) or protocols[-1]
    except CallError as problem:
        raise RuntimeFailure(
            "Unavailable", f"error dialing the streaming server: {problem}"
        ) from problem


async def _refusal(connection: OutgoingConnection, head: ResponseHead) -> str:
    body = await connection.read_all(_LONGEST_REFUSAL)
    connection.close()
    return body.decode(errors="replace").strip() or f"status code {head.status}"


# ---- commands ----


async def open_command_stream(
    url: str,
    output: Output,
    connect: Dial | None,
    *,
    stdin: bool,
    tty: bool,
    ended: Callable[[], Awaitable[int]] | None = None,
) -> StreamProcess:
    """`ended` returns the exit code of what was attached to; without it the session delivers the
    code.
    """
    streams = CommandStreams(stdin=stdin, stdout=True, stderr=not tty, tty=tty)
    wire, protocol = await _upgrade(url, channels.REMOTE_COMMAND_SPDY, connect)
    return StreamProcess(remotecommand.SpdyCommandClient(streams, protocol), wire, output, ended)


class StreamProcess:
    """`runtime.api.Process`. A client that disconnects does not end the command: CRI has no such
    call.
    """

    def __init__(
        self,
        session: remotecommand.SpdyCommandClient,
        wire: Upgraded,
        output: Output,
        ended: Callable[[], Awaitable[int]] | None,
    ) -> None:
        self._session = session
        self._output = output
        self._ended = ended
        self._held = False
        self._done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._drained = asyncio.Event()
        self._driver = SessionDriver(session, wire, self._react)
        self._driver.on_behind = self._behind
        self._driver.start()

    def write(self, data: bytes) -> None:
        self._session.write(channels.STDIN, data)
        self._driver.send()

    @property
    def input_full(self) -> bool:
        return self._driver.behind

    async def input_drained(self) -> None:
        while self.input_full:
            self._drained.clear()
            await self._drained.wait()

    def _behind(self, behind: bool) -> None:
        if not behind:
            self._drained.set()

    def end_input(self) -> None:
        self._session.end(channels.STDIN)
        self._driver.send()

    def resize(self, width: int, height: int) -> None:
        self._session.resize(width, height)
        self._driver.send()

    def hold(self, held: bool) -> None:
        if held != self._held:
            self._held = held
            if held:
                self._driver.hold()
            else:
                self._driver.release()

    async def wait(self) -> int:
        status = await asyncio.shield(self._done)
        code = channels.exit_code_of_status(status)
        if code is None:
            raise RuntimeFailure("Unknown", _complaint(status))
        return code if self._ended is None else await self._ended()

    def close(self) -> None:
        self._finish(channels.exit_code_status(_KILLED, ""))

    def _react(self, event: remotecommand.Event) -> None:
        match event:
            case remotecommand.CommandData(stream, data):
                self._output(cast(Literal["stdout", "stderr"], stream), data)
                self._session.acknowledge(stream, len(data))
            case remotecommand.CommandFinished(status):
                self._finish(status)
            case remotecommand.CommandClosed(error):
                self._finish(
                    channels.internal_error_status(
                        error or "the connection was closed before the command ended"
                    )
                )

    def _finish(self, status: dict[str, Any]) -> None:
        if not self._done.done():
            self._done.set_result(status)
            self._session.close()
            self._driver.send()


def _complaint(status: dict[str, Any]) -> str:
    causes = (status.get("details") or {}).get("causes") or [{}]
    text = causes[0].get("message") or status.get("message") or "unknown failure"
    for complaint in _COMPLAINTS:
        text = text.removeprefix(complaint)
    return text


# ---- ports ----


async def open_port_forward(
    url: str, sandbox_id: str, port: int, connect: Dial | None
) -> socket.socket:
    """A connection to a port in a sandbox. Raises RuntimeFailure when the runtime refuses it
    immediately.
    """
    wire, _ = await _upgrade(url, channels.PORT_FORWARD_SPDY, connect)
    near, far = socket.socketpair()
    near.setblocking(False)
    bridge = _Bridge(wire, port)
    try:
        await asyncio.get_running_loop().create_connection(lambda: bridge, sock=far)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REFUSAL_SECONDS):
                await bridge.spoken.wait()
        if bridge.failure:
            prefix = f"error forwarding port {port} to pod {sandbox_id}, uid : "
            raise RuntimeFailure("Unknown", bridge.failure.removeprefix(prefix).strip())
    except BaseException:
        bridge.end()
        near.close()
        raise
    return near


class _Bridge(asyncio.Protocol):
    """Our end of the socket pair, connected to the one connection of a session."""

    def __init__(self, wire: Upgraded, port: int) -> None:
        self._transport: Any = None
        self._session = portforward.SpdyForwardClient()
        self._driver = SessionDriver(self._session, wire, self._react)
        self._driver.on_behind = self._behind
        self._connection = -1
        self._port = port
        self.spoken = asyncio.Event()  # the other side has responded, even if with a refusal
        self.failure = ""

    # ---- the socket ----

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._driver.start()
        opened = self._session.open(self._port)
        if opened is None:
            self.failure = "the session takes no connections"
            self.end()
            return
        self._connection = opened
        self._driver.send()

    def data_received(self, data: bytes) -> None:
        self._session.write(self._connection, data)
        self._driver.send()

    def eof_received(self) -> bool:
        self._session.end(self._connection)
        self._driver.send()
        return True  # the other direction stays open

    def connection_lost(self, exc: Exception | None) -> None:
        self.end()

    def pause_writing(self) -> None:
        self._driver.hold()

    def resume_writing(self) -> None:
        self._driver.release()

    # ---- the session ----

    def _react(self, event: portforward.Event) -> None:
        match event:
            case portforward.ForwardData(connection, data):
                self._transport.write(data)
                self._session.acknowledge(connection, len(data))
                self.spoken.set()
            case portforward.ForwardFailed(_, message):
                if self.spoken.is_set():
                    log.warning("a forwarded port failed: %s", message)
                self.failure = message
                self.spoken.set()
            case portforward.ForwardEnded():
                if self._transport.can_write_eof() and not self._transport.is_closing():
                    self._transport.write_eof()
            case portforward.ForwardDisconnected() | portforward.ForwardClosed():
                self.end()

    def end(self) -> None:
        self.spoken.set()
        self._session.close()
        self._driver.send()
        if self._transport is not None:
            self._transport.close()

    def _behind(self, behind: bool) -> None:
        if not self._transport.is_closing():
            if behind:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
