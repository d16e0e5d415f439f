"""Request bodies that are streamed, and responses of known size that are sent in parts."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from transom.http import HttpLimits, HttpRequest, HttpResponse, StreamResponse
from transom.http.budget import BudgetLimits, ByteBudget
from transom.http.messages import Answer, Unsent

BIG = 5 * 1024 * 1024


class Hashing:
    """Takes bodies below /big as they come, and says what they were."""

    def __init__(self) -> None:
        self.broken = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def streams_body(self, path: str) -> bool:
        return path.startswith("/big")

    def body_owner(self, request: HttpRequest) -> str | None:
        return "test-user"

    async def __call__(self, request: HttpRequest) -> Answer:
        if request.stream is None:
            return HttpResponse(200, [], f"whole {len(request.body)}".encode())
        if request.path == "/big/refuse":
            return HttpResponse(403, [], b"no")
        digest, size = hashlib.sha1(), 0
        await asyncio.to_thread(self.go_on.wait)
        try:
            while data := await request.stream.read():
                digest.update(data)
                size += len(data)
        except ConnectionResetError:
            self.broken.set()
            raise
        return HttpResponse(200, [], f"{size} {digest.hexdigest()}".encode())


def expected(body: bytes) -> bytes:
    return f"{len(body)} {hashlib.sha1(body).hexdigest()}".encode()


def test_a_body_larger_than_any_limit(serve: Callable[..., Any]) -> None:
    body = bytes(range(256)) * (BIG // 256)
    client = serve(Hashing(), HttpLimits(body=1024 * 1024, tick=0.05)).connect()
    for _ in range(2):
        assert client.get("/big/up", method="POST", body=body).answer()[::2] == (
            200,
            expected(body),
        )
    assert client.get("/other", method="POST", body=bytes(1000)).answer()[::2] == (
        200,
        b"whole 1000",
    )
    assert client.get("/other", method="POST", body=body).answer()[0] == 413


def test_small_bodies_and_chunks(serve: Callable[..., Any]) -> None:
    client = serve(Hashing()).connect()
    assert client.get("/big", method="POST", body=b"abc").answer()[::2] == (200, b"whole 3")
    head = b"POST /big HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    client.send(head + b"3\r\nabc\r\n").send(
        b"2\r\nde\r\n0\r\n\r\n" + b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n"
    )
    assert client.answer()[::2] == (200, expected(b"abcde"))
    assert client.answer()[::2] == (200, b"whole 0")


def test_a_client_that_expects_100_continue_gets_it(serve: Callable[..., Any]) -> None:
    client = serve(Hashing()).connect()
    client.get("/big", "Expect: 100-continue", "Content-Length: 100000", method="POST")
    assert client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue"
    assert client.send(bytes(100000)).answer()[::2] == (200, expected(bytes(100000)))


def test_a_refused_body_does_not_spoil_the_connection(serve: Callable[..., Any]) -> None:
    client = serve(Hashing()).connect()
    for _ in range(3):
        assert client.get("/big/refuse", method="POST", body=bytes(BIG)).answer()[::2] == (
            403,
            b"no",
        )
    assert client.get("/other").answer()[::2] == (200, b"whole 0")


def test_a_refused_body_without_end_ends_the_connection(serve: Callable[..., Any]) -> None:
    client = serve(Hashing(), HttpLimits(discard=100_000, tick=0.05)).connect()
    client.get("/big/refuse", f"Content-Length: {1 << 40}", method="POST")
    assert client.answer()[0] == 403
    try:
        while True:
            client.send(bytes(65536))
    except ConnectionError:
        pass


def test_the_client_waits_while_the_body_is_unread(serve: Callable[..., Any]) -> None:
    handler = Hashing()
    handler.go_on.clear()
    client = serve(handler).connect()
    client.sock.settimeout(0.5)
    size, sent = 64 * 1024 * 1024, 0
    client.get("/big", f"Content-Length: {size}", method="POST")
    try:
        while sent < size:
            sent += client.sock.send(bytes(65536))
    except TimeoutError:
        pass
    assert sent < 32 * 1024 * 1024
    handler.go_on.set()
    client.sock.settimeout(20)
    client.send(bytes(size - sent))
    assert client.answer()[2] == expected(bytes(size))


def test_a_client_that_breaks_off(serve: Callable[..., Any]) -> None:
    handler = Hashing()
    client = serve(handler).connect()
    client.get("/big", "Content-Length: 100000", method="POST").send(bytes(10))
    client.close()
    assert handler.broken.wait(10)


def test_a_stream_of_known_length(serve: Callable[..., Any]) -> None:
    def handler(request: HttpRequest) -> Answer:
        if request.method == "HEAD":
            return HttpResponse(200, [], Unsent(1 << 40))

        def start(stream: Any) -> None:
            for part in (b"ab", b"cde"):
                stream.write(part)
            stream.close()

        return StreamResponse(200, [], start, 5)

    client = serve(handler).connect()
    for _ in range(2):
        status, headers, body = client.get("/").answer()
        assert (status, body, "transfer-encoding" in headers) == (200, b"abcde", False)
    status, headers = client.get("/", "Accept-Encoding: gzip", method="HEAD").head()
    assert (status, headers["content-length"]) == (200, str(1 << 40))
    assert client.get("/").answer()[2] == b"abcde"


class Gate:
    """Lets only those send large bodies who say that they are known."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def streams_body(self, path: str) -> bool:
        return False

    def body_owner(self, request: HttpRequest) -> str | None:
        assert request.body == b""
        return request.header(b"user") or None

    def __call__(self, request: HttpRequest) -> HttpResponse:
        self.sizes.append(len(request.body))
        if not request.header(b"user"):
            return HttpResponse(401, [], b"who are you")
        return HttpResponse(200, [], b"%d" % len(request.body))


@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_body_of_a_stranger_is_refused_before_it_is_read(
    serve: Callable[..., Any], chunked: bool
) -> None:
    gate = Gate()
    running = serve(gate, HttpLimits(linger=1.0, tick=0.05))
    client = running.connect()
    framing = "Transfer-Encoding: chunked" if chunked else "Content-Length: 3000000"
    client.send(f"POST / HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n".encode())
    start = b"x" * 20_000
    client.send(b"%x\r\n%b\r\n" % (len(start), start) if chunked else start)
    status, headers, body = client.answer()
    assert (status, headers["connection"], body) == (401, "close", b"who are you")
    assert gate.sizes == [0]
    assert client.at_end()


def test_bodies_under_way_have_a_budget_for_each_user(serve: Callable[..., Any]) -> None:
    budget = ByteBudget(BudgetLimits(server=1_000_000, user=300_000))
    running = serve(Gate(), uploads=budget)

    def begin(user: str) -> Any:
        client = running.connect()
        client.send(
            f"POST / HTTP/1.1\r\nHost: h\r\nUser: {user}\r\nContent-Length: 250000\r\n\r\n".encode()
        )
        return client.send(b"x" * 200_000)

    first = begin("jane")
    while running.call(lambda: budget.used_by("jane")) < 200_000:
        pass
    second = begin("jane")
    assert second.head()[0] == 429
    other = begin("john")
    for client in (first, other):
        client.send(b"x" * 50_000)
        assert client.answer()[2] == b"250000"
    assert running.call(lambda: budget.total) == 0
    first.get("/", "User: jane", method="POST", body=b"y" * 100_000)
    assert first.answer()[2] == b"100000"
    second.close()
    assert running.call(lambda: budget.total) == 0
