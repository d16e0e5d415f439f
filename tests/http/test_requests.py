from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from transom.http import HttpLimits, HttpRequest, HttpResponse
from transom.http.messages import decode_path, parse_query
from transom.machinery import errors

TEXT = [(b"Content-Type", b"text/plain")]


def test_keep_alive_and_pipelining_answer_in_order(serve: Callable[..., Any]) -> None:
    gate = asyncio.Event()

    def handler(request: HttpRequest) -> Any:
        if request.path == "/slow":

            async def later() -> HttpResponse:
                await gate.wait()
                return HttpResponse(200, TEXT, b"slow")

            return later()
        return HttpResponse(200, TEXT, request.path.encode())

    running = serve(handler)
    client = running.connect()
    client.get("/a")
    assert client.answer()[2] == b"/a"
    client.send(
        b"".join(b"GET /%s HTTP/1.1\r\nHost: h\r\n\r\n" % p for p in (b"1", b"slow", b"2", b"3"))
    )
    assert client.answer()[2] == b"/1"
    running.call(gate.set)
    assert [client.answer()[2] for _ in range(3)] == [b"slow", b"/2", b"/3"]


def test_many_pipelined_requests_are_held_back_and_all_answered(serve: Callable[..., Any]) -> None:
    count = 2000

    async def answer(request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)
        return HttpResponse(200, TEXT, request.path.encode())

    running = serve(answer, HttpLimits(pipelined=4, tick=0.05))
    client = running.connect()
    requests = b"".join(b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % i for i in range(count))
    sender = threading.Thread(target=client.send, args=(requests,))
    sender.start()
    assert [client.answer()[2] for _ in range(count)] == [b"/%d" % i for i in range(count)]
    sender.join()


@pytest.mark.parametrize("pieces", [1, 7, 60])
def test_request_in_pieces(serve: Callable[..., Any], echo_handler: Any, pieces: int) -> None:
    raw = (
        b"POST /api/v1?x=%41 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5\r\nhello\r\n7;ext=1\r\n, world\r\n0\r\n\r\n"
    )
    client = serve(echo_handler).connect()
    step = max(1, len(raw) // pieces)
    for at in range(0, len(raw), step):
        client.send(raw[at : at + step])
    assert client.answer()[2] == b"POST\n/api/v1\nhello, world"


def test_headers_are_lower_case_and_repeated_ones_joined(serve: Callable[..., Any]) -> None:
    def handler(request: HttpRequest) -> HttpResponse:
        return HttpResponse(
            200, TEXT, request.headers[b"accept"] + b"|" + request.header(b"x-none", "-").encode()
        )

    client = serve(handler).connect()
    client.get("/", "Accept: a", "ACCEPT: b")
    assert client.answer()[2] == b"a, b|-"


def test_head_has_length_but_no_body(serve: Callable[..., Any], echo_handler: Any) -> None:
    client = serve(echo_handler).connect()
    client.get("/x", method="HEAD")
    status, headers = client.head()
    assert (status, headers["content-length"]) == (200, str(len(b"HEAD\n/x\n")))
    client.get("/y")
    assert client.answer()[2] == b"GET\n/y\n"


def test_no_content_has_no_length(serve: Callable[..., Any]) -> None:
    client = serve(lambda request: HttpResponse(204, [])).connect()
    client.get().get()
    for _ in range(2):
        status, headers = client.head()
        assert status == 204
        assert "content-length" not in headers


def test_expect_continue(serve: Callable[..., Any], echo_handler: Any) -> None:
    client = serve(echo_handler).connect()
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert client.head()[0] == 100
    client.send(b"hi")
    assert client.answer()[2] == b"POST\n/\nhi"


def test_expect_continue_of_a_body_too_large_is_refused_at_once(
    serve: Callable[..., Any], echo_handler: Any
) -> None:
    client = serve(echo_handler).connect()
    client.send(
        b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 9999999\r\n\r\n"
    )
    assert client.answer()[0] == 413


def test_http_10(serve: Callable[..., Any], echo_handler: Any) -> None:
    running = serve(echo_handler)
    client = running.connect().send(b"GET / HTTP/1.0\r\n\r\n")
    assert client.answer()[1]["connection"] == "close"
    assert client.at_end()
    client = running.connect().send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert client.answer()[1]["connection"] == "keep-alive"
    client.send(b"GET /2 HTTP/1.0\r\n\r\n")
    assert client.answer()[2] == b"GET\n/2\n"


def test_connection_close_is_kept_and_ends_the_pipeline(serve: Callable[..., Any]) -> None:
    seen: list[str] = []

    def handler(request: HttpRequest) -> HttpResponse:
        seen.append(request.path)
        return HttpResponse(200, TEXT, b"")

    client = serve(handler).connect()
    client.send(
        b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n"
    )
    assert client.answer()[1]["connection"] == "close"
    assert client.at_end()
    assert seen == ["/a"]


def test_errors_of_the_handler(serve: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    def handler(request: HttpRequest) -> Any:
        async def fails() -> HttpResponse:
            raise RuntimeError("secret detail")

        if request.path == "/api":
            raise errors.too_many_requests("slow down", 7)
        if request.path == "/sync":
            raise RuntimeError("secret detail")
        return fails()

    client = serve(handler).connect()
    client.get("/api")
    status, headers, body = client.answer()
    assert (status, headers["retry-after"], json.loads(body)["reason"]) == (
        429,
        "7",
        "TooManyRequests",
    )
    for path in ("/sync", "/async"):
        client.get(path)
        status, headers, body = client.answer()
        assert (status, json.loads(body)["reason"]) == (500, "InternalError")
        assert headers["content-type"] == "application/json"
        assert b"secret" not in body
    assert caplog.text.count("RuntimeError: secret detail") == 2


def test_line_break_in_a_header_value_stays_in_it(serve: Callable[..., Any]) -> None:
    client = serve(
        lambda r: HttpResponse(200, [(b"Warning", b"a\r\nSet-Cookie: x")], b"")
    ).connect()
    client.get()
    _, headers, _ = client.answer()
    assert headers["warning"] == "a  Set-Cookie: x"
    assert "set-cookie" not in headers


def test_slabs_arrive_whole_behind_a_slow_reader(serve: Callable[..., Any]) -> None:
    slabs = [bytes([i]) * 300_000 for i in range(40)]
    client = serve(lambda r: HttpResponse(200, TEXT, list(slabs))).connect()
    client.get("/1").get("/2")
    for _ in range(2):
        assert client.answer()[2] == b"".join(slabs)


def test_gzip_only_for_big_bodies_on_request(serve: Callable[..., Any]) -> None:
    big, small = b"kubernetes " * 20_000, b"small"
    client = serve(
        lambda r: HttpResponse(200, TEXT, [big, big] if r.path == "/big" else small)
    ).connect()
    client.get("/big", "Accept-Encoding: deflate, gzip").get("/small", "Accept-Encoding: gzip").get(
        "/big"
    )
    _, headers, body = client.answer()
    assert (headers["content-encoding"], gzip.decompress(body)) == ("gzip", big + big)
    _, headers, body = client.answer()
    assert "content-encoding" not in headers
    assert body == small
    assert client.answer()[2] == big + big


def test_client_certificate_is_the_peer(serve: Callable[..., Any], tls: Any) -> None:
    running = serve(
        lambda r: HttpResponse(200, TEXT, repr(r.peer and tuple(r.peer[:2])).encode()),
        context=tls.server,
    )
    assert running.connect(tls.client).get().answer()[2] == b"('jane', ['dev', 'ops'])"
    assert running.connect(tls.anonymous).get().answer()[2] == b"None"


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/a%20b/c?x=%zz", "/a b/c"),
        (b"http://host/api?x", "/api"),
        (b"https://host", "/"),
        (b"*", "*"),
        (b"/bad%zz", None),
        (b"/bad%4", None),
        (b"relative", None),
        (b"/%ff", "/\ufffd"),
    ],
)
def test_decode_path(target: bytes, path: str | None) -> None:
    assert decode_path(target) == path


@pytest.mark.parametrize(
    ("raw", "query"),
    [
        (b"", {}),
        (b"a=1&a=2&b", {"a": ["1", "2"], "b": [""]}),
        (b"l=a%3Db%2Cc&x=1+2", {"l": ["a=b,c"], "x": ["1 2"]}),
        (b"a=1;b=2", {"a": ["1"], "b": ["2"]}),
        (b"bad=%zz&ok=1&&", {"ok": ["1"]}),
    ],
)
def test_parse_query(raw: bytes, query: dict[str, list[str]]) -> None:
    assert parse_query(raw) == query
