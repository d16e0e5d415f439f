"""Calls over a real socket, against a server that keeps the rules and one that does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.http.fakegrpc import Handler, Raw, Refusal, Server

from transom.http import grpc
from transom.http.grpc import GrpcConnection
from transom.kit.rpc import RpcError
from transom.runtime.cri import address

OK = [(":status", "200"), ("content-type", "application/grpc")]


async def _echo(path: str, message: bytes) -> bytes:
    return path.encode() + b" " + message


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to be")


@asynccontextmanager
async def start(
    folder: Path, handler: Handler = _echo, most_streams: int = 0
) -> AsyncIterator[tuple[GrpcConnection, Server]]:
    server = Server(handler, most_streams)
    async with asyncio.timeout(20), server.listening(folder / "s") as endpoint:
        connection = await address.connect_runtime(
            address.parse_runtime_endpoint(endpoint), GrpcConnection
        )
        yield (connection, server)
        connection.close()


async def test_a_call(tmp_path: Path) -> None:
    async with start(tmp_path) as (connection, server):
        assert await connection.call("/a.B/C", b"x") == b"/a.B/C x"
        assert await connection.call("/a.B/C", b"x", 1.5) == b"/a.B/C x"
        first, second = server.headers
        assert (first["te"], first["content-type"], "grpc-timeout" in first) == (
            "trailers",
            "application/grpc",
            False,
        )
        assert second["grpc-timeout"] == "1500m"


async def test_many_calls_at_once_and_more_than_windows_hold(tmp_path: Path) -> None:
    async with start(tmp_path) as (connection, _server):
        sizes = [0, 1, 70_000, 500_000, 2_000_000]
        answers = await asyncio.gather(
            *(connection.call("/x", bytes([n]) * size) for n, size in enumerate(sizes))
        )
        assert answers == [b"/x " + bytes([n]) * size for n, size in enumerate(sizes)]


async def test_a_server_that_wants_few_calls_at_once(tmp_path: Path) -> None:
    async def slow(path: str, message: bytes) -> bytes:
        await asyncio.sleep(0.01)
        return message

    async with start(tmp_path, slow, most_streams=2) as (connection, server):
        await connection.call("/x", b"so that the settings are there")
        answers = await asyncio.gather(*(connection.call("/x", bytes([n])) for n in range(10)))
        assert answers == [bytes([n]) for n in range(10)]
        assert server.most_active == 2


REFUSALS: dict[str, tuple[Exception, str, str]] = {
    "a status": (Refusal("NotFound", "no “x”: 100%"), "NotFound", "no “x”: 100%"),
    "a status of the future": (Raw([*OK, ("grpc-status", "77")]), "Code(77)", ""),
    "no trailers": (
        Raw(OK, b"\0\0\0\0\0"),
        "Internal",
        "server closed the stream without sending trailers",
    ),
    "no gRPC": (
        Raw([(":status", "503")]),
        "Unknown",
        "unexpected HTTP status code received from server: 503",
    ),
    "no such path": (
        Raw([(":status", "404")]),
        "Unimplemented",
        "unexpected HTTP status code received from server: 404",
    ),
    "half a message": (
        Raw(OK, b"\0\0\0\0\5abc", [("grpc-status", "0")]),
        "Internal",
        "unexpected EOF",
    ),
    "compressed": (
        Raw([*OK, ("grpc-encoding", "gzip")], b"\1\0\0\0\1x", [("grpc-status", "0")]),
        "Unimplemented",
        'grpc: Decompressor is not installed for grpc-encoding "gzip"',
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_refusals(tmp_path: Path, case: str) -> None:
    printed, code, text = REFUSALS[case]

    async def handler(path: str, message: bytes) -> bytes:
        raise printed

    async with start(tmp_path, handler) as (connection, _server):
        with pytest.raises(RpcError) as failure:
            await connection.call("/x", b"")
        assert (failure.value.code, failure.value.description) == (code, text)


async def test_an_answer_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc, "LARGEST", 100_000)

    async with start(tmp_path) as (connection, _server):
        with pytest.raises(
            RpcError, match=r"ResourceExhausted.*larger than max \(200003 vs. 100000\)"
        ):
            await connection.call("/x", bytes(200_000))
        assert await connection.call("/x", b"y") == b"/x y"


async def test_a_call_that_is_broken_off(tmp_path: Path) -> None:
    async with start(tmp_path) as (connection, server):
        server.resets_at_once = True
        with pytest.raises(
            RpcError, match=r"Internal.*RST_STREAM with error code: ENHANCE_YOUR_CALM"
        ):
            await connection.call("/x", bytes(200_000))
        server.resets_at_once = False
        assert await connection.call("/x", b"y") == b"/x y"


async def test_deadlines_and_cancelled_calls(tmp_path: Path) -> None:
    async def never(path: str, message: bytes) -> bytes:
        await asyncio.sleep(60)
        return b""

    async with start(tmp_path, never) as (connection, server):
        with pytest.raises(RpcError) as late:
            await connection.call("/x", b"", 0.05)
        assert (
            str(late.value) == "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
        )
        await until(lambda: server.resets == [1])
        calling = asyncio.create_task(connection.call("/x", b""))
        await until(lambda: server.active == 1)
        calling.cancel()
        await until(lambda: server.resets == [1, 3])
        assert connection.usable


async def test_a_server_that_goes(tmp_path: Path) -> None:
    reached = asyncio.Event()
    go_on = asyncio.Event()

    async def slow(path: str, message: bytes) -> bytes:
        reached.set()
        await go_on.wait()
        return b"done"

    async with start(tmp_path, slow) as (connection, server):
        calling = asyncio.create_task(connection.call("/x", b""))
        await reached.wait()
        server.connections[0].transport.abort()
        with pytest.raises(RpcError, match="code = Unavailable desc = transport is closing"):
            await calling
        assert not connection.usable
        with pytest.raises(RpcError, match="Unavailable"):
            await connection.call("/x", b"")


async def test_a_server_that_takes_its_leave(tmp_path: Path) -> None:
    async with start(tmp_path) as (connection, server):
        assert await connection.call("/x", b"") == b"/x "
        server.connections[0].go_away()
        await until(lambda: not connection.usable)
        with pytest.raises(RpcError, match="Unavailable"):
            await connection.call("/x", b"")


async def test_numbers_of_calls_come_to_an_end(tmp_path: Path) -> None:
    async with start(tmp_path) as (connection, _server):
        connection._h2.highest_outbound_stream_id = 2**31 - 1
        with pytest.raises(RpcError, match="Unavailable"):
            await connection.call("/x", b"")
        assert not connection.usable


async def test_something_else_listens(tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_unix_server(talk, str(tmp_path / "s"))
    async with asyncio.timeout(10), server:
        connection = await address.connect_runtime(
            address.parse_runtime_endpoint(f"unix://{tmp_path}/s"), GrpcConnection
        )
        with pytest.raises(RpcError, match=r"the server does not speak HTTP/2: b'HTTP/1\.1 400"):
            await connection.call("/x", b"")
