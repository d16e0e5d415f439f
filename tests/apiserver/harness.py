"""An API server without sockets: requests are passed to its handler, responses are returned as
dicts.
"""

from __future__ import annotations

from typing import Any

import orjson

from transom.apiserver.server import ApiServer, ServerOptions, build_api_server
from transom.http.messages import (
    HttpRequest,
    HttpResponse,
    PeerCertificate,
    StreamResponse,
    decode_path,
)
from transom.kit.clock import VirtualClock
from transom.store.memory import MemoryStore

ADMIN = PeerCertificate("admin", ["system:masters"])


class FakeStream:
    """What a watch writes, as decoded events."""

    def __init__(self) -> None:
        self.raw = b""
        self.alive = True
        self.on_close: Any = None

    def write_framed(self, data: bytes) -> None:
        self.raw += data

    def offer(self, data: bytes) -> bool:
        self.raw += data
        return True

    def follow(self, source: Any) -> None:
        """A client that reads at once."""
        while (parts := source.read(65536)) is not None:
            self.raw += b"".join(parts)

    async def drained(self) -> None:
        return

    def close(self) -> None:
        self.alive = False

    def events(self) -> list[dict[str, Any]]:
        out, rest = [], self.raw
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            out.append(orjson.loads(rest[: int(size, 16)]))
            rest = rest[int(size, 16) + 2 :]
        self.raw = b""
        return out


class Api:
    def __init__(self, server: ApiServer, clock: Any) -> None:
        self.server = server
        self.clock = clock

    async def send(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        media: str = "application/json",
        accept: str = "application/json",
        peer: PeerCertificate | None = ADMIN,
        headers: dict[bytes, bytes] | None = None,
    ) -> Any:
        raw = target.encode()
        path = decode_path(raw)
        assert path is not None
        data = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        request = HttpRequest(
            method,
            raw,
            path,
            {
                b"accept": accept.encode(),
                b"content-type": media.encode(),
                b"user-agent": b"tests/1",
                **(headers or {}),
            },
            data,
            peer,
        )
        answer = self.server.handler(request)
        return await answer if hasattr(answer, "__await__") else answer

    async def call(
        self, method: str, target: str, body: Any = None, **more: Any
    ) -> tuple[int, Any]:
        """Status and decoded body."""
        answer = await self.send(method, target, body, **more)
        assert isinstance(answer, HttpResponse), answer
        data = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        try:
            return answer.status, orjson.loads(data) if data else None
        except orjson.JSONDecodeError:
            return answer.status, data.decode()

    async def ok(self, method: str, target: str, body: Any = None, **more: Any) -> Any:
        status, answer = await self.call(method, target, body, **more)
        assert status < 300, (status, answer)
        return answer

    async def watch(self, target: str, **more: Any) -> FakeStream:
        answer = await self.send("GET", target, **more)
        assert isinstance(answer, StreamResponse), answer
        stream = FakeStream()
        answer.start(stream)  # type: ignore[arg-type]
        return stream


async def start(store: Any = None, clock: Any = None, **options: Any) -> Api:
    clock = clock or VirtualClock()
    server = build_api_server(
        ServerOptions(store=store or MemoryStore(clock), clock=clock, **options)
    )
    await server.start()
    return Api(server, clock)
