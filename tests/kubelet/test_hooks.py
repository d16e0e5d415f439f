"""Hooks: what they do and what is reported when they fail."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from tests.kubelet.small import Node, make_pod, running_node

from transom.kubelet.hooks import HookRunner
from transom.kubelet.interfaces import HookFailure
from transom.machinery.objects import Object
from transom.runtime.api import ExecResult, RuntimeFailure

CONTAINER: Object = {"name": "app", "ports": [{"name": "web", "containerPort": 8080}]}
WHERE = 'for Container "app" in Pod "web_default(uid-web)" failed'


async def failure(node: Node, handler: Object) -> HookFailure:
    pod = make_pod("web", CONTAINER)
    task = asyncio.ensure_future(HookRunner(node.env).run(pod, CONTAINER, "c1", handler))
    await node.clock.run_for(60)
    with pytest.raises(HookFailure) as problem:
        await task
    return problem.value


async def test_exec() -> None:
    async with running_node() as node:
        handler = {"exec": {"command": ["sh", "-c", "x y"]}}
        node.runtime.commands = [
            ExecResult(b"o\n", b"e\n", 3),
            RuntimeFailure("Unknown", "gone"),
            ExecResult(b"", b"", 0),
        ]
        problem = await failure(node, handler)
        assert problem.error == "command 'sh -c x y' exited with 3: e\n"
        assert str(problem) == (
            f"Exec lifecycle hook ([sh -c x y]) {WHERE} - error: {problem.error}, message: "
            '"o\\ne\\n"'
        )
        assert str(await failure(node, handler)).endswith(
            'error: rpc error: code = Unknown desc = gone, message: ""'
        )
        await HookRunner(node.env).run(make_pod(), CONTAINER, "c1", handler)
        assert node.runtime.calls[-1] == ("exec", "c1", ("sh", "-c", "x y"), 0)


def serve(node: Node, port: int, seen: list[bytes]) -> None:
    tasks: list[Any] = []

    def accept(sock: socket.socket) -> None:
        async def answer() -> None:
            loop = asyncio.get_running_loop()
            seen.append(await loop.sock_recv(sock, 4096))
            await loop.sock_sendall(sock, b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
            sock.close()

        tasks.append(asyncio.get_running_loop().create_task(answer()))

    node.net.listen("10.0.0.1", port, accept)


async def test_http_get_takes_any_answer_and_doubles_the_slash() -> None:
    async with running_node() as node:
        await node.start(make_pod("web", CONTAINER))  # its address is 10.0.0.1
        seen: list[bytes] = []
        serve(node, 8080, seen)
        handler = {"httpGet": {"path": "/bye", "port": "web"}}
        await HookRunner(node.env).run(make_pod("web", CONTAINER), CONTAINER, "c1", handler)
        assert seen[0].startswith(
            b"GET //bye HTTP/1.1\r\nHost: 10.0.0.1:8080\r\nUser-Agent: Go-http-client/1.1\r\n"
        )


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (
            {"path": "/x", "port": 80},
            'Get "http://10.0.0.1:80//x": dial tcp 10.0.0.1:80: connect: no route to host',
        ),
        (
            {"path": "", "port": "", "host": "1.2.3.4"},
            'Get "http://1.2.3.4:80/": dial tcp 1.2.3.4:80: connect: no route to host',
        ),
        ({"path": "/x", "port": "none"}, "couldn't find port: {1 0 none} in app"),
    ],
)
async def test_http_get_fails(handler: Object, error: str) -> None:
    async with running_node() as node:
        await node.start(make_pod("web", CONTAINER))
        problem = await failure(node, {"httpGet": handler})
        assert problem.error == error
        assert (
            str(problem)
            == f'Http lifecycle hook ({handler["path"]}) {WHERE} - error: {error}, message: ""'
        )


async def test_newer_hooks_make_the_requests_of_probes() -> None:
    async with running_node(version="v1.36.0") as node:
        await node.start(make_pod("web", CONTAINER))
        seen: list[bytes] = []
        serve(node, 8080, seen)
        headers = [{"name": "x-team", "value": "a"}, {"name": "Host", "value": "app.example"}]
        handler = {"httpGet": {"path": "/bye?now=1", "port": "web", "httpHeaders": headers}}
        await HookRunner(node.env).run(make_pod("web", CONTAINER), CONTAINER, "c1", handler)
        assert seen[0].split(b"\r\n") == [
            b"GET /bye?now=1 HTTP/1.1",
            b"Host: app.example",
            b"User-Agent: kube-lifecycle/1.36",
            b"Accept: */*",
            b"X-Team: a",
            b"Connection: close",
            b"",
            b"",
        ]


@pytest.mark.parametrize(("version", "requests"), [("v1.25.0", 1), ("v1.26.0", 1)])
async def test_an_https_hook_falls_back_to_http(version: str, requests: int) -> None:
    """A kubelet before 1.26 ignores the scheme."""
    async with running_node(version=version) as node:
        await node.start(make_pod("web", CONTAINER))
        seen: list[bytes] = []
        serve(node, 8080, seen)
        headers = [{"name": "Authorization", "value": "secret"}]
        action = {"path": "/bye", "port": 8080, "scheme": "HTTPS", "httpHeaders": headers}
        await HookRunner(node.env).run(
            make_pod("web", CONTAINER), CONTAINER, "c1", {"httpGet": action}
        )
        plain = [request for request in seen if request.startswith(b"GET ")]
        assert len(plain) == requests
        assert b"secret" not in plain[0]
        assert node.recorded.all == (
            []
            if version == "v1.25.0"
            else [
                (
                    "LifecycleHTTPFallback",
                    "request to HTTPS lifecycle hook 10.0.0.1:8080 got HTTP response, retry with "
                    "HTTP succeeded",
                )
            ]
        )


async def test_no_packet_comes_back() -> None:
    async with running_node() as node:

        async def blackhole(address: str, port: int) -> socket.socket:
            raise TimeoutError

        node.net.connect = blackhole  # type: ignore[method-assign, assignment]
        assert (await failure(node, {"httpGet": {"path": "x", "port": 80, "host": "h"}})).error == (
            'Get "http://h:80/x": dial tcp h:80: i/o timeout'
        )


async def test_a_tcp_socket_is_not_a_valid_hook() -> None:
    async with running_node() as node:
        assert str(await failure(node, {"tcpSocket": {"port": 80}})) == (
            "Cannot run handler: invalid handler: "
            "&Handler{Exec:nil,HTTPGet:nil,TCPSocket:&TCPSocketAction{Port:{0 80 },Host:,},}"
        )
