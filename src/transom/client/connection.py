"""One HTTP/1.1 connection of the client: one request at a time, with a whole response or a stream
of lines.

Knows nothing about Kubernetes. Every connection failure raises `ApiUnreachable`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, cast

import httptools

from transom.client.api import ApiUnreachable
from transom.client.kubeconfig import RestConfig

_CONNECT_SECONDS = 15.0
# Unread bytes that a stream may buffer; beyond that the peer has to wait.
_HIGH_WATER = 4 << 20


class ApiResponse(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes


class ApiConnection(asyncio.Protocol):
    def __init__(self, on_lost: Callable[[ApiConnection], None]) -> None:
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        self._size = 0
        self._done: asyncio.Future[ApiResponse] | None = None
        self._head: asyncio.Future[ApiResponse] | None = None
        self._more: asyncio.Future[None] | None = None
        self._paused = False
        self._complete = True
        self._lost: ApiUnreachable | None = None
        self.answered = False  # whether any byte of the current response has arrived

    @property
    def usable(self) -> bool:
        return self._transport is not None and self._lost is None and self._complete

    # ---- requests ----

    async def exchange(self, request: bytes) -> ApiResponse:
        """Sends a request and waits for its whole response."""
        self._begin(request)
        self._done = asyncio.get_running_loop().create_future()
        try:
            return await self._done
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._done = None

    async def open_stream(self, request: bytes) -> ApiResponse:
        """Sends a request and waits for the head of its response; an error response is complete,
        the body of a success follows with `read_lines`.
        """
        self._begin(request)
        self._head = self._done = asyncio.get_running_loop().create_future()
        try:
            return await self._head
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._head = self._done = None

    async def read_lines(self) -> list[bytes]:
        """Whole lines of a stream's body, at least one; none when the body has ended."""
        while True:
            lines = self._take_lines()
            if lines or self._complete:
                return lines
            if self._lost is not None:
                raise self._lost
            self._more = asyncio.get_running_loop().create_future()
            try:
                await self._more
            finally:
                self._more = None

    def abort(self, why: str = "the connection was closed") -> None:
        if self._lost is None:
            self._fail(ApiUnreachable(why))
        if self._transport is not None:
            self._transport.abort()

    def _begin(self, request: bytes) -> None:
        if not self.usable or self._transport is None:
            raise self._lost or ApiUnreachable("the connection is in use")
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._parts, self._size = {}, [], 0
        self._complete = False
        self.answered = False
        self._transport.write(request)

    def _take_lines(self) -> list[bytes]:
        if not self._parts or not any(b"\n" in part for part in self._parts):
            return []
        data = b"".join(self._parts)
        end = data.rindex(b"\n") + 1
        self._parts = [data[end:]] if end < len(data) else []
        self._size = len(data) - end
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data[:end].splitlines()

    # ---- asyncio.Protocol ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._complete or self._parser is None:
            self.abort("the server sent an unexpected response")
            return
        self.answered = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as problem:
            self.abort(f"the server's answer is not HTTP: {problem}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._lost is None:
            self._fail(ApiUnreachable(str(exc) if exc else "the server closed the connection"))
        self._on_lost(self)

    def _fail(self, problem: ApiUnreachable) -> None:
        self._lost = problem
        for waiting in (self._done, self._head):
            if waiting is not None and not waiting.done():
                waiting.set_exception(problem)
        self._wake()

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    # ---- httptools ----

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if self._head is not None and status < 300 and not self._head.done():
            self._head.set_result(ApiResponse(status, self._headers, b""))

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._done is None:  # a stream
            self._wake()
            if self._size > _HIGH_WATER and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()

    def on_message_complete(self) -> None:
        assert self._parser is not None
        self._complete = True
        keep = self._parser.should_keep_alive()
        if self._done is not None and not self._done.done():
            self._done.set_result(
                ApiResponse(self._parser.get_status_code(), self._headers, b"".join(self._parts))
            )
            self._parts = []
        self._wake()
        if not keep and self._transport is not None:
            self._lost = self._lost or ApiUnreachable("the server closed the connection")
            self._transport.close()


async def open_api_connection(
    target: RestConfig, on_lost: Callable[[ApiConnection], None]
) -> ApiConnection:
    loop = asyncio.get_running_loop()
    secure = target.tls is not None
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, connection = await loop.create_connection(
                lambda: ApiConnection(on_lost),
                target.host,
                target.port,
                ssl=target.tls,
                server_hostname=(target.server_name or target.host) if secure else None,
                ssl_shutdown_timeout=0.5 if secure else None,
            )
    except TimeoutError:
        raise ApiUnreachable(
            f"no connection to {target.host}:{target.port} in {_CONNECT_SECONDS:.0f} seconds"
        ) from None
    except OSError as problem:
        raise ApiUnreachable(
            f"cannot connect to {target.host}:{target.port}: {problem}"
        ) from problem
    return connection
