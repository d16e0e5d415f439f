"""Reads a streamed response inside the process, to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from transom.http.messages import StreamResponse, StreamSource, decode_chunks
from transom.http.outgoing import CallError

_PIECE = 64 * 1024


class _Gatherer:
    """A stream whose client reads everything immediately."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.alive = True
        self.on_close: Callable[[], object] | None = None

    def write(self, data: bytes) -> None:
        self.parts.append(data)

    def write_framed(self, data: bytes) -> None:
        self.parts.append(decode_chunks(data))

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
        if not self.ended.done():
            self.ended.set_exception(CallError("the answer broke off"))


async def gather_stream(answer: StreamResponse) -> bytes:
    """The whole body; CallError if it is cut off."""
    stream = _Gatherer()
    answer.start(stream)
    try:
        await stream.ended
    except asyncio.CancelledError:
        if stream.on_close is not None:
            stream.on_close()
        raise
    return b"".join(stream.parts)
