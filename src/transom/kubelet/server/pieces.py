"""Responses that are sent piece by piece, at the pace of the client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from transom.http.messages import Headers, ResponseStream, StreamResponse

_SENDERS: set[asyncio.Task[None]] = set()  # the event loop holds only weak references to tasks


def pieces_answer(
    headers: Headers,
    pieces: Iterable[bytes],
    failures: type[Exception] | tuple[type[Exception], ...] = OSError,
) -> StreamResponse:
    """A response with all pieces. One of `failures` while a piece is made aborts the response, so
    that the client notices the missing data.
    """

    async def send(stream: ResponseStream) -> None:
        try:
            await write_pieces(pieces, stream)
        except failures:
            stream.abort()
        else:
            stream.close()

    def start(stream: ResponseStream) -> None:
        start_sender(send(stream), stream)

    return StreamResponse(200, headers, start)


def start_sender(sending: Coroutine[Any, Any, None], stream: ResponseStream) -> None:
    """Starts a task that writes to the stream; it is cancelled when the client disconnects."""
    task = asyncio.get_running_loop().create_task(sending)
    _SENDERS.add(task)
    task.add_done_callback(_SENDERS.discard)
    stream.on_close = task.cancel


async def write_pieces(pieces: Iterable[bytes], stream: ResponseStream) -> None:
    for piece in pieces:
        if not stream.alive:
            return
        stream.write(piece)
        await stream.drained()
        await asyncio.sleep(0)
