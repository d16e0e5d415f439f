"""Pods, services and nodes through the API server's proxy."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from pathlib import Path
from typing import Any

import orjson
import pytest

from transom.http.messages import Answer, HttpRequest, HttpResponse, StreamResponse, UpgradeResponse
from transom.http.raw import RawConnection
from transom.http.stream import Stream

from .support import NODE_IP, POD_IP, ApiHarness, run, running_api_server

PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"


def echo(request: HttpRequest) -> Answer:
    """Says what it was asked."""
    printed = {
        "method": request.method,
        "target": request.target.decode(),
        "body": request.body.decode(),
        "headers": {k.decode(): v.decode() for k, v in request.headers.items()},
        "peer": request.peer.cn if request.peer is not None else None,
    }
    return HttpResponse(
        200, [(b"Content-Type", b"application/json"), (b"X-Own", b"1")], orjson.dumps(printed)
    )


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_a_request_arrives_as_it_was_sent(tmp_path: Path, method: str) -> None:
    async with run(), running_api_server(tmp_path) as w:
        w.network.listen(POD_IP, 80, echo)
        await w.pod()
        body = b"hello" if method != "GET" else b""
        headers = {
            "Accept": "text/html",
            "X-Own": "a",
            "Connection": "close, X-Hop",
            "X-Hop": "1",
            "TE": "trailers",
            "X-Forwarded-For": "1.2.3.4",
            "Impersonate-User": "admin",
            "Impersonate-Group": "system:masters",
        }
        got = await w.ask(method, f"{PODS}/p/proxy/a%20b/c/?x=%2F&y", headers, body)
        assert got.status == 200, got.body
        printed = got.json
        assert (printed["method"], printed["target"], printed["body"]) == (
            method,
            "/a%20b/c/?x=%2F&y",
            body.decode(),
        )
        assert printed["headers"] == {
            "host": "api:6443",
            "accept": "text/html",
            "x-own": "a",
            "x-forwarded-for": "1.2.3.4, 127.0.0.1",
            "x-forwarded-uri": f"{PODS}/p/proxy/a b/c/",
            **({"content-length": "5"} if body else {}),
        }
        assert (got.headers["x-own"], got.headers["cache-control"]) == (
            "1",
            "no-cache, private",
        )


async def test_head_keeps_the_length(tmp_path: Path) -> None:
    async with run(), running_api_server(tmp_path) as w:
        w.network.listen(POD_IP, 80, lambda request: HttpResponse(200, [], bytes(300_000)))
        await w.pod()
        got = await w.ask("HEAD", f"{PODS}/p/proxy/", {"Accept-Encoding": "gzip"})
        assert (got.status, got.headers["content-length"]) == (200, "300000")


async def test_how_names_are_resolved(tmp_path: Path) -> None:
    async def where(w: ApiHarness, target: str) -> Any:
        got = await w.ask("GET", target)
        return (
            got.body.decode()
            if got.status == 200
            else (got.status, got.json["message"], got.json.get("reason"))
        )

    async with run(), running_api_server(tmp_path) as w:

        def place(name: str) -> Any:
            return lambda request: HttpResponse(200, [], name.encode())

        context = w._context
        w.network.listen(POD_IP, 80, place("pod:80"))
        w.network.listen(POD_IP, 8080, place("pod:8080"))
        w.network.listen(POD_IP, 443, place("pod:443"), context)
        w.network.listen("10.244.0.4", 80, place("bare:80"))
        w.network.listen("10.244.0.4", 443, place("bare:443"), context)
        w.network.listen(NODE_IP, 9100, place("node:9100"))
        w.kubelet(
            lambda r: HttpResponse(
                200, [], f"kubelet {r.peer.cn if r.peer else ''} {r.target.decode()}".encode()
            )
        )
        await w.node()
        await w.pod(ports=(8080, 80))
        await w.pod("bare", ports=(), ip="10.244.0.4")
        await w.pod("loop", ip="127.0.0.1")
        await w.pod("early", ip="")
        pods = {
            "p": "pod:8080",
            "p:80": "pod:80",
            "http:p:80": "pod:80",
            "https:p:443": "pod:443",
            "bare": "bare:80",
            "https:bare:": "bare:443",
            "none": (404, 'pods "none" not found', "NotFound"),
            "loop": (400, "address not allowed", "BadRequest"),
            "early": (400, "address not allowed", "BadRequest"),
            "ftp:p:80": (400, 'invalid pod request "ftp:p:80"', "BadRequest"),
            "a:b:c:d": (400, 'invalid pod request "a:b:c:d"', "BadRequest"),
            "p:81": (
                500,
                (
                    f"error trying to reach service: dial tcp {POD_IP}:81: connect: "
                    "connection refused"
                ),
                None,
            ),
            "https:p:80": (
                500,
                ("error trying to reach service: http: server gave HTTP response to HTTPS client"),
                None,
            ),
        }
        for name, expected in pods.items():
            assert await where(w, f"{PODS}/{name}/proxy/") == expected, name
        nodes = {
            "n1": "kubelet kube-apiserver-kubelet-client /healthz",
            "n1:10250": "kubelet kube-apiserver-kubelet-client /healthz",
            "n1:9100": "node:9100",
            "none": (404, 'nodes "none" not found', "NotFound"),
            "x:n1:1": (400, 'invalid node request "x:n1:1"', "BadRequest"),
        }
        for name, expected in nodes.items():
            assert await where(w, f"/api/v1/nodes/{name}/proxy/healthz") == expected, name


@pytest.mark.parametrize(
    ("release", "status", "reason"),
    [("1.20", 500, None), ("1.21", 503, "ServiceUnavailable"), ("1.36", 503, "ServiceUnavailable")],
)
async def test_a_target_that_cannot_be_reached(
    tmp_path: Path, release: str, status: int, reason: str | None
) -> None:
    async with run(), running_api_server(tmp_path, release=release) as w:
        await w.pod()
        message = (
            f"error trying to reach service: dial tcp {POD_IP}:81: connect: connection refused"
        )
        got = await w.ask("GET", f"{PODS}/p:81/proxy/")
        found = (got.status, got.json["message"], got.json.get("reason"))
        assert found == (status, message, reason)


async def test_services_lead_to_pods(tmp_path: Path) -> None:
    async with run(), running_api_server(tmp_path) as w:
        w.network.listen(POD_IP, 8080, lambda request: HttpResponse(200, [], b"web"))
        w.network.listen(POD_IP, 9090, lambda request: HttpResponse(200, [], b"metrics"))
        await w.pod()
        ports = [{"name": "http", "port": 80}, {"name": "m", "port": 90}]
        await w.api.ok("POST", SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": ports}})
        await w.api.ok(
            "POST", SERVICES, {"metadata": {"name": "plain"}, "spec": {"ports": [{"port": 80}]}}
        )
        endpoints = "/api/v1/namespaces/default/endpoints"
        good = {"ip": POD_IP, "targetRef": {"kind": "Pod", "name": "p", "namespace": "default"}}
        others = [
            {"ip": "10.1.1.1"},
            {"ip": "10.1.1.2", "targetRef": good["targetRef"]},
            {
                "ip": POD_IP,
                "targetRef": {"kind": "Pod", "name": "gone", "namespace": "default"},
            },
        ]
        await w.api.ok(
            "POST",
            endpoints,
            {
                "metadata": {"name": "s"},
                "subsets": [
                    {
                        "addresses": [*others, good],
                        "ports": [{"name": "http", "port": 8080}, {"name": "m", "port": 9090}],
                    }
                ],
            },
        )
        await w.api.ok(
            "POST",
            endpoints,
            {
                "metadata": {"name": "plain"},
                "subsets": [{"addresses": others, "ports": [{"port": 8080}]}],
            },
        )

        async def ask(name: str) -> Any:
            got = await w.ask("GET", f"{SERVICES}/{name}/proxy/")
            return got.body.decode() if got.status == 200 else (got.status, got.json["message"])

        assert [await ask(name) for name in ("s:http", "s:80", "http:s:m", "s:90")] == [
            "web",
            "web",
            "metrics",
            "metrics",
        ]
        assert await ask("s") == (503, 'no endpoints available for service "s"')
        assert await ask("s:81") == (503, 'no service port 81 found for service "s"')
        assert await ask("http:s:x") == (503, 'no endpoints available for service "http:s:x"')
        assert await ask("plain") == (503, 'no endpoints available for service "plain"')
        assert await ask("none") == (404, 'endpoints "none" not found')
        assert await ask("none:80") == (404, 'services "none" not found')


async def test_a_bare_proxy_leads_below_itself(tmp_path: Path) -> None:
    async with run(), running_api_server(tmp_path) as w:
        await w.pod()
        got = await w.ask("GET", f"{PODS}/p/proxy?a=b")
        assert (got.status, got.headers["location"], got.body) == (
            301,
            f"{PODS}/p/proxy/?a=b",
            b"",
        )


@pytest.mark.parametrize(("release", "proxied"), [("1.22", False), ("1.23", True), ("1.36", True)])
async def test_only_reads_are_redirected_from_a_bare_proxy(
    tmp_path: Path, release: str, proxied: bool
) -> None:
    async with run(), running_api_server(tmp_path, release=release) as w:
        w.network.listen(POD_IP, 80, echo)
        await w.pod()
        for method in ("GET", "HEAD"):
            assert (await w.ask(method, f"{PODS}/p/proxy?a=b")).status == 301
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            got = await w.ask(method, f"{PODS}/p/proxy?a=b")
            assert got.status == (200 if proxied else 301)
            if proxied:
                assert (got.json["method"], got.json["target"]) == (method, "/?a=b")


async def test_redirects_pages_and_foreign_headers(tmp_path: Path) -> None:
    page = b'<html><a href="/x">x</a></html>'
    expected = f'<html><a href="{PODS}/p/proxy/x">x</a></html>'.encode()

    def serve(request: HttpRequest) -> Answer:
        html = (b"Content-Type", b"text/html; charset=utf-8")
        deflate = zlib.compressobj(wbits=-15)
        return {
            "/to": lambda: HttpResponse(302, [(b"Location", b"/login/?next=%2F")], b"moved"),
            "/page": lambda: HttpResponse(
                200,
                [
                    html,
                    (b"Access-Control-Allow-Origin", b"*"),
                    (b"Connection", b"X-Gone"),
                    (b"X-Gone", b"1"),
                    (b"Cache-Control", b"max-age=1"),
                ],
                page,
            ),
            "/gzip": lambda: HttpResponse(
                200, [html, (b"Content-Encoding", b"gzip")], gzip.compress(page)
            ),
            "/deflate": lambda: HttpResponse(
                200,
                [html, (b"Content-Encoding", b"deflate")],
                deflate.compress(page) + deflate.flush(),
            ),
            "/br": lambda: HttpResponse(200, [html, (b"Content-Encoding", b"br")], page),
            "/text": lambda: HttpResponse(200, [(b"Content-Type", b"text/plain")], page),
        }[request.path]()

    async with run(), running_api_server(tmp_path) as w:
        w.network.listen(POD_IP, 80, serve)
        await w.pod()
        base = f"{PODS}/p/proxy"
        got = await w.ask("GET", f"{base}/to")
        assert (got.status, got.headers["location"], got.body) == (
            302,
            f"{base}/login/?next=%2F",
            b"moved",
        )
        got = await w.ask("GET", f"{base}/page")
        assert got.body == expected
        assert not {"x-gone", "access-control-allow-origin"} & got.headers.keys()
        assert got.headers["cache-control"] == "no-cache, private|max-age=1"
        assert gzip.decompress((await w.ask("GET", f"{base}/gzip")).body) == expected
        assert zlib.decompress((await w.ask("GET", f"{base}/deflate")).body, -15) == expected
        assert (await w.ask("GET", f"{base}/br")).body == page
        assert (await w.ask("GET", f"{base}/text")).body == page


async def test_large_bodies_flow_through_both_ways(tmp_path: Path) -> None:
    """More than the server would ever gather, and an answer that begins before the request has
    ended.
    """

    async with run():
        size = 20 * 1024 * 1024

        def serve(request: HttpRequest) -> Answer:
            if request.path == "/down":
                return HttpResponse(200, [], [bytes(1024 * 1024)] * 20)
            assert request.stream is not None
            return StreamResponse(
                200, [], lambda stream: tasks.append(asyncio.create_task(copy(request, stream)))
            )

        async def copy(request: HttpRequest, stream: Stream) -> None:
            assert request.stream is not None
            while data := await request.stream.read():
                stream.write(data)
                await stream.drained()
            stream.close()

        class Copying:
            __call__ = staticmethod(serve)
            streams_body = staticmethod(lambda path: True)
            body_owner = staticmethod(lambda request: "test-user")

        tasks: list[asyncio.Task[None]] = []
        async with running_api_server(tmp_path) as w:
            w.network.listen(POD_IP, 80, Copying())
            await w.pod()
            got = await w.ask("GET", f"{PODS}/p/proxy/down")
            assert (len(got.body), got.headers["content-length"]) == (size, str(size))
            peer = await w.peer()
            await peer.send("POST", f"{PODS}/p/proxy/up", {"Content-Length": str(size)})
            got_head, sent, back = None, 0, 0
            piece = bytes(256 * 1024)
            while sent < size:
                peer.writer.write(piece)
                sent += len(piece)
                await peer.writer.drain()
                if got_head is None:
                    got_head = await peer.head()
                back += len(await peer.chunk())
            while more := await peer.chunk():
                back += len(more)
            assert got_head is not None
            assert (got_head[0], back) == (200, size)
            # and in chunks
            await peer.send(
                "POST",
                f"{PODS}/p/proxy/up",
                {"Transfer-Encoding": "chunked"},
                b"5\r\nhello\r\n0\r\n\r\n",
            )
            assert (await peer.answer()).body == b"hello"
            peer.close()


async def test_a_truncated_body_is_an_error(tmp_path: Path) -> None:
    async with run():
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def serve(request: HttpRequest) -> Answer:
            assert request.stream is not None
            try:
                while await request.stream.read():
                    pass
                ended.set_result("whole")
            except ConnectionResetError:
                ended.set_result("broken")
            return HttpResponse(200, [])

        class Reading:
            __call__ = staticmethod(serve)
            streams_body = staticmethod(lambda path: True)
            body_owner = staticmethod(lambda request: "test-user")

        async with running_api_server(tmp_path) as w:
            w.network.listen(POD_IP, 80, Reading())
            await w.pod()
            peer = await w.peer()
            await peer.send("POST", f"{PODS}/p/proxy/up", {"Content-Length": "1000000"}, b"")
            peer.writer.write(bytes(1000))
            await peer.writer.drain()
            peer.writer.transport.abort()
            assert await ended == "broken"


async def test_an_early_answer_ends_an_upload(tmp_path: Path) -> None:
    async with run(), running_api_server(tmp_path) as w:
        await w.pod()
        peer = await w.peer()
        await peer.send("POST", f"{PODS}/p:99/proxy/up", {"Content-Length": "1000000"})
        got = await peer.answer()
        assert got.status == 500
        peer.writer.write(bytes(1000000))
        assert (await peer.ask("GET", "/version")).status == 200  # the connection is still good
        peer.close()


async def test_upgrades_go_through(tmp_path: Path) -> None:
    async with run():
        seen: list[HttpRequest] = []

        def serve(request: HttpRequest) -> Answer:
            seen.append(request)
            if request.path == "/no":
                return HttpResponse(426, [(b"X-Why", b"because")], b"not here")
            if request.path == "/ok":
                return HttpResponse(200, [], b"no upgrade")

            def start(raw: RawConnection) -> None:
                raw.receive(lambda data: raw.close() if data == b"bye" else raw.write(data.upper()))

            return UpgradeResponse([(b"Connection", b"Upgrade"), (b"Upgrade", b"shout")], start)

        async with running_api_server(tmp_path) as w:
            w.network.listen(POD_IP, 80, serve)
            await w.pod()
            headers = {"Connection": "Upgrade", "Upgrade": "shout"}
            peer = await w.peer()
            await peer.send("GET", f"{PODS}/p/proxy/talk", headers, b"")
            status, got = await peer.head()
            assert (status, got["upgrade"]) == (101, "shout")
            peer.writer.write(b"hello")
            assert await peer.reader.readexactly(5) == b"HELLO"
            peer.writer.write(b"bye")
            assert await peer.reader.read() == b""
            peer.close()
            assert (seen[0].path, seen[0].header(b"host"), seen[0].header(b"x-forwarded-for")) == (
                "/talk",
                "api:6443",
                "127.0.0.1",
            )
            refused = await w.ask("GET", f"{PODS}/p/proxy/no", headers)
            assert (refused.status, refused.body, refused.headers["x-why"]) == (
                426,
                b"not here",
                "because",
            )
            odd = await w.ask("GET", f"{PODS}/p/proxy/ok", headers)
            assert (odd.status, odd.json["message"]) == (
                500,
                "invalid upgrade response: status code 200",
            )
            down = await w.ask("GET", f"{PODS}/p:9/proxy/", headers)
            assert (down.status, down.json["message"]) == (
                500,
                f"error dialing backend: dial tcp {POD_IP}:9: connect: connection refused",
            )
