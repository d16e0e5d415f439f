"""A connection that carries bytes instead of messages: the socket after 101, and the connection
interface for it and for request bodies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from transom.http.pacing import PacedInput

log = logging.getLogger("transom.http")


class Flushable(Protocol):
    """A stream with pending output."""

    def flush(self) -> None: ...


class StreamHost(Protocol):
    loop: asyncio.AbstractEventLoop

    def mark_dirty(self, stream: Flushable) -> None: ...


class BodyConnection(Protocol):
    """A connection, as the stream of a request body sees it."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class ByteConnection(BodyConnection, Protocol):
    """A connection, as an upgraded connection sees it."""

    write_paused: bool

    @property
    def server(self) -> StreamHost: ...
    def write_raw(self, data: bytes) -> None: ...
    def write_buffer_size(self) -> int: ...
    def buffered(self) -> int: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class RawConnection:
    """The socket after 101: bytes both ways, including bytes that the client sent early.

    Reads only a small buffer until `receive` is called, and nothing while more than _UNREAD bytes
    wait for a peer that does not read: its messages may require responses (pings, refused streams).
    """

    __slots__ = (
        "_connection",
        "_input",
        "_paused",
        "_unread",
        "alive",
        "on_close",
        "on_eof",
        "on_writable",
    )
    _UNREAD = 256 * 1024

    def __init__(self, connection: ByteConnection, early: bytes) -> None:
        self._connection = connection
        self._input = PacedInput(
            connection.server.loop,
            connection.pause_reading,
            connection.resume_reading,
            self._receiver_failed,
        )
        self._input.feed(early)
        self._paused = False  # paused by the receiver
        self._unread = False  # paused for a peer that does not read
        self.on_close: Callable[[], None] | None = None
        self.on_eof: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.alive = True

    def receive(self, on_data: Callable[[bytes], None]) -> None:
        """Delivers everything the peer sends, from the first byte after its request."""
        self._input.deliver_to(on_data)
        if not self._paused:
            self._connection.resume_reading()

    def write(self, data: bytes) -> None:
        if self.alive and data:
            self._connection.write_raw(data)
            if (
                not self._unread
                and self._connection.write_paused
                and self._connection.buffered() > self._UNREAD
            ):
                self._unread = True
                self._input.hold()

    @property
    def buffered(self) -> int:
        return self._connection.write_buffer_size()

    @property
    def writable(self) -> bool:
        """False while the peer is behind; `on_writable` is called when it has caught up."""
        return self.alive and not self._connection.write_paused

    def pause_reading(self) -> None:
        if not self._paused:
            self._paused = True
            self._input.hold()

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._input.release()

    def close(self) -> None:
        """Sends what is buffered, then closes. `on_close` follows."""
        self._input.discard()
        self._connection.close()

    def abort(self) -> None:
        self._input.discard()
        self._connection.abort()

    # ---- for the connection ----

    def feed(self, data: bytes) -> None:
        self._input.feed(data)

    def writes_resumed(self) -> None:
        if self._unread:
            self._unread = False
            self._input.release()
        if self.on_writable is not None:
            self.on_writable()

    def lost(self) -> None:
        if self.alive:
            self.alive = False
            self._input.end(self._closed)

    def _closed(self) -> None:
        if self.on_close is not None:
            self.on_close()

    def _receiver_failed(self) -> None:
        log.exception("the receiver of an upgraded connection failed")
        self.abort()
