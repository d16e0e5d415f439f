"""Handlers of probes against servers in the model network: outcomes and the texts of failures."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from tests.kubelet.small import Node, running_node

from transom.kubelet.prober.handlers import (
    ProbeError,
    ProbeOutcome,
    ProbeTarget,
    make_probe_handler,
)
from transom.machinery.objects import Object
from transom.runtime.api import ExecResult, RuntimeFailure

TARGET = ProbeTarget("c1", "10.244.1.5")
CONTAINER: Object = {
    "name": "app",
    "env": [{"name": "A", "value": "x"}],
    "ports": [{"name": "web", "containerPort": 80}],
}


class Server:
    """Answers each connection with the next of its answers; None never answers."""

    def __init__(
        self, node: Node, *answers: bytes | None, address: str = "10.244.1.5", port: int = 80
    ) -> None:
        self.requests: list[bytes] = []
        self._answers = list(answers)
        self._open: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        node.net.listen(address, port, self._accept)

    def _accept(self, sock: socket.socket) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(self._serve(sock)))

    async def _serve(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._open.append(sock)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self.requests.append(await loop.sock_recv(sock, 65536))
        if answer is not None:
            await loop.sock_sendall(sock, answer)
            sock.close()


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def run(node: Node, probe: Object, seconds: float = 0.0) -> ProbeOutcome:
    task = asyncio.ensure_future(
        make_probe_handler(node.env, probe, CONTAINER, "web_default(u)")(TARGET)
    )
    for _ in range(500):
        await asyncio.sleep(0)
        if task.done():
            break
    if not task.done():
        await node.clock.run_for(seconds)
    return await task


def http(node: Node, path: str = "/", **action: Any) -> Any:
    return run(
        node,
        {"httpGet": {"path": path, "port": "web", "scheme": "HTTP", **action}, "timeoutSeconds": 1},
        2,
    )


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, ProbeOutcome("success", "ok")),
        (204, ProbeOutcome("success")),
        (304, ProbeOutcome("warning")),
        (404, ProbeOutcome("failure", "HTTP probe failed with statuscode: 404")),
        (500, ProbeOutcome("failure", "HTTP probe failed with statuscode: 500")),
    ],
)
async def test_http_status(status: int, outcome: ProbeOutcome) -> None:
    async with running_node() as node:
        Server(node, answer(status, b"ok" if status not in (204, 304) else b""))
        assert await http(node) == outcome


async def test_http_request() -> None:
    async with running_node() as node:
        server = Server(node, answer(200))
        await http(
            node,
            "health z?a=b#c",
            httpHeaders=[{"name": "X-B", "value": "2"}, {"name": "X-A", "value": "1"}],
        )
        await http(
            node,
            "",
            httpHeaders=[
                {"name": "Host", "value": "h"},
                {"name": "Accept", "value": ""},
                {"name": "User-Agent", "value": "me"},
            ],
        )
        assert server.requests == [
            b"GET /health%20z?a=b HTTP/1.1\r\nHost: 10.244.1.5:80\r\nUser-Agent: "
            b"kube-probe/1.20\r\nAccept: */*\r\n"
            b"X-A: 1\r\nX-B: 2\r\nConnection: close\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: me\r\nConnection: close\r\n\r\n",
        ]


async def test_http_redirects_stay_on_the_host() -> None:
    async def scenario(node: Node) -> None:
        server = Server(node, answer(302, Location="/next"), answer(200, b"there"))
        assert await http(node) == ProbeOutcome("success", "there")
        assert server.requests[1].startswith(b"GET /next HTTP/1.1\r\nHost: 10.244.1.5:80\r\n")
        assert b"Referer: http://10.244.1.5:80/\r\n" in server.requests[1]

    async def elsewhere(node: Node) -> None:
        Server(node, answer(302, b"moved", Location="http://example.com/"))
        assert await http(node) == ProbeOutcome("warning", "moved")

    async def forever(node: Node) -> None:
        Server(node, answer(301, Location="/again"))
        assert await http(node) == ProbeOutcome(
            "failure", 'Get "/again": stopped after 10 redirects'
        )

    async def nowhere(node: Node) -> None:
        Server(node, answer(301))
        assert await http(node) == ProbeOutcome(
            "failure", 'Get "http://10.244.1.5:80/": 301 response missing Location header'
        )

    for each in (scenario, elsewhere, forever, nowhere):
        async with running_node() as made:
            await each(made)


async def test_http_failures() -> None:
    get = 'Get "http://10.244.1.5:80/": '

    async def refused(node: Node) -> None:
        node.net.hold("10.244.1.5")
        assert await http(node) == ProbeOutcome(
            "failure", get + "dial tcp 10.244.1.5:80: connect: connection refused"
        )

    async def no_route(node: Node) -> None:
        assert await http(node) == ProbeOutcome(
            "failure", get + "dial tcp 10.244.1.5:80: connect: no route to host"
        )

    async def silent(node: Node) -> None:
        Server(node, None)
        assert await http(node) == ProbeOutcome(
            "failure",
            get + "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
        )
        assert node.clock.monotonic() == 2

    async def lost_packets(node: Node) -> None:
        async def blackhole(address: str, port: int) -> socket.socket:
            raise TimeoutError

        node.net.connect = blackhole  # type: ignore[method-assign, assignment]
        assert "awaiting headers" in (await http(node)).output

    async def hung_up(node: Node) -> None:
        Server(node, b"")
        assert await http(node) == ProbeOutcome("failure", get + "EOF")

    async def no_http(node: Node) -> None:
        Server(node, b"SSH-2.0-x\r\n")
        assert await http(node) == ProbeOutcome(
            "failure",
            get
            + 'net/http: HTTP/1.x transport connection broken: malformed HTTP response "SSH-2.0-x"',
        )

    async def half_a_body(node: Node) -> None:
        Server(node, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        with pytest.raises(ProbeError, match="unexpected EOF"):
            await http(node)

    async def no_tls(node: Node) -> None:
        Server(node, answer(400))
        assert await http(node, scheme="HTTPS") == ProbeOutcome(
            "failure",
            'Get "https://10.244.1.5:80/": http: server gave HTTP response to HTTPS client',
        )

    for each in (refused, no_route, silent, lost_packets, hung_up, no_http, half_a_body, no_tls):
        async with running_node() as made:
            await each(made)


async def test_a_long_body_is_cut() -> None:
    async with running_node() as node:
        Server(node, answer(200, b"x" * 50_000))
        assert len((await http(node)).output) == 10240


async def test_loopback_is_the_node() -> None:
    async with running_node() as node:
        server = Server(node, answer(200), address="10.0.0.1", port=10257)
        assert await http(node, "/healthz", host="127.0.0.1", port=10257) == ProbeOutcome("success")
        assert b"Host: 127.0.0.1:10257" in server.requests[0]


async def test_tcp() -> None:
    async with running_node() as node:
        probe = {"tcpSocket": {"port": 80}, "timeoutSeconds": 1}
        node.net.hold("10.244.1.5")
        assert await run(node, probe) == ProbeOutcome(
            "failure", "dial tcp 10.244.1.5:80: connect: connection refused"
        )
        node.net.listen("10.244.1.5", 80, lambda sock: sock.close())
        assert await run(node, probe) == ProbeOutcome("success")

        async def blackhole(address: str, port: int) -> socket.socket:
            raise TimeoutError

        node.net.connect = blackhole  # type: ignore[method-assign, assignment]
        assert await run(node, probe, 2) == ProbeOutcome(
            "failure", "dial tcp 10.244.1.5:80: i/o timeout"
        )


@pytest.mark.parametrize(
    ("port", "problem"),
    [
        ("none", 'strconv.Atoi: parsing "none": invalid syntax'),
        (0, "invalid port number: 0"),
        ("70000", "invalid port number: 70000"),
    ],
)
async def test_ports_that_are_none(port: int | str, problem: str) -> None:
    async with running_node() as node:
        for field in ("tcpSocket", "httpGet"):
            with pytest.raises(ProbeError) as error:
                await run(node, {field: {"port": port}})
            assert str(error.value) == problem


async def test_exec() -> None:
    probe = {"exec": {"command": ["cat", "$(A)", "$(B)"]}, "timeoutSeconds": 3}

    async with running_node() as node:
        node.runtime.commands = [
            ExecResult(b"fine", b"", 0),
            ExecResult(b"out", b"err", 2),
            ExecResult(b"x" * 20_000, b"", 1),
            RuntimeFailure("DeadlineExceeded", "late"),
            RuntimeFailure("Unknown", "container is not running"),
        ]
        assert await run(node, probe) == ProbeOutcome("success", "fine")
        assert node.runtime.calls == [("exec", "c1", ("cat", "x", "$(B)"), 3.0)]
        assert await run(node, probe) == ProbeOutcome("failure", "outerr")
        assert len((await run(node, probe)).output) == 10240
        assert await run(node, probe) == ProbeOutcome("failure", "")
        with pytest.raises(
            ProbeError, match="rpc error: code = Unknown desc = container is not running"
        ):
            await run(node, probe)
    async with running_node(version="v1.24.0") as node:
        node.runtime.commands = [RuntimeFailure("DeadlineExceeded", "late")]
        assert await run(node, probe) == ProbeOutcome("failure", 'command "cat x $(B)" timed out')


async def test_probe_failures_on_windows_have_the_texts_of_windows() -> None:
    refused = (
        "dial tcp 10.244.1.5:80: connectex: No connection could be made because the target "
        "machine actively refused it."
    )
    get = 'Get "http://10.244.1.5:80/": '

    async with running_node(system="windows") as node:
        assert await http(node) == ProbeOutcome(
            "failure",
            get
            + (
                "dial tcp 10.244.1.5:80: connectex: A socket operation was attempted to an "
                "unreachable host."
            ),
        )
        node.net.hold("10.244.1.5")
        assert await http(node) == ProbeOutcome("failure", get + refused)
        assert await run(node, {"tcpSocket": {"port": 80}, "timeoutSeconds": 1}) == ProbeOutcome(
            "failure", refused
        )
