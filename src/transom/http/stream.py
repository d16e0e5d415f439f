"""What a connection can become after the head of a response: a chunked stream, or a raw byte pipe.

A stream never waits for its reader and never buffers more than a window for it: further output for
a slow reader is encoded after it has read the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from transom.http.interfaces import StreamConnection
from transom.http.messages import Buffer, StreamSource, decode_chunks, encode_chunk

log = logging.getLogger("transom.http")

_PIECE = 64 * 1024
TURN_BYTES = 512 * 1024  # sent on one connection before other tasks run
TURN_SECONDS = 0.004


class Stream:
    """A streamed chunked body. All writes of one loop iteration become one write to the socket.

    `on_close` is called once when the stream ends for a reason other than `close()`: the peer
    disconnected, was too slow, or the server stops.
    """

    __slots__ = (
        "_behind",
        "_connection",
        "_limit",
        "_pending",
        "_pending_size",
        "_rest",
        "_source",
        "_turn",
        "alive",
        "on_close",
    )

    def __init__(self, connection: StreamConnection, limit: int) -> None:
        self._connection = connection
        self._limit = limit
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._source: StreamSource | None = None
        self._rest: deque[Buffer] | None = None  # of the source's last output
        self._turn: asyncio.Handle | None = None
        self._behind: asyncio.Future[None] | None = None
        self.alive = True
        self.on_close: Callable[[], object] | None = None

    def offer(self, data: bytes) -> bool:
        """Sends whole chunks if the reader keeps up. Returns False if it does not: serve it with a
        source.
        """
        if (
            self._source is not None
            or self._pending_size >= _PIECE
            or self._connection.write_paused
        ):
            return False
        if not self._pending:
            self._connection.server.mark_dirty(self)
        self._pending.append(data)
        self._pending_size += len(data)
        return True

    def write(self, data: bytes) -> None:
        """Sends data as one chunk."""
        if data and self.alive:
            self.write_framed(encode_chunk(data))

    def write_framed(self, data: bytes) -> None:
        """Sends bytes that are already whole chunks, encoded once for many streams."""
        if not self.alive:
            return
        pending = self._pending
        if not pending:
            self._connection.server.mark_dirty(self)
        pending.append(data)
        self._pending_size += len(data)
        if self._pending_size > self._limit:
            self._connection.drop_stream(self, "it does not read")

    def follow(self, source: StreamSource) -> None:
        """Sends the source's output as the client reads, after earlier writes and before any later
        one.
        """
        if not self.alive:
            return
        if self._pending:
            self.flush()
        self._source = source
        self._pull_later()

    async def drained(self) -> None:
        """Waits while the reader is behind: for a producer that can be paused."""
        if self._pending_size >= _PIECE:
            self.flush()
        while self.alive and self._connection.write_paused:
            self._behind = asyncio.get_running_loop().create_future()
            await self._behind

    def abort(self) -> None:
        """Aborts, so that the reader sees that data is missing."""
        self._connection.abort()

    def close(self) -> None:
        """Ends the body; the connection continues with the next request. Output that a source has
        not produced yet is not sent.
        """
        if not self.alive:
            return
        self.cut()
        if self.alive:
            self.alive = False
            self._connection.stream_ended(self)

    def cut(self) -> None:
        """Sends what is already written. Aborts if that would end in the middle of a chunk."""
        self._detach()
        if self._rest:
            self._connection.abort()
        self._rest = None
        self.flush()

    @property
    def buffered(self) -> int:
        """Bytes accepted but not yet passed to the kernel."""
        rest = sum(map(len, self._rest)) if self._rest else 0
        return self._pending_size + rest + self._connection.write_buffer_size()

    def flush(self) -> None:
        """Passes the written data to the socket. For the server."""
        if not self.alive or self._source is not None:
            return
        if self._pending:
            connection = self._connection
            if connection.write_paused and connection.buffered() > self._limit:
                connection.drop_stream(self, "it does not read")
                return
            data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
            self._pending = []
            self._pending_size = 0
            connection.write_stream(decode_chunks(data) if connection.stream_is_plain else data)

    # ---- for the connection ----

    def resume(self) -> None:
        """The socket accepts more."""
        if self._source is not None:
            self._pull()
        elif self._behind is not None and not self._behind.done():
            self._behind.set_result(None)

    def _pull_later(self) -> None:
        if self._turn is None:
            self._turn = self._connection.server.loop.call_soon(self._pull_in_turn)

    def _source_ready(self, _done: asyncio.Future[Any]) -> None:
        if self.alive and self._source is not None:
            self._pull_later()

    def _pull_in_turn(self) -> None:
        self._turn = None
        if self._source is not None:
            self._pull()

    def _pull(self) -> None:
        """Reads from the source while the socket accepts more."""
        connection = self._connection
        left, until = TURN_BYTES, monotonic() + TURN_SECONDS
        while self.alive and not connection.write_paused and self._source is not None:
            if self._rest:
                left -= self._send_rest()
            else:
                self._rest = None
                window = connection.window()
                parts = connection.guarded_read(self._source, window)
                if parts is None:
                    if self._source is not None:
                        self._detach()
                        self.flush()
                    return
                if isinstance(parts, asyncio.Future):
                    parts.add_done_callback(self._source_ready)
                    return
                if not parts:
                    self._pull_later()
                    return
                left -= self._send(parts, window)
            if left <= 0 or monotonic() > until:
                self._pull_later()
                return

    def _send(self, parts: Sequence[Buffer], window: int) -> int:
        connection = self._connection
        if connection.stream_is_plain:
            parts = [decode_chunks(b"".join(parts))]
        size = sum(map(len, parts))
        if size <= 2 * window:
            connection.write_stream(parts[0] if len(parts) == 1 else b"".join(parts))
            return size
        self._rest = deque(parts)  # one large object: split into windows without copying
        return 0

    def _send_rest(self) -> int:
        assert self._rest is not None
        part = self._rest.popleft()
        window = self._connection.window()
        if len(part) > window:
            view = memoryview(part)
            self._rest.appendleft(view[window:])
            part = view[:window]
        self._connection.write_stream(part)
        return len(part)

    def _detach(self) -> None:
        self._source = None
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def lost(self) -> None:
        """The connection is closed or closing."""
        if not self.alive:
            return
        self.alive = False
        self._detach()
        if self._behind is not None and not self._behind.done():
            self._behind.set_result(None)
        self._pending = []
        self._pending_size = 0
        self._rest = None
        if self.on_close is not None:
            self.on_close()
