"""Clients that are wrong, slow, greedy or gone: each gets a Status with the right code, and the server goes on."""

from __future__ import annotations

import asyncio
import json
import resource
import threading
from collections.abc import Callable
from typing import Any

import pytest

from transom.http import Limits, Request, Response

FAST = {"tick": 0.02, "linger": 1.0}


def status_of(client: Any) -> dict[str, Any]:
    code, headers, body = client.answer()
    status = json.loads(body)
    assert status["kind"] == "Status"
    assert status["code"] == code
    assert headers["connection"] == "close"
    return status


@pytest.mark.parametrize("raw", [
    b"NONSENSE\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: h\r\n\r\n",
    b"GET /a b c HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nBad Header: x\r\n\r\n",
    b"GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"CONNECT host:1 HTTP/1.1\r\nHost: h\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00",
], ids=range(14))  # fmt: skip
def test_malformed_requests(serve: Callable[..., Any], echo_handler: Any, raw: bytes) -> None:
    running = serve(echo_handler)
    client = running.connect()
    client.send(raw)
    assert status_of(client)["code"] == 400
    assert client.at_end()
    assert running.connect().get().answer()[0] == 200


def test_malformed_request_waits_for_its_turn(serve: Callable[..., Any]) -> None:
    gate = asyncio.Event()

    async def handler(request: Request) -> Response:
        await gate.wait()
        return Response(200, [], b"first")

    running = serve(handler)
    client = running.connect()
    client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\nNONSENSE\r\n\r\n")
    running.call(gate.set)
    assert client.answer()[2] == b"first"
    assert status_of(client)["code"] == 400


TOO_LARGE = {
    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 413,
    "reason": "RequestEntityTooLarge", "message": "Request entity too large: limit is 3145728",
}  # fmt: skip


@pytest.mark.parametrize("chunked", [False, True])
def test_body_too_large(serve: Callable[..., Any], echo_handler: Any, tls: Any, chunked: bool) -> None:
    running = serve(echo_handler, context=tls.server)
    client = running.connect(tls.client)
    body = b"x" * (5 * 1024 * 1024)
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\n%b\r\n\r\n" % framing)
    client.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body)  # all of it, before reading
    assert status_of(client) == TOO_LARGE
    assert client.at_end()


def test_body_too_large_is_answered_before_it_is_sent(serve: Callable[..., Any], echo_handler: Any) -> None:
    client = serve(echo_handler, Limits(**FAST)).connect()
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n")
    assert status_of(client) == TOO_LARGE
    assert client.at_end()  # the rest never comes; the linger time ends it


def test_body_of_exactly_the_limit_is_accepted(serve: Callable[..., Any]) -> None:
    client = serve(lambda r: Response(200, [], str(len(r.body)).encode())).connect()
    body = b"x" * 3145728
    assert client.get(method="POST", body=body).answer()[2] == b"3145728"


@pytest.mark.parametrize("framing", [b"1;" + b"x" * 99 + b"\r\ny\r\n", b"0\r\nTrailer: " + b"x" * 100_000])
def test_body_that_is_all_framing(serve: Callable[..., Any], echo_handler: Any, framing: bytes) -> None:
    client = serve(echo_handler, Limits(body=1000, **FAST)).connect()
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + framing)
    sender = threading.Thread(target=client.send, args=(framing * 800 if framing[0] == 49 else b"x" * 10_000,))
    sender.start()
    assert status_of(client)["code"] == 413
    sender.join()


def test_trailers_are_no_headers(serve: Callable[..., Any]) -> None:
    client = serve(lambda r: Response(200, [], b",".join(sorted(r.headers)))).connect()
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: x\r\n\r\n")
    assert client.answer()[2] == b"host,transfer-encoding"


@pytest.mark.parametrize("ending", [b"\r\n\r\n", b""])
def test_head_too_large(serve: Callable[..., Any], echo_handler: Any, ending: bytes) -> None:
    client = serve(echo_handler, Limits(**FAST)).connect()
    client.send(b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 100_000 + ending)
    assert status_of(client)["code"] == 431


def test_url_too_large(serve: Callable[..., Any], echo_handler: Any) -> None:
    client = serve(echo_handler, Limits(**FAST)).connect()
    sender = threading.Thread(target=client.send, args=(b"GET /" + b"x" * 2_000_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",))
    sender.start()
    assert status_of(client)["code"] == 431
    sender.join()


@pytest.mark.parametrize("raw", [
    b"GET / HTTP/1.1\r\nHost:",
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf",
], ids=["head", "body"])  # fmt: skip
def test_slow_client_gets_408(serve: Callable[..., Any], echo_handler: Any, raw: bytes) -> None:
    client = serve(echo_handler, Limits(head_timeout=0.2, body_timeout=0.2, **FAST)).connect()
    client.send(raw)
    assert status_of(client)["code"] == 408
    assert client.at_end()


def test_trickling_bytes_do_not_extend_the_time(serve: Callable[..., Any], echo_handler: Any) -> None:
    client = serve(echo_handler, Limits(head_timeout=0.3, **FAST)).connect()
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


def test_idle_connection_is_closed_and_a_used_one_lives_on(serve: Callable[..., Any], echo_handler: Any) -> None:
    client = serve(echo_handler, Limits(idle_timeout=0.3, **FAST)).connect()
    for _ in range(3):
        assert client.get().answer()[0] == 200
    assert client.at_end()


def test_reader_that_takes_nothing_is_cut_off(serve: Callable[..., Any]) -> None:
    slabs = [b"x" * 1_000_000] * 40
    running = serve(lambda r: Response(200, [], list(slabs)), Limits(write_timeout=0.3, **FAST))
    client = running.connect()
    client.get()
    gone = threading.Event()
    forget = running.server.forget
    running.server.forget = lambda connection: (forget(connection), gone.set())
    assert gone.wait(10)


def test_client_gone_in_mid_request(serve: Callable[..., Any]) -> None:
    started, finished, gate = threading.Event(), threading.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        if request.path == "/slow":
            started.set()
            await gate.wait()
            finished.set()
        return Response(200, [], b"ok")

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
    running = serve(echo_handler, Limits(connections=2, **FAST))
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
