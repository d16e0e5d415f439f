"""The two things a connection can become after the head of an answer: a chunked stream, or a raw byte pipe.

Neither is ever awaited: a reader that does not keep up is dropped, so one slow watcher cannot hold up the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from transom.http.messages import chunk, unchunk

if TYPE_CHECKING:
    from transom.http.connection import Connection


_PIECE = 64 * 1024


class Stream:
    """A chunked body that goes on. Writes of one turn of the loop leave as one write to the socket.

    `on_close` is called once when the stream ends for a reason other than `close()`: the peer went away, was too slow,
    or the server stops.
    """

    __slots__ = ("_behind", "_connection", "_limit", "_pending", "_pending_size", "_source", "alive", "on_close")

    def __init__(self, connection: Connection, limit: int) -> None:
        self._connection = connection
        self._limit = limit
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._source: Iterator[bytes] | None = None
        self._behind: asyncio.Future[None] | None = None
        self.alive = True
        self.on_close: Callable[[], object] | None = None

    def write(self, data: bytes) -> None:
        """Sends data as one chunk."""
        if data and self.alive:
            self.write_framed(chunk(data))

    def write_framed(self, data: bytes) -> None:
        """Sends bytes that are whole chunks already, made once for many streams."""
        if not self.alive:
            return
        pending = self._pending
        if not pending:
            self._connection.server.mark_dirty(self)
        pending.append(data)
        self._pending_size += len(data)
        if self._source is not None and self._pending_size > self._limit:
            self._connection.drop_stream(self)

    def write_from(self, framed: Iterable[bytes]) -> None:
        """Sends whole chunks pulled one by one as the client reads, ahead of any later write.

        For the first events of a watch, which may be far more than the limit for a slow reader allows at once.
        """
        if not self.alive:
            return
        self.flush()
        self._source = iter(framed)
        self.pull()

    async def drained(self) -> None:
        """Waits while the reader is behind: for a source that can be held up, unlike a watch."""
        if self._pending_size >= _PIECE:
            self.flush()
        while self.alive and self._connection.write_paused:
            self._behind = asyncio.get_running_loop().create_future()
            await self._behind

    def abort(self) -> None:
        """Breaks off, so that the reader sees that something is missing."""
        self._connection.abort()

    def close(self) -> None:
        """Ends the body; the connection goes on with the next request."""
        if not self.alive:
            return
        self.flush(everything=True)
        if self.alive:
            self.alive = False
            self._connection.stream_ended(self)

    @property
    def buffered(self) -> int:
        """Bytes accepted and not yet given to the kernel."""
        return self._pending_size + self._connection.write_buffer_size()

    def flush(self, everything: bool = False) -> None:
        """Hands what was written to the socket, and drops the reader who is too far behind. For the server."""
        if not self.alive:
            return
        connection = self._connection
        if self._source is not None:
            if not everything:
                return
            self._pending[:0] = self._source
            self._source = None
        if connection.write_buffer_size() > self._limit:
            connection.drop_stream(self)
            return
        if self._pending:
            data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
            self._pending = []
            self._pending_size = 0
            connection.write_stream(unchunk(data) if connection.stream_is_plain else data)

    def pull(self) -> None:
        """Takes from the source while the socket takes more. For the connection."""
        source, connection = self._source, self._connection
        if source is None:
            self._go_on()
            return
        while self.alive and not connection.write_paused:
            piece = next(source, None)
            if piece is None:
                self._source = None
                self.flush()
                return
            connection.write_stream(unchunk(piece) if connection.stream_is_plain else piece)

    def _go_on(self) -> None:
        if self._behind is not None and not self._behind.done():
            self._behind.set_result(None)

    def lost(self) -> None:
        """The connection is gone or going. For the connection."""
        if not self.alive:
            return
        self.alive = False
        self._go_on()
        self._pending = []
        self._pending_size = 0
        self._source = None
        if self.on_close is not None:
            self.on_close()


class RawConnection:
    """The socket after 101: bytes both ways, what the client sent early included.

    Nothing is read past a small buffer until `receive` says where the bytes go.
    """

    __slots__ = ("_connection", "_early", "_on_data", "alive", "on_close", "on_eof", "on_writable")
    _EARLY_LIMIT = 65536

    def __init__(self, connection: Connection, early: bytes) -> None:
        self._connection = connection
        self._early = early
        self._on_data: Callable[[bytes], None] | None = None
        self.on_close: Callable[[], None] | None = None
        self.on_eof: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.alive = True

    def receive(self, on_data: Callable[[bytes], None]) -> None:
        """Delivers everything the peer sends, from the first byte after its request."""
        self._on_data = on_data
        early, self._early = self._early, b""
        if early:
            on_data(early)
        self.resume_reading()

    def write(self, data: bytes) -> None:
        if self.alive:
            self._connection.write_raw(data)

    @property
    def buffered(self) -> int:
        return self._connection.write_buffer_size()

    @property
    def writable(self) -> bool:
        """False while the peer is behind; `on_writable` is called when it has caught up."""
        return self.alive and not self._connection.write_paused

    def pause_reading(self) -> None:
        if self.alive:
            self._connection.pause_reading()

    def resume_reading(self) -> None:
        if self.alive:
            self._connection.resume_reading()

    def close(self) -> None:
        """Sends what is buffered, then closes. `on_close` follows."""
        self._connection.close()

    def abort(self) -> None:
        self._connection.abort()

    def feed(self, data: bytes) -> None:
        """For the connection."""
        if self._on_data is not None:
            self._on_data(data)
            return
        self._early += data
        if len(self._early) > self._EARLY_LIMIT:
            self.pause_reading()

    def lost(self) -> None:
        """For the connection."""
        if self.alive:
            self.alive = False
            if self.on_close is not None:
                self.on_close()
