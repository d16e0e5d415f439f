"""Health checks over gRPC, against a server of a few frames."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest
from hpack import Decoder
from tests.kubelet.small import Node, running_node

from transom.kubelet.prober.handlers import ProbeOutcome, ProbeTarget, make_probe_handler


def literal(name: str, value: str) -> bytes:
    """A header field without indexing, RFC 7541 section 6.2.2."""
    return b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


def frame(kind: int, flags: int, payload: bytes, stream: int = 1) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload
    )


SETTINGS, PING = frame(4, 0, b"", 0), frame(6, 0, b"12345678", 0)
HEAD = frame(1, 0x4, b"\x88" + literal("content-type", "application/grpc"))  # 0x88: :status 200
# The same code word that gRPC servers write: grpc-status in Huffman's code, then the plain value.
STATUS = b"\x40\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f"


def trailers(status: str, message: str = "") -> bytes:
    block = STATUS + bytes((len(status),)) + status.encode()
    return frame(1, 0x5, block + (literal("grpc-message", message) if message else b""))


def serving(value: int) -> bytes:
    message = bytes((8, value)) if value else b""
    return HEAD + frame(0, 0, b"\0" + len(message).to_bytes(4, "big") + message) + trailers("0")


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS = 0, 1


def frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and payload of the complete frames of a client."""
    at = len(PREFACE)
    while at + 9 <= len(data):
        end = at + 9 + int.from_bytes(data[at : at + 3], "big")
        if end > len(data):
            return
        yield data[at + 3], data[at + 9 : end]
        at = end


class Server:
    def __init__(self, node: Node, greeting: bytes, answer: bytes | None) -> None:
        self.seen = b""
        self._open: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._greeting, self._answer = greeting, answer
        node.net.listen("10.244.1.5", 9090, self._accept)

    def _accept(self, sock: socket.socket) -> None:
        self._open.append(sock)
        self._tasks.append(asyncio.get_running_loop().create_task(self._serve(sock)))

    async def _serve(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, self._greeting)
        while DATA not in dict(frames(self.seen)):
            data = await loop.sock_recv(sock, 65536)
            if not data:
                return
            self.seen += data
        if self._answer is not None:
            await loop.sock_sendall(sock, self._answer)


async def outcome(
    greeting: bytes, answer: bytes | None, service: str = "", listening: bool = True
) -> tuple[ProbeOutcome, bytes]:
    async with running_node(version="v1.27.0") as node:
        server = Server(node, greeting, answer) if listening else None
        probe = {"grpc": {"port": 9090, "service": service}, "timeoutSeconds": 2}
        task = asyncio.ensure_future(
            make_probe_handler(node.env, probe, {"name": "app"}, "p")(
                ProbeTarget("c", "10.244.1.5")
            )
        )
        for _ in range(300):
            await asyncio.sleep(0)
        await node.clock.run_for(2)
        return await task, server.seen if server else b""


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (serving(1), ProbeOutcome("success", "service healthy")),
        (
            PING + serving(2),
            ProbeOutcome("failure", 'service unhealthy (responded with "NOT_SERVING")'),
        ),
        (serving(0), ProbeOutcome("failure", 'service unhealthy (responded with "UNKNOWN")')),
        (
            frame(1, 0x5, b"\x88" + STATUS + b"\x0212"),
            ProbeOutcome(
                "failure",
                (
                    "error: this server does not implement the grpc health protocol "
                    "(grpc.health.v1.Health): "
                ),
            ),
        ),
        (
            HEAD + trailers("5", "unknown%20service"),
            ProbeOutcome(
                "failure",
                "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service",
            ),
        ),
        (
            frame(7, 0, b"\0" * 8, 0),
            ProbeOutcome(
                "failure",
                (
                    "error: health rpc probe failed: rpc error: code = Unavailable desc = error "
                    "reading from server: EOF"
                ),
            ),
        ),
        (None, ProbeOutcome("failure", "timeout: health rpc did not complete within 2s")),
    ],
)
async def test_answers(answer: bytes | None, wanted: ProbeOutcome) -> None:
    assert (await outcome(SETTINGS, answer))[0] == wanted


async def test_the_service_is_named() -> None:
    _, seen = await outcome(SETTINGS, serving(1), "my.Service")
    assert seen.startswith(PREFACE)
    sent = dict(frames(seen))
    assert sent[DATA] == b"\0\0\0\0\x0c\x0a\x0amy.Service"
    headers = dict(Decoder().decode(sent[HEADERS]))
    assert headers == {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/grpc.health.v1.Health/Check",
        ":authority": "10.244.1.5:9090",
        "te": "trailers",
        "content-type": "application/grpc",
        "user-agent": "kube-probe/1.27",
        "grpc-timeout": "2000m",
    }


@pytest.mark.parametrize(
    ("greeting", "listening"), [(b"", False), (b"HTTP/1.1 400 Bad Request\r\n\r\n", True)]
)
async def test_no_grpc_server(greeting: bytes, listening: bool) -> None:
    assert (await outcome(greeting, None, listening=listening))[0] == ProbeOutcome(
        "failure",
        'timeout: failed to connect service "10.244.1.5:9090" within 2s: context deadline exceeded',
    )


TOO_LARGE = (
    "error: health rpc probe failed: rpc error: code = ResourceExhausted desc = grpc: received "
    "message larger than max (2021161080 vs. 4194304)"
)
BROKEN = (
    "error: health rpc probe failed: rpc error: code = Unavailable desc = error reading from "
    "server: EOF"
)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (HEAD + frame(0, 0, b"x" * 16_000) * 300, TOO_LARGE),
        (frame(1, 0, b"x" * 16_000) + frame(9, 0, b"x" * 16_000) * 70, BROKEN),
        (frame(4, 1, b"", 0) * 11_000, BROKEN),
        (frame(0, 0, b"x" * 20_000), BROKEN),
        (HEAD + frame(1, 0x5, b"\x7f" + b"\xff" * 10_000), BROKEN),
    ],
    ids=["message", "headers", "frames", "frame", "integer"],
)
async def test_an_endless_answer_is_broken_off(answer: bytes, error: str) -> None:
    """Before its time is over: what it sends would otherwise be kept until then."""
    assert (await outcome(SETTINGS, answer))[0] == ProbeOutcome("failure", error)
