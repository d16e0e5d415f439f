"""Clients that send wrong data, are slow or disconnect: each gets the right status, and the server
continues to work.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import random
import resource
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.http.conftest import Tls

from transom.http import HttpLimits, HttpRequest, HttpResponse

FAST = {"tick": 0.02, "linger": 1.0}


def status_of(client: Any) -> dict[str, Any]:
    code, headers, body = client.answer()
    status = json.loads(body)
    assert status["kind"] == "Status"
    assert status["code"] == code
    assert headers["connection"] == "close"
    return status


def plain_of(client: Any) -> tuple[int, str]:
    """What Go's server, not Kubernetes, answers."""
    code, headers, body = client.answer()
    assert (headers["connection"], headers["content-type"]) == (
        "close",
        "text/plain; charset=utf-8",
    )
    return code, body.decode()


@pytest.mark.parametrize(
    "raw",
    [
        b"NONSENSE\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: h\r\n\r\n",
        b"GET /a b c HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nBad Header: x\r\n\r\n",
        b"GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: "
            b"chunked\r\n\r\n0\r\n\r\n"
        ),
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"CONNECT host:1 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
    ids=range(14),
)
def test_malformed_requests(serve: Callable[..., Any], echo_handler: Any, raw: bytes) -> None:
    running = serve(echo_handler)
    client = running.connect()
    client.send(raw)
    code, text = plain_of(client)
    assert code == 400 and text.startswith("400 Bad Request")
    assert client.at_end()
    assert running.connect().get().answer()[0] == 200


_POST = b"POST / HTTP/1.1\r\nHost: h\r\n"
_NEXT = b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.mark.parametrize("pieces", [1, 1000], ids=["at once", "byte by byte"])
@pytest.mark.parametrize(
    ("raw", "code", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "too many Host headers"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400, "too many Host headers"),
        (b"GET / HTTP/1.1\r\nHost:\r\nhOST: a\r\n\r\n", 400, "too many Host headers"),
        (b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400, "too many Host headers"),
        (b"GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "too many Host headers"),
        (b"GET / HTTP/1.1\r\nX-Host: a\r\n\r\n", 400, "missing required Host header"),
        (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "malformed Host header"),
        (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, "malformed Host header"),
        (b"GET / HTTP/1.1\r\nHost: user@a\r\n\r\n", 400, "malformed Host header"),
        (b"GET / HTTP/1.1\r\nHost: a\\b\r\n\r\n", 400, "malformed Host header"),
        (b"GET / HTTP/1.1\r\nHost: \xc3\xa4\r\n\r\n", 400, "malformed Host header"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n", 400, "invalid header value"),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 400, "unsupported protocol version"),
        (
            b"GET / HTTP/2.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
            400,
            "unsupported protocol version",
        ),
        (b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", 400, "unsupported protocol version"),
        (b"GET /\r\n\r\n", 400, ""),
        (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n" + _NEXT, 400, ""),
        (b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n" + _NEXT, 400, ""),
        (b"GET / RTSP/1.0\r\nHost: a\r\n\r\n", 400, ""),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX(a): b\r\n\r\n", 400, ""),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX a: b\r\n\r\n", 400, ""),
        (b"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400, ""),
        (b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400, ""),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400, ""),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n", 400, ""),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\nY: 2\r\n\r\n", 400, ""),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\rY: 2\r\n\r\n", 400, ""),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400, ""),
        (_POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400, ""),
        (_POST + b"Content-Length: 1, 1\r\n\r\nx", 400, ""),
        (_POST + b"Content-Length: +1\r\n\r\nx", 400, ""),
        (_POST + b"Content-Length: 1 \x0b\r\n\r\nx", 400, ""),
        (
            _POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + _NEXT,
            400,
            "",
        ),
        (
            _POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + _NEXT,
            400,
            "",
        ),
        (
            _POST
            + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"
            + _NEXT,
            400,
            "",
        ),
        (_POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + _NEXT, 400, ""),
        (
            _POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + _NEXT,
            501,
            "Unsupported transfer encoding",
        ),
        (_POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + _NEXT, 400, ""),
        (
            _POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + _NEXT,
            501,
            "Unsupported transfer encoding",
        ),
        (
            b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + _NEXT,
            400,
            "",
        ),
        (_POST + b"Transfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n" + _NEXT, 400, ""),
        (_POST + b"Transfer-Encoding: chunked\r\n\r\n1;a\nb\r\nx\r\n0\r\n\r\n" + _NEXT, 400, ""),
        (_POST + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n" + _NEXT, 400, ""),
    ],
)
def test_requests_that_others_would_read_differently(
    serve: Callable[..., Any], raw: bytes, code: int, reason: str, pieces: int
) -> None:
    """No handler sees any of them, and nothing that follows them on the connection."""
    seen: list[HttpRequest] = []

    def handler(request: HttpRequest) -> HttpResponse:
        seen.append(request)
        return HttpResponse(200, [], b"")

    running = serve(handler)
    client = running.connect()
    size = max(1, len(raw) // pieces)
    try:
        for at in range(0, len(raw), size):
            client.send(raw[at : at + size])
    except (BrokenPipeError, ConnectionResetError):
        assert pieces > 1
    found = plain_of(client)
    assert found == (
        code,
        reason if code == 501 else f"400 Bad Request: {reason}" if reason else "400 Bad Request",
    )
    assert seen == []


@pytest.mark.parametrize("pieces", [1, 1000], ids=["at once", "byte by byte"])
def test_a_malformed_request_line_after_others(serve: Callable[..., Any], pieces: int) -> None:
    seen: list[HttpRequest] = []

    def handler(request: HttpRequest) -> HttpResponse:
        seen.append(request)
        return HttpResponse(200, [], b"")

    client = serve(handler).connect()
    good = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\na  b"
    raw = good + good + b"GET /a  HTTP/1.1\r\nHost: h\r\n\r\n" + _NEXT
    size = max(1, len(raw) // pieces)
    try:
        for at in range(0, len(raw), size):
            client.send(raw[at : at + size])
    except (BrokenPipeError, ConnectionResetError):
        assert pieces > 1
    assert (client.answer()[0], client.answer()[0]) == (200, 200)
    assert plain_of(client) == (400, "400 Bad Request")
    assert [request.body for request in seen] == [b"a  b"] * 2


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (b"HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-continue", 100),
        (b"HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-Continue, x", 100),
        (b"HTTP/1.1\r\nContent-Length: 0\r\nExpect: 100-continue", 200),
        (b"HTTP/1.1\r\nExpect: 100-continue", 200),
        (b"HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue", 200),
        (b"HTTP/1.1\r\nContent-Length: 1\r\nExpect: foo", 417),
        (b"HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-continued", 417),
        (b"HTTP/1.1\r\nExpect: foo", 417),
    ],
)
def test_expectations(serve: Callable[..., Any], echo_handler: Any, head: bytes, code: int) -> None:
    """As in Go's server."""
    client = serve(echo_handler).connect()
    client.send(b"POST / " + head + b"\r\nHost: h\r\n\r\n")
    if code == 200 and b"Length: 1" in head:
        client.send(b"x")
    found, headers = client.head()[:2]
    assert found == code
    if code == 417:
        assert (headers["connection"], headers["content-length"]) == ("close", "0")
        assert client.at_end()


@pytest.mark.parametrize(
    "host", [b"", b"a", b"a:1", b"[::1]:6443", b"a.b.c.", b"[fe80::1%25eth0]", b"a,b"]
)
def test_hosts_that_go_accepts(serve: Callable[..., Any], echo_handler: Any, host: bytes) -> None:
    client = serve(echo_handler).connect()
    client.send(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert client.answer()[0] == 200


def test_malformed_request_waits_for_its_turn(serve: Callable[..., Any]) -> None:
    gate = asyncio.Event()

    async def handler(request: HttpRequest) -> HttpResponse:
        await gate.wait()
        return HttpResponse(200, [], b"first")

    running = serve(handler)
    client = running.connect()
    client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\nNONSENSE\r\n\r\n")
    running.call(gate.set)
    assert client.answer()[2] == b"first"
    assert plain_of(client) == (400, "400 Bad Request")


TOO_LARGE = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "code": 413,
    "reason": "RequestEntityTooLarge",
    "message": "Request entity too large: limit is 3145728",
}


@pytest.mark.parametrize("chunked", [False, True])
def test_body_too_large(
    serve: Callable[..., Any], echo_handler: Any, tls: Any, chunked: bool
) -> None:
    running = serve(echo_handler, context=tls.server)
    client = running.connect(tls.client)
    body = b"x" * (5 * 1024 * 1024)
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\n%b\r\n\r\n" % framing)
    # all of it, before reading
    client.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body)
    assert status_of(client) == TOO_LARGE
    assert client.at_end()


def test_body_too_large_is_answered_before_it_is_sent(
    serve: Callable[..., Any], echo_handler: Any
) -> None:
    client = serve(echo_handler, HttpLimits(**FAST)).connect()
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n")
    assert status_of(client) == TOO_LARGE
    assert client.at_end()  # the rest never comes; the linger time ends it


def test_body_of_exactly_the_limit_is_accepted(serve: Callable[..., Any]) -> None:
    client = serve(lambda r: HttpResponse(200, [], str(len(r.body)).encode())).connect()
    body = b"x" * 3145728
    assert client.get(method="POST", body=body).answer()[2] == b"3145728"


@pytest.mark.parametrize(
    "framing", [b"1;" + b"x" * 99 + b"\r\ny\r\n", b"0\r\nTrailer: " + b"x" * 100_000]
)
def test_body_that_is_all_framing(
    serve: Callable[..., Any], echo_handler: Any, framing: bytes
) -> None:
    client = serve(echo_handler, HttpLimits(body=1000, **FAST)).connect()
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + framing)
    sender = threading.Thread(
        target=client.send, args=(framing * 800 if framing[0] == 49 else b"x" * 10_000,)
    )
    sender.start()
    assert status_of(client)["code"] == 413
    sender.join()


@pytest.mark.parametrize("compressed", [False, True])
def test_a_client_that_drips_does_not_keep_an_answer_alive(
    serve: Callable[..., Any], compressed: bool
) -> None:
    ended = threading.Event()
    body = [random.Random(1).randbytes(100_000) for _ in range(300)]
    limits = HttpLimits(response_timeout=0.3, least_rate=100_000_000, unsent=65536, **FAST)
    running = serve(lambda r: HttpResponse(200, [], list(body), on_end=ended.set), limits)
    client = running.connect().get("/", "Accept-Encoding: gzip" if compressed else "Accept: */*")
    read = 0
    while not ended.is_set() and read < 20_000_000:
        try:
            read += len(client.sock.recv(50_000))
        except ConnectionError:
            break
        ended.wait(0.02)
    assert ended.wait(5)
    assert read < 20_000_000
    assert running.call(lambda: running.server.budget.total) == 0


def test_a_large_answer_is_compressed_while_it_is_read(serve: Callable[..., Any]) -> None:
    body = [b"%d" % number * 20_000 for number in range(100)]
    client = (
        serve(lambda r: HttpResponse(200, [], list(body)))
        .connect()
        .get("/", "Accept-Encoding: gzip")
        .get("/next")
    )
    headers = client.head()[1]
    assert (headers["content-encoding"], headers["transfer-encoding"]) == ("gzip", "chunked")
    assert gzip.decompress(b"".join(iter(client.chunk, b""))) == b"".join(body)
    assert client.answer()[2] == b"".join(body)


def test_trailers_are_not_headers(serve: Callable[..., Any]) -> None:
    client = serve(lambda r: HttpResponse(200, [], b",".join(sorted(r.headers)))).connect()
    client.send(
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
        b"chunked\r\n\r\n0\r\nAuthorization: x\r\n\r\n"
    )
    assert client.answer()[2] == b"host,transfer-encoding"


@pytest.mark.parametrize("ending", [b"\r\n\r\n", b""])
def test_head_too_large(serve: Callable[..., Any], echo_handler: Any, ending: bytes) -> None:
    client = serve(echo_handler, HttpLimits(**FAST)).connect()
    client.send(b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 100_000 + ending)
    assert status_of(client)["code"] == 431


def test_url_too_large(serve: Callable[..., Any], echo_handler: Any) -> None:
    client = serve(echo_handler, HttpLimits(**FAST)).connect()
    sender = threading.Thread(
        target=client.send, args=(b"GET /" + b"x" * 2_000_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",)
    )
    sender.start()
    assert status_of(client)["code"] == 431
    sender.join()


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nHost:",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf",
    ],
    ids=["head", "body"],
)
def test_slow_client_gets_408(serve: Callable[..., Any], echo_handler: Any, raw: bytes) -> None:
    client = serve(echo_handler, HttpLimits(head_timeout=0.2, body_timeout=0.2, **FAST)).connect()
    client.send(raw)
    assert status_of(client)["code"] == 408
    assert client.at_end()


def test_trickling_bytes_do_not_extend_the_time(
    serve: Callable[..., Any], echo_handler: Any
) -> None:
    client = serve(echo_handler, HttpLimits(head_timeout=0.3, **FAST)).connect()
    stop = threading.Event()

    def trickle() -> None:
        client.send(b"GET / HTTP/1.1\r\n")
        while not stop.wait(0.05):
            try:
                client.send(b"X: y\r\n")
            except OSError:
                return

    sender = threading.Thread(target=trickle)
    sender.start()
    try:
        assert status_of(client)["code"] == 408
    finally:
        stop.set()
        sender.join()


def test_idle_connection_is_closed_and_a_used_one_lives_on(
    serve: Callable[..., Any], echo_handler: Any
) -> None:
    client = serve(echo_handler, HttpLimits(idle_timeout=0.3, **FAST)).connect()
    for _ in range(3):
        assert client.get().answer()[0] == 200
    assert client.at_end()


def test_reader_that_takes_nothing_is_cut_off(serve: Callable[..., Any]) -> None:
    slabs = [b"x" * 1_000_000] * 40
    running = serve(
        lambda r: HttpResponse(200, [], list(slabs)), HttpLimits(stall_timeout=0.3, **FAST)
    )
    client = running.connect()
    client.get()
    gone = threading.Event()
    forget = running.server.forget
    running.server.forget = lambda connection: (forget(connection), gone.set())
    assert gone.wait(10)


def test_client_gone_in_mid_request(serve: Callable[..., Any]) -> None:
    started, finished, gate = threading.Event(), threading.Event(), asyncio.Event()

    async def handler(request: HttpRequest) -> HttpResponse:
        if request.path == "/slow":
            started.set()
            await gate.wait()
            finished.set()
        return HttpResponse(200, [], b"ok")

    running = serve(handler)
    client = running.connect()
    client.get("/slow").get("/never")
    assert started.wait(10)
    client.close()
    running.connect().get().answer()
    running.call(gate.set)
    assert finished.wait(10)  # a write that has begun is not torn up by the client's leaving
    half = running.connect()
    half.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhal")
    half.close()
    assert running.connect().get().answer()[2] == b"ok"


def test_too_many_connections(serve: Callable[..., Any], echo_handler: Any) -> None:
    running = serve(echo_handler, HttpLimits(connections=2, **FAST))
    clients = [running.connect() for _ in range(2)]
    assert all(c.get().answer()[0] == 200 for c in clients)
    assert status_of(running.connect())["code"] == 503
    clients.pop().close()
    assert clients[0].get().answer()[0] == 200


def test_two_thousand_idle_connections(serve: Callable[..., Any], echo_handler: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2000
    if soft < 2 * wanted + 200:
        if hard < 2 * wanted + 200:
            pytest.skip(f"only {hard} open files allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * wanted + 200, hard))
    running = serve(echo_handler)
    clients = [running.connect() for _ in range(wanted)]
    assert running.connect().get().answer()[0] == 200
    assert all(client.get().answer()[0] == 200 for client in clients)
    for client in clients:
        client.close()


def test_the_oldest_unfinished_handshake_makes_room_for_another(
    serve: Callable[..., Any], tls: Tls
) -> None:
    running = serve(
        lambda _: HttpResponse(200, []), HttpLimits(handshakes=3, tick=0.05), tls.server
    )
    served = [running.connect(tls.client) for _ in range(5)]  # finished: they do not count
    idle = [socket.create_connection(("127.0.0.1", running.port), timeout=30) for _ in range(5)]
    later = running.connect(tls.client)  # accepted after all of them
    assert later.get().answer()[0] == 200
    for connection in idle[:3]:  # the client that was served was the fourth of them
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    for connection in idle[3:]:
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        connection.close()
    for client in served:
        assert client.get().answer()[0] == 200
