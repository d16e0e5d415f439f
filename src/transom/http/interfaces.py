"""The interfaces of a server for its connections, and of a connection for its streams."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from transom.http.budget import ByteBudget
from transom.http.limits import HttpLimits
from transom.http.messages import Answer, BodyPolicy, Buffer, HttpRequest, StreamSource
from transom.http.raw import StreamHost


class DateLine(Protocol):
    """The Date header."""

    line: bytes


class ServerConnection(Protocol):
    """A connection, as its server sees it."""

    deadline: float

    def expire(self) -> None: ...
    def shut_down(self) -> None: ...
    def drop(self) -> None: ...
    def cancel(self) -> None: ...


class ConnectionHost(StreamHost, Protocol):
    """The server, as its connections see it."""

    limits: HttpLimits
    budget: ByteBudget  # of bytes that wait for clients
    uploads: ByteBudget  # of request bodies
    stopping: bool
    bodies: BodyPolicy | None

    @property
    def date(self) -> DateLine: ...
    @property
    def handler(self) -> Callable[[HttpRequest], Answer | Awaitable[Answer]]: ...
    def admit(self, connection: ServerConnection) -> bool: ...
    def forget(self, connection: ServerConnection) -> None: ...


class LiveStream(Protocol):
    """A stream, as its connection sees it."""

    @property
    def buffered(self) -> int: ...
    def lost(self) -> None: ...


class StreamConnection(Protocol):
    """A connection, as a chunked stream sees it."""

    write_paused: bool
    stream_is_plain: bool

    @property
    def server(self) -> StreamHost: ...
    def window(self) -> int: ...
    def write_stream(self, data: Buffer) -> None: ...
    def write_buffer_size(self) -> int: ...
    def buffered(self) -> int: ...
    def guarded_read(
        self, source: StreamSource, size: int
    ) -> Sequence[Buffer] | asyncio.Future[Any] | None: ...
    def stream_ended(self, stream: object) -> None: ...
    def drop_stream(self, stream: LiveStream, reason: str) -> None: ...
    def abort(self) -> None: ...
