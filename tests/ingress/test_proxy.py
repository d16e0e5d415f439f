"""Requests through the proxy to servers on loopback."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from transom.http.messages import HttpRequest, HttpResponse, StreamResponse, decode_path
from transom.http.pool import ConnectionPool
from transom.http.server import HttpServer
from transom.ingress.proxy import BackendAddress, IngressProxy
from transom.ingress.routes import IngressRoute, RouteBackend, RouteTable

BACKEND = RouteBackend("shop", "web", 80)


def echo(name: str) -> Any:
    def handle(request: HttpRequest) -> HttpResponse:
        lines = [f"{name} {request.method} {request.target.decode()}"]
        lines += [f"{k.decode()}: {v.decode()}" for k, v in sorted(request.headers.items())]
        body = "\n".join(lines).encode() + b"\n" + request.body
        return HttpResponse(200, [(b"X-Server", name.encode()), (b"X-Secret", b"s")], body)

    return handle


@pytest.fixture
async def servers() -> AsyncIterator[list[BackendAddress]]:
    running = [HttpServer(echo(name), None) for name in ("one", "two")]
    yield [BackendAddress("127.0.0.1", await server.start("127.0.0.1")) for server in running]
    for server in running:
        await server.stop(0)


def proxy(
    addresses: Sequence[BackendAddress], *, default: bool = False, **route: Any
) -> IngressProxy:
    made = IngressRoute("shop.example", "/", "Prefix", (BACKEND,), "test", **route)
    table = RouteTable((BACKEND,) if default else (), {"shop.example": [made]})
    return IngressProxy(lambda: table, lambda _: addresses, ConnectionPool(), random.Random(1))


def request(path: str = "/a%20b?x=1", method: str = "GET", **headers: str) -> HttpRequest:
    given = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    given.setdefault(b"host", b"shop.example:18080")
    decoded = path.partition("?")[0].replace("%20", " ")
    return HttpRequest(method, path.encode(), decoded, given, b"", remote="127.0.0.9")


async def text(answer: Any) -> str:
    assert isinstance(answer, HttpResponse)
    assert isinstance(answer.body, bytes)
    return answer.body.decode()


async def test_forwards_with_the_headers_of_a_proxy(servers: list[BackendAddress]) -> None:
    answer = await proxy(servers).answer(request(accept="x/y", connection="close"), "https")
    lines = (await text(answer)).splitlines()
    assert lines[0] == "one GET /a%20b?x=1"
    assert "host: shop.example:18080" in lines and "accept: x/y" in lines
    assert "x-forwarded-for: 127.0.0.9" in lines and "x-forwarded-proto: https" in lines
    assert not any(line.startswith("connection:") for line in lines)


async def test_endpoints_take_turns(servers: list[BackendAddress]) -> None:
    one = proxy(servers)
    names = [(await text(await one.answer(request(), "http"))).split()[0] for _ in range(4)]
    assert names == ["one", "two", "one", "two"]


async def test_an_endpoint_that_refuses_is_skipped(servers: list[BackendAddress]) -> None:
    closed = BackendAddress("127.0.0.1", 1)
    answer = await proxy([closed, servers[1]]).answer(request(), "http")
    assert (await text(answer)).startswith("two ")
    failed = await proxy([closed]).answer(request(), "http")
    assert failed.status == 502


async def test_what_is_not_routed(servers: list[BackendAddress]) -> None:
    other = request(host="other.example")
    assert (await proxy(servers).answer(other, "http")).status == 404
    assert (await proxy(servers, default=True).answer(other, "http")).status == 200
    assert (await proxy([]).answer(request(), "http")).status == 503


async def test_filters_of_http_routes(servers: list[BackendAddress]) -> None:
    filters = (
        {"requestHeaderModifier": {"set": [{"name": "X-A", "value": "1"}], "remove": ["accept"]}},
        {"responseHeaderModifier": {"remove": ["X-Secret"]}},
        {
            "urlRewrite": {
                "hostname": "inner",
                "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/v2"},
            }
        },
    )
    answer = await proxy(servers, filters=filters).answer(request("/a?b", accept="x"), "http")
    assert isinstance(answer, HttpResponse)
    lines = (await text(answer)).splitlines()
    assert lines[0] == "one GET /v2/a?b"
    assert "host: inner" in lines and "X-A: 1".lower() in [line.lower() for line in lines]
    assert not any(line.startswith("accept:") for line in lines)
    names = [name.lower() for name, _ in answer.headers]
    assert b"x-server" in names and b"x-secret" not in names


@pytest.mark.parametrize(
    ("redirect", "location"),
    [
        ({"scheme": "https"}, "https://shop.example/a%20b?x=1"),
        ({"hostname": "new.example", "statusCode": 301}, "http://new.example/a%20b?x=1"),
        ({"port": 8443, "scheme": "https"}, "https://shop.example:8443/a%20b?x=1"),
        (
            {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/new"}},
            "http://shop.example:18080/new?x=1",
        ),
    ],
)
async def test_redirects(redirect: dict[str, Any], location: str) -> None:
    answer = await proxy([], filters=({"requestRedirect": redirect},)).answer(request(), "http")
    assert answer.status == redirect.get("statusCode", 302)
    assert dict(answer.headers)[b"Location"].decode() == location


async def test_what_is_not_supported_is_not_skipped(servers: list[BackendAddress]) -> None:
    answer = await proxy(servers, unsupported="the filter CORS").answer(request(), "http")
    assert (answer.status, answer.body) == (500, b"the filter CORS is not supported\n")


async def test_large_responses_are_streamed() -> None:
    large = b"x" * 5_000_000
    server = HttpServer(lambda _: HttpResponse(200, [], large), None)
    address = BackendAddress("127.0.0.1", await server.start("127.0.0.1"))
    front = HttpServer(lambda r: proxy([address]).answer(r, "http"), None)
    port = await front.start("127.0.0.1")
    try:
        assert isinstance(await proxy([address]).answer(request(), "http"), StreamResponse)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
        received = await reader.read(-1)
        writer.close()
        assert received.partition(b"\r\n\r\n")[2].count(b"x") == len(large)
    finally:
        await front.stop(0)
        await server.stop(0)


async def test_upgraded_connections_are_joined() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
        )
        writer.write((await reader.readexactly(4)).upper())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = BackendAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    front = HttpServer(lambda r: proxy([address]).answer(r, "http"), None)
    port = await front.start("127.0.0.1")
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
        writer.write(head)
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"ping")
        assert await reader.readexactly(4) == b"PING"
        writer.close()
    finally:
        await front.stop(0)
        server.close()


@pytest.mark.parametrize(
    ("path", "status", "sent"),
    [
        ("/public/a%20b", 200, "/public/a%20b"),
        ("/public/../admin", 404, ""),
        ("/public/%2e%2e/admin", 404, ""),
        ("/public/%2E./admin", 404, ""),
        ("/public%2f..%2fadmin", 404, ""),
        ("/public/..%5cadmin", 404, ""),
        ("/public\\..\\admin", 404, ""),
        ("/public//../admin", 404, ""),
        ("/admin/../public/x?y=../z", 200, "/public/x?y=../z"),
        ("/../public", 400, ""),
    ],
)
async def test_a_route_gives_access_to_its_own_path_only(
    servers: list[BackendAddress], path: str, status: int, sent: str
) -> None:
    made = IngressRoute("shop.example", "/public", "Prefix", (BACKEND,), "test")
    table = RouteTable((), {"shop.example": [made]})
    one = IngressProxy(lambda: table, lambda _: servers, ConnectionPool(), random.Random(1))
    decoded = decode_path(path.encode())
    assert decoded is not None
    headers = {b"host": b"shop.example"}
    answer = await one.answer(HttpRequest("GET", path.encode(), decoded, headers), "http")
    assert answer.status == status
    if sent:
        assert (await text(answer)).startswith(f"one GET {sent}\n")


async def test_clients_cannot_set_the_headers_of_the_controller(
    servers: list[BackendAddress],
) -> None:
    forged = {"x-real-ip": "6.6.6.6", "x_real_ip": "6.6.6.6", "x_forwarded_proto": "https"}
    headers = {name.encode(): value.encode() for name, value in forged.items()}
    one = HttpRequest("GET", b"/", "/", headers | {b"host": b"shop.example"}, remote="127.0.0.9")
    body = await text(await proxy(servers).answer(one, "http"))
    assert "6.6.6.6" not in body and "x_" not in body
    assert "x-real-ip: 127.0.0.9" in body and "x-forwarded-proto: http" in body
