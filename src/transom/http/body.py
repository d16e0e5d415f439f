"""A request body that is streamed to the handler instead of being collected first."""

from __future__ import annotations

import asyncio

from transom.http.raw import BodyConnection

_ENOUGH = 256 * 1024


class BodyStream:
    """`read` is for the handler; the rest is for the connection. The client waits while data is
    unread.
    """

    __slots__ = (
        "_broken",
        "_connection",
        "_dropped",
        "_dropping",
        "_ended",
        "_more",
        "_parts",
        "_size",
    )

    def __init__(self, connection: BodyConnection) -> None:
        self._connection = connection
        self._parts: list[bytes] = []
        self._size = 0
        self._more: asyncio.Future[None] | None = None
        self._ended = False
        self._broken = False
        self._dropping = False
        self._dropped = 0

    async def read(self) -> bytes:
        """The next piece, empty at the end. ConnectionResetError if the client disconnected."""
        while not self._parts:
            if self._broken:
                raise ConnectionResetError("the client broke off")
            if self._ended:
                return b""
            self._more = asyncio.get_running_loop().create_future()
            try:
                await self._more
            finally:
                self._more = None
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size = [], 0
        self._connection.resume_reading()
        return data

    def feed(self, data: bytes, most: int) -> bool:
        """Returns False if more than `most` bytes had to be discarded."""
        if self._dropping:
            self._dropped += len(data)
            return self._dropped <= most
        self._parts.append(data)
        self._size += len(data)
        if self._size > _ENOUGH:
            self._connection.pause_reading()
        self._wake()
        return True

    def end(self, broken: bool = False) -> None:
        self._ended, self._broken = True, broken
        self._wake()

    def drop(self) -> None:
        """The response is complete: discards the rest of the body."""
        self._dropping = True
        self._parts, self._size = [], 0
        self._broken = True
        self._wake()
        self._connection.resume_reading()

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)
