"""Commands and ports through a streaming server, against one in this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from transom.kit.streaming import channels, portforward, remotecommand, upgrade
from transom.kit.streaming.remotecommand import CommandStreams
from transom.runtime.api import RuntimeFailure
from transom.runtime.cri import streams

React = Callable[[Any, Any], None]
"""A session and an event of it."""


@asynccontextmanager
async def serving(
    react: React, wanted: CommandStreams | None = None, refusal: bytes = b""
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """The address of a server of commands, or of ports when there are no streams, and the heads of
    requests to it.
    """
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        lines = [line.partition(": ") for line in heads[-1].decode().split("\r\n")[1:-2]]
        headers: dict[str, str] = {}
        for name, _, value in lines:
            headers[name.lower()] = (
                f"{headers[name.lower()]}, {value}" if name.lower() in headers else value
            )
        accepted: Any = (
            upgrade.accept_command("POST", headers, wanted)
            if wanted
            else upgrade.accept_forward("POST", headers)
        )
        if refusal:
            writer.write(refusal)
        else:
            answer = b"".join(b"%b: %b\r\n" % line for line in accepted.headers)
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\n" + answer + b"\r\n")
            with contextlib.suppress(ConnectionError):  # a test's way to break off
                await _drive(accepted.session, reader, writer, react)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with asyncio.timeout(20), server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/exec/token?x=y", heads


async def _drive(
    session: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, react: React
) -> None:
    events = session.start()
    while True:
        for event in events:
            react(session, event)
        writer.write(session.data_to_send())
        if session.done:
            return
        data = await reader.read(65536)
        events = session.receive_data(data) if data else session.receive_eof()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


# ---- commands ----


async def test_a_command() -> None:
    def react(session: Any, event: Any) -> None:
        match event:
            case remotecommand.CommandData(_, data):
                session.write("stdout", data.upper())
                session.write("stderr", b"!")
            case remotecommand.CommandStreamEnded("stdin"):
                session.finish(channels.exit_code_status(7, "x"))

    printed: dict[str, bytes] = {"stdout": b"", "stderr": b""}

    def output(stream: str, data: bytes) -> None:
        printed[stream] += data

    async with serving(react, CommandStreams(True, True, True)) as (url, heads):
        process = await streams.open_command_stream(url, output, None, stdin=True, tty=False)
        process.write(b"some ")
        process.write(b"text")
        process.end_input()
        assert await process.wait() == 7
        assert await process.wait() == 7
        assert printed["stdout"] == b"SOME TEXT"
        assert printed["stderr"].strip(b"!") == b""
        assert heads[0].startswith(b"POST /exec/token?x=y HTTP/1.1\r\nHost: 127.0.0.1:")
        process.close()


async def test_a_terminal_and_its_size() -> None:
    def react(session: Any, event: Any) -> None:
        if isinstance(event, remotecommand.CommandResized):
            session.write("stdout", f"{event.width}x{event.height}".encode())
            session.finish(channels.command_success_status())

    printed: list[tuple[str, bytes]] = []
    async with serving(react, CommandStreams(True, True, False, True)) as (url, _):
        process = await streams.open_command_stream(
            url, lambda *what: printed.append(what), None, stdin=True, tty=True
        )
        process.resize(80, 24)
        assert await process.wait() == 0
        assert printed == [("stdout", b"80x24")]


@pytest.mark.parametrize(
    ("complaint", "text"),
    [
        (
            "error executing command in container: failed to exec in container: no",
            "failed to exec in container: no",
        ),
        ("error attaching to container: gone", "gone"),
        ("something else", "something else"),
    ],
)
async def test_a_command_that_never_ran(complaint: str, text: str) -> None:
    def react(session: Any, event: Any) -> None:
        if isinstance(event, remotecommand.CommandOpened):
            session.finish(channels.internal_error_status(complaint))

    async with serving(react, CommandStreams(False, True, True)) as (url, _):
        process = await streams.open_command_stream(
            url, lambda stream, data: None, None, stdin=False, tty=False
        )
        with pytest.raises(RuntimeFailure) as failure:
            await process.wait()
        assert failure.value.description == text


async def test_a_server_that_breaks_off() -> None:
    def react(session: Any, event: Any) -> None:
        if isinstance(event, remotecommand.CommandOpened):
            raise ConnectionError

    async with serving(react, CommandStreams(False, True, True)) as (url, _):
        process = await streams.open_command_stream(
            url, lambda stream, data: None, None, stdin=False, tty=False
        )
        with pytest.raises(
            RuntimeFailure, match="the connection was lost before the command ended"
        ):
            await process.wait()


async def test_a_client_that_goes_and_what_was_attached_to() -> None:
    gone = asyncio.Event()

    def react(session: Any, event: Any) -> None:
        if isinstance(event, remotecommand.CommandClosed):
            gone.set()
        elif isinstance(event, remotecommand.CommandData):
            session.finish(channels.command_success_status())

    async def ended() -> int:
        return 42

    async with serving(react, CommandStreams(True, True, True)) as (url, _):
        process = await streams.open_command_stream(
            url, lambda stream, data: None, None, stdin=True, tty=False
        )
        process.close()
        assert await process.wait() == 137
        await gone.wait()
        process = await streams.open_command_stream(
            url, lambda stream, data: None, None, stdin=True, tty=False, ended=ended
        )
        process.write(b"end")
        assert await process.wait() == 42


async def test_no_way_to_the_server() -> None:
    async def nowhere(host: str, port: int) -> socket.socket:
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(
        RuntimeFailure,
        match=r"Unavailable.*dial tcp 127\.0\.0\.1:1: connect: connection refused",
    ):
        await streams.open_command_stream(
            "http://127.0.0.1:1/x", lambda stream, data: None, nowhere, stdin=False, tty=False
        )
    body = b"HTTP/1.1 404 Not Found\r\nContent-Length: 14\r\n\r\ntoken expired\n"
    async with serving(lambda session, event: None, CommandStreams(False, True, True), body) as (
        url,
        _,
    ):
        with pytest.raises(RuntimeFailure) as failure:
            await streams.open_command_stream(
                url, lambda stream, data: None, None, stdin=False, tty=False
            )
        assert failure.value.description == "unable to upgrade connection: token expired"


# ---- ports ----


async def test_a_port() -> None:
    def react(session: Any, event: Any) -> None:
        match event:
            case portforward.ForwardConnected(connection, port):
                session.write(connection, str(port).encode())
            case portforward.ForwardData(connection, data):
                session.write(connection, data)
            case portforward.ForwardEnded(connection):
                session.disconnect(connection)

    loop = asyncio.get_running_loop()
    async with serving(react) as (url, _):
        connection = await streams.open_port_forward(url, "s", 8080, None)
        payload = os.urandom(1 << 20)

        async def send() -> None:
            await loop.sock_sendall(connection, payload)
            connection.shutdown(socket.SHUT_WR)

        sending = asyncio.create_task(send())
        came = b""
        while piece := await loop.sock_recv(connection, 1 << 16):
            came += piece
        await sending
        assert came == b"8080" + payload
        connection.close()


async def test_a_port_without_listener() -> None:
    def react(session: Any, event: Any) -> None:
        if isinstance(event, portforward.ForwardConnected):
            session.fail(
                event.connection, "error forwarding port 81 to pod s, uid : connection refused "
            )
            session.disconnect(event.connection)

    async with serving(react) as (url, _):
        with pytest.raises(RuntimeFailure) as failure:
            await streams.open_port_forward(url, "s", 81, None)
        assert failure.value.description == "connection refused"


async def test_a_quiet_port_is_handed_out_and_ends_with_its_server() -> None:
    def react(session: Any, event: Any) -> None:
        if isinstance(event, portforward.ForwardData):
            session.disconnect(event.connection)

    loop = asyncio.get_running_loop()
    async with serving(react) as (url, _):
        connection = await streams.open_port_forward(url, "s", 81, None)
        await loop.sock_sendall(connection, b"go")
        assert await loop.sock_recv(connection, 100) == b""
        connection.close()
