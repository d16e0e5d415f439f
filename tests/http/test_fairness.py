"""One connection does not keep the event loop from the others."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter

import pytest
import uvloop

from transom.http import HttpRequest, HttpResponse, HttpServer, connection, server

BODY = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 150_000


class CountedConnection(connection.HttpConnection):
    """Counts its reads in each turn of the loop."""

    turn = 0
    reads: Counter[int] = Counter()

    def data_received(self, data: bytes) -> None:
        CountedConnection.reads[CountedConnection.turn] += 1
        super().data_received(data)


def _count_turns() -> None:
    CountedConnection.turn += 1
    asyncio.get_running_loop().call_soon(_count_turns)


async def _answer(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, [], b"%d" % len(request.body))


async def _send_tiny_chunks() -> None:
    """Most of the body has arrived before the loop reads any of it."""
    serving = HttpServer(_answer, None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
    client.setblocking(False)
    accepted.setblocking(False)
    with client:
        rest = memoryview(BODY + b"0\r\n\r\n")[client.send(BODY) :]
        _count_turns()
        await serving.adopt(accepted)
        await asyncio.get_running_loop().sock_sendall(client, rest)
        answer = await asyncio.get_running_loop().sock_recv(client, 1000)
        assert answer.startswith(b"HTTP/1.1 200 OK") and answer.endswith(b"150000")
    await serving.stop(1.0)


def test_a_slow_read_gives_other_connections_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HttpConnection", CountedConnection)
    monkeypatch.setattr(connection, "_LONG_READ", -1.0)  # every read is one
    CountedConnection.reads.clear()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_send_tiny_chunks())
    assert set(CountedConnection.reads.values()) == {1}, CountedConnection.reads
