"""Reads a streamed response inside the process, to its end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from transom.http.messages import StreamResponse, StreamSource, decode_chunks
from transom.http.outgoing import CallError

_PIECE = 64 * 1024


class _Gatherer:
    """A stream whose client reads everything immediately."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._limit = limit
        self.parts: list[bytes] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.alive = True
        self.on_close: Callable[[], object] | None = None

    def write(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left >= 0:
            self.parts.append(data)
            return
        self.alive = False
        self._fail(f"response body is larger than {self._limit} bytes")

    def write_framed(self, data: bytes) -> None:
        self.write(decode_chunks(data))

    def offer(self, data: bytes) -> bool:
        self.write_framed(data)
        return True

    def follow(self, source: StreamSource) -> None:
        while (pieces := source.read(_PIECE)) is not None:
            if isinstance(pieces, asyncio.Future):
                pieces.add_done_callback(lambda _done: self.follow(source))
                return
            self.write_framed(b"".join(pieces))

    async def drained(self) -> None:
        return

    def close(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def abort(self) -> None:
        self._fail("the answer broke off")

    def _fail(self, problem: str) -> None:
        if not self.ended.done():
            self.ended.set_exception(CallError(problem))


async def gather_stream(answer: StreamResponse, limit: int = sys.maxsize) -> bytes:
    """The whole body; CallError if it is cut off, or larger than the limit."""
    stream = _Gatherer(limit)
    answer.start(stream)
    try:
        await stream.ended
    except (asyncio.CancelledError, CallError):
        if stream.on_close is not None:
            stream.on_close()
        raise
    return b"".join(stream.parts)
