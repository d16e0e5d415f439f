"""The gRPC channel for busy servers, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.http.fakegrpc import Handler, Raw, Refusal, Server

from transom.http.grpc_channel import GrpcChannel
from transom.kit.rpc import RpcError

OK = [(":status", "200"), ("content-type", "application/grpc")]


async def _echo(path: str, message: bytes) -> bytes:
    return path.encode() + b" " + message


@asynccontextmanager
async def start(
    folder: Path, handler: Handler = _echo, most_streams: int = 0
) -> AsyncIterator[tuple[GrpcChannel, Server]]:
    server = Server(handler, most_streams)
    async with asyncio.timeout(20), server.listening(folder / "s"):
        channel = GrpcChannel("localhost")
        await asyncio.get_running_loop().create_unix_connection(lambda: channel, str(folder / "s"))
        await channel.greeted()
        yield (channel, server)
        channel.close()


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


async def failure(call: Awaitable[bytes]) -> RpcError:
    with pytest.raises(RpcError) as failed:
        await call
    return failed.value


async def test_calls_share_a_connection(tmp_path: Path) -> None:
    async with start(tmp_path) as (channel, server):
        answers = await asyncio.gather(
            *(channel.call("/a.B/C", b"%d" % n, 5, (("token", "t"),)) for n in range(100))
        )
        assert answers == [b"/a.B/C %d" % n for n in range(100)]
        assert len(server.connections) == 1
        first = server.headers[0]
        assert (first[":method"], first["te"], first["token"]) == ("POST", "trailers", "t")


async def test_large_messages_respect_the_windows_of_both_sides(tmp_path: Path) -> None:
    async with start(tmp_path) as (channel, _server):
        # Far more than the server's window of 64 KB; the first, which is 10 MB, also more than our
        # half a window of 16 MiB, after which the channel grants the server more.
        messages = [bytes(range(256)) * (40_000 if first else 2_000) for first in (True, False)]
        answers = await asyncio.gather(*(channel.call("/a.B/C", m, 60) for m in messages))
        assert answers == [b"/a.B/C " + message for message in messages]


async def test_no_more_streams_than_the_server_allows(tmp_path: Path) -> None:
    async def slow(path: str, message: bytes) -> bytes:
        await asyncio.sleep(0)
        return message

    async with start(tmp_path, slow, most_streams=2) as (channel, server):
        await channel.call("/a.B/C", b"", 5)  # the settings have arrived
        await asyncio.gather(*(channel.call("/a.B/C", b"", 5) for _ in range(20)))
        assert server.most_active <= 2


async def test_errors_of_the_server(tmp_path: Path) -> None:
    async def refuse(path: str, message: bytes) -> bytes:
        if message == b"raw":
            raise Raw([(":status", "503")])
        if message == b"cut":
            raise Raw(OK, b"\0\0\0\0\x09abc", [("grpc-status", "0")])
        raise Refusal("Unavailable", "etcdserver: leader changed")

    async with start(tmp_path, refuse) as (channel, _server):
        refused = await failure(channel.call("/a.B/C", b"", 5))
        assert (refused.code, refused.description) == ("Unavailable", "etcdserver: leader changed")
        assert (await failure(channel.call("/a.B/C", b"raw", 5))).code == "Unknown"
        assert (await failure(channel.call("/a.B/C", b"cut", 5))).code == "Internal"
        assert channel.usable


async def test_a_deadline_cancels_the_call_on_the_server(tmp_path: Path) -> None:
    async def never(path: str, message: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with start(tmp_path, never) as (channel, server):
        late = await failure(channel.call("/a.B/C", b"", 0.01))
        assert late.code == "DeadlineExceeded"
        call = asyncio.create_task(channel.call("/a.B/C", b"", 5))
        await until(lambda: len(server.headers) == 2)
        call.cancel()
        await until(lambda: len(server.resets) == 2)


async def test_a_lost_connection_fails_calls_and_streams(tmp_path: Path) -> None:
    async def never(path: str, message: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with start(tmp_path, never) as (channel, server):
        ended: asyncio.Future[RpcError] = asyncio.get_running_loop().create_future()
        channel.open_stream("/a.B/Watch", lambda message: None, ended.set_result)
        call = asyncio.create_task(channel.call("/a.B/C", b"", 5))
        await until(lambda: len(server.headers) == 2)
        server.drop()
        assert (await failure(call)).code == "Unavailable"
        assert (await ended).code == "Unavailable"
        assert not channel.usable
        assert (await failure(channel.call("/a.B/C", b"", 5))).code == "Unavailable"


async def test_a_server_that_goes_away_finishes_its_calls(tmp_path: Path) -> None:
    async with start(tmp_path) as (channel, server):
        await channel.call("/a.B/C", b"", 5)
        server.connections[0].go_away()
        await until(lambda: not channel.usable)
        assert (await failure(channel.call("/a.B/C", b"", 5))).code == "Unavailable"


async def test_a_server_that_answers_no_ping_is_given_up(tmp_path: Path) -> None:
    async with start(tmp_path) as (channel, _server):
        assert channel.ping()
        await channel.call("/a.B/C", b"", 5)  # the answer to the ping was before this one
        assert channel.ping()
        assert not channel.ping()
        assert not channel.usable
