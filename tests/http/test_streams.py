from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from transom.http import (
    HttpLimits,
    HttpRequest,
    HttpResponse,
    RawConnection,
    Stream,
    StreamResponse,
    UpgradeResponse,
    encode_chunk,
)
from transom.http.budget import BudgetLimits, ByteBudget

FAST = {"tick": 0.02, "linger": 1.0}
JSON = [(b"Content-Type", b"application/json")]


class Watches:
    """A handler that streams under /watch and keeps its streams."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.closed = threading.Event()
        self.opened = threading.Event()

    def __call__(self, request: HttpRequest) -> Any:
        if request.path != "/watch":
            return HttpResponse(200, JSON, b"plain")
        return StreamResponse(200, JSON, self.start)

    def start(self, stream: Stream) -> None:
        stream.on_close = self.closed.set
        self.streams.append(stream)
        self.opened.set()


def test_stream_then_next_request_on_the_same_connection(serve: Callable[..., Any]) -> None:
    watches = Watches()
    running = serve(watches)
    client = running.connect().get("/watch").get("/next")
    assert client.head()[1]["transfer-encoding"] == "chunked"
    stream = watches.streams[0]

    def events() -> None:
        stream.write(b"one\n")
        stream.write(b"")
        stream.write_framed(encode_chunk(b"two\n") + encode_chunk(b"three\n"))

    running.call(events)
    assert [client.chunk() for _ in range(3)] == [b"one\n", b"two\n", b"three\n"]
    running.call(stream.close)
    assert client.chunk() == b""
    assert client.answer()[2] == b"plain"
    assert not watches.closed.is_set()
    assert not stream.alive


def test_writes_before_close_are_not_lost(serve: Callable[..., Any]) -> None:
    def start(stream: Stream) -> None:
        for i in range(3):
            stream.write(b"%d" % i)
        stream.write(b"last")
        stream.close()

    client = serve(lambda r: StreamResponse(200, JSON, start)).connect()
    client.get().get()
    for _ in range(2):
        client.head()
        assert [client.chunk() for _ in range(5)] == [b"0", b"1", b"2", b"last", b""]


def test_stream_to_http_10_is_plain_and_ends_with_the_connection(serve: Callable[..., Any]) -> None:
    def start(stream: Stream) -> None:
        stream.write(b"one")
        stream.write_framed(encode_chunk(b"two") + encode_chunk(b"three"))
        stream.close()

    client = serve(lambda r: StreamResponse(200, JSON, start)).connect()
    client.send(b"GET / HTTP/1.0\r\n\r\n")
    assert "transfer-encoding" not in client.head()[1]
    assert client.exactly(11) == b"onetwothree"
    assert client.at_end()


@pytest.mark.parametrize("secure", [False, True])
def test_slow_watcher_is_dropped_and_the_others_are_not(
    serve: Callable[..., Any], tls: Any, secure: bool
) -> None:
    watches = Watches()
    running = serve(
        watches, HttpLimits(stream_buffer=1_000_000, **FAST), tls.server if secure else None
    )
    slow, good = (running.connect(tls.client if secure else None).get("/watch") for _ in range(2))
    good.head()
    slow.head()
    event = encode_chunk(b"x" * 100_000)
    seen = 0
    while not watches.closed.is_set():
        for stream in watches.streams:
            running.call(stream.write_framed, event)
        assert len(good.chunk()) == 100_000
        seen += 1
        assert seen < 1000
    assert sorted(stream.alive for stream in watches.streams) == [False, True]


class Numbers:
    """A source of large chunks that remembers how many were taken."""

    def __init__(self, count: int, size: int = 60_000) -> None:
        self.count, self.size, self.taken = count, size, 0
        self.done = threading.Event()

    def read(self, size: int) -> list[bytes | memoryview] | None:
        if self.taken == self.count:
            self.done.set()
            return None
        self.taken += 1
        if self.taken % 7 == 0:
            data = b"%06d" % self.taken * (self.size // 6)
            return [
                b"%x\r\n" % len(data),
                memoryview(data),
                b"\r\n",
            ]  # in parts, as large objects are
        return (
            [] if self.taken % 5 == 0 else [encode_chunk(b"%06d" % self.taken * (self.size // 6))]
        )


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("size", [600, 60_000, 3_000_000])
def test_a_source_is_read_as_the_client_reads(
    serve: Callable[..., Any], tls: Any, secure: bool, size: int
) -> None:
    source = Numbers(300 if size < 1_000_000 else 20, size)

    def start(stream: Stream) -> None:
        stream.write(b"before")
        stream.follow(source)

    running = serve(
        lambda r: StreamResponse(200, JSON, start),
        HttpLimits(**FAST),
        tls.server if secure else None,
    )
    client = running.connect(tls.client if secure else None)
    client.get()
    client.head()
    assert client.chunk() == b"before"
    wanted = [b"%06d" % i for i in range(1, source.count + 1) if i % 5 or not i % 7]
    assert [client.chunk()[:6] for _ in wanted] == wanted


def test_a_client_that_does_not_read_gets_no_more_than_a_window_ahead(
    serve: Callable[..., Any],
) -> None:
    source = Numbers(10_000)
    streams: list[Stream] = []

    def start(stream: Stream) -> None:
        streams.append(stream)
        stream.follow(source)

    running = serve(lambda r: StreamResponse(200, JSON, start), HttpLimits(unsent=65536, **FAST))
    client = running.connect()
    client.get()
    client.head()
    taken = -1
    while taken != source.taken:
        taken = source.taken
        assert not source.done.wait(0.2)
    assert running.call(lambda: streams[0].buffered) < 400_000
    assert running.call(lambda: running.server.budget.total) < 400_000
    assert not running.call(streams[0].offer, encode_chunk(b"live"))
    client.close()


@pytest.mark.parametrize("resumable", [False, True])
def test_a_stream_that_is_not_read_is_closed_in_time(
    serve: Callable[..., Any], resumable: bool
) -> None:
    closed = threading.Event()

    def start(stream: Stream) -> None:
        stream.on_close = closed.set
        stream.follow(Numbers(10_000))

    limits = HttpLimits(stall_timeout=0.3, stream_stall_timeout=60, **FAST)
    running = serve(lambda r: StreamResponse(200, JSON, start, resumable=resumable), limits)
    client = running.connect()
    client.get()
    assert closed.wait(5 if resumable else 1) is resumable
    if resumable:
        assert running.call(lambda: running.server.connections) == 0
        assert running.server.budget.total == 0


def test_a_stream_that_is_read_slowly_continues(serve: Callable[..., Any]) -> None:
    closed = threading.Event()
    source = Numbers(1000)

    def start(stream: Stream) -> None:
        stream.on_close = closed.set
        stream.follow(source)

    limits = HttpLimits(stall_timeout=2, unsent=65536, **FAST)
    running = serve(lambda r: StreamResponse(200, JSON, start, resumable=True), limits)
    client = running.connect()
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    client.get()
    client.head()
    for _ in range(20):  # three seconds: longer than the time-out, and far from the end
        client.exactly(30_000)
        assert not closed.wait(0.15)
    assert not source.done.is_set()


def test_the_budget_of_the_server_closes_the_longest_stalled(serve: Callable[..., Any]) -> None:
    closed = [threading.Event() for _ in range(4)]

    def handler(request: HttpRequest) -> Any:
        def start(stream: Stream) -> None:
            stream.on_close = closed[int(request.path[1:])].set
            stream.follow(Numbers(10_000))

        return StreamResponse(200, JSON, start, resumable=True)

    limits = HttpLimits(unsent=65536, **FAST)
    running = serve(handler, limits, budget=ByteBudget(BudgetLimits(server=150_000, patience=0.2)))
    for number in range(4):
        running.connect().get(f"/{number}").head()
        closed[0].wait(0.1)
    assert closed[0].wait(10)
    assert not closed[3].is_set()


def test_stream_hears_that_its_client_left(serve: Callable[..., Any]) -> None:
    watches = Watches()
    running = serve(watches)
    client = running.connect().get("/watch")
    client.head()
    client.close()
    assert watches.closed.wait(10)
    assert not watches.streams[0].alive
    running.call(watches.streams[0].write, b"into the void")


def test_failing_start_drops_only_its_connection(serve: Callable[..., Any]) -> None:
    def start(stream: Stream) -> None:
        raise RuntimeError("no")

    running = serve(
        lambda r: (
            StreamResponse(200, JSON, start) if r.path == "/w" else HttpResponse(200, [], b"ok")
        )
    )
    client = running.connect().get("/w")
    client.head()
    assert client.at_end()
    assert running.connect().get().answer()[2] == b"ok"


UPGRADE = ("Connection: Upgrade", "Upgrade: SPDY/3.1")
SWITCHED = [(b"Connection", b"Upgrade"), (b"Upgrade", b"SPDY/3.1")]


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("later", [False, True])
def test_upgrade_keeps_early_bytes(
    serve: Callable[..., Any], tls: Any, secure: bool, later: bool
) -> None:
    def start(raw: RawConnection) -> None:
        raw.receive(lambda data: raw.write(data.upper()))

    def handler(request: HttpRequest) -> Any:
        async def wait() -> UpgradeResponse:
            await asyncio.sleep(0.01)
            return UpgradeResponse(SWITCHED, start)

        return wait() if later else UpgradeResponse(SWITCHED, start)

    client = serve(handler, context=tls.server if secure else None).connect(
        tls.client if secure else None
    )
    client.send("\r\n".join(["POST /exec HTTP/1.1", "Host: h", *UPGRADE, "", "early,"]).encode())
    client.send(b"second,")
    status, headers = client.head()
    assert (status, headers["upgrade"]) == (101, "SPDY/3.1")
    client.send(b"third")
    assert client.exactly(18) == b"EARLY,SECOND,THIRD"


def test_upgrade_reads_little_until_someone_receives(serve: Callable[..., Any]) -> None:
    raws: list[RawConnection] = []
    running = serve(lambda r: UpgradeResponse(SWITCHED, raws.append))
    client = running.connect().get("/", *UPGRADE)
    client.head()
    sender = threading.Thread(target=client.send, args=(b"x" * 20_000_000,))
    sender.start()
    sender.join(0.3)
    assert sender.is_alive()
    total = 0
    done = threading.Event()

    def count(data: bytes) -> None:
        nonlocal total
        total += len(data)
        if total == 20_000_000:
            done.set()

    running.call(raws[0].receive, count)
    assert done.wait(20)
    sender.join()


def test_upgrade_that_is_refused_leaves_an_ordinary_connection(serve: Callable[..., Any]) -> None:
    client = serve(lambda r: HttpResponse(200, [], r.path.encode())).connect()
    client.get("/h2c", "Connection: Upgrade", "Upgrade: h2c").get("/next")
    assert [client.answer()[2] for _ in range(2)] == [b"/h2c", b"/next"]
    client.get("/more")
    assert client.answer()[2] == b"/more"


def test_raw_connection_hears_the_end(serve: Callable[..., Any]) -> None:
    closed = threading.Event()

    def start(raw: RawConnection) -> None:
        raw.on_close = closed.set
        raw.receive(lambda data: None)

    client = serve(lambda r: UpgradeResponse(SWITCHED, start)).connect().get("/", *UPGRADE)
    client.head()
    client.close()
    assert closed.wait(10)


@pytest.mark.parametrize("secure", [False, True])
def test_graceful_stop(serve: Callable[..., Any], tls: Any, secure: bool) -> None:
    watches, gate, started = Watches(), asyncio.Event(), threading.Event()

    def handler(request: HttpRequest) -> Any:
        async def slow() -> HttpResponse:
            started.set()
            await gate.wait()
            return HttpResponse(200, [], b"finished")

        return slow() if request.path == "/slow" else watches(request)

    running = serve(handler, context=tls.server if secure else None)
    idle, watcher, busy = (running.connect(tls.client if secure else None) for _ in range(3))
    assert idle.get().answer()[0] == 200
    watcher.get("/watch").head()
    busy.get("/slow")
    assert started.wait(10)
    running.call(watches.streams[0].write, b"event")
    stopping = threading.Thread(target=running.stop)
    stopping.start()
    assert [watcher.chunk(), watcher.chunk()] == [b"event", b""]
    assert watcher.at_end()
    assert idle.at_end()
    assert watches.closed.is_set()
    running.loop.call_soon_threadsafe(gate.set)
    _, headers, body = busy.answer()
    assert (body, headers["connection"]) == (b"finished", "close")
    busy.close()
    stopping.join()
    with pytest.raises(ConnectionRefusedError):
        running.connect()


def test_stop_does_not_wait_longer_than_its_grace(serve: Callable[..., Any]) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def handler(request: HttpRequest) -> HttpResponse:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return HttpResponse(200, [], b"")

    running = serve(handler)
    client = running.connect().get()
    assert started.wait(10)
    running.wait(running.server.stop(0.05))
    assert client.at_end()
    assert cancelled.wait(10)


@pytest.mark.parametrize("pausing", [False, True])
def test_upgraded_input_is_delivered_in_pieces_and_in_order(
    serve: Callable[..., Any], pausing: bool
) -> None:
    """A receiver may find thousands of messages in one read; others get the loop between two
    pieces.
    """
    pieces: list[bytes] = []
    ended = threading.Event()

    def start(raw: RawConnection) -> None:
        def receive(data: bytes) -> None:
            pieces.append(data)
            if pausing and len(pieces) % 3 == 0:
                raw.pause_reading()
                asyncio.get_running_loop().call_later(0.001, raw.resume_reading)

        raw.on_eof = ended.set
        raw.receive(receive)

    running = serve(lambda r: UpgradeResponse(SWITCHED, start))
    client = running.connect().get("/", *UPGRADE)
    client.head()
    sent = bytes(range(256)) * 8192
    client.sock.sendall(sent)
    client.sock.shutdown(socket.SHUT_WR)
    assert ended.wait(30)
    assert b"".join(pieces) == sent
    assert max(map(len, pieces)) <= 32 * 1024
