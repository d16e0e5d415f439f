"""Serializes heavy reads: one at a time, with an iteration of the event loop for other work between
two of them.

A list of ten thousand objects takes many milliseconds in the thread that also renews leases and
serves watches. Turns rotate among the waiting groups (the priority levels), so that a flood in one
does not delay the others. No request is rejected here, and requests without heavy work never wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable


class HeavyReadTurns:
    def __init__(self) -> None:
        # in the order of their next turn
        self._groups: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._busy = False

    async def take(self, group: Hashable) -> None:
        """Returns when it is the caller's turn; the caller must call `done` afterwards."""
        if not self._busy and not self._groups:
            self._busy = True
            try:
                # other requests that arrived together with this one run first
                await asyncio.sleep(0)
            except BaseException:
                self.done()
                raise
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._groups.setdefault(group, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():
                self.done()
            raise

    def done(self) -> None:
        """Starts the next one after one iteration of the event loop."""
        if self._groups:
            asyncio.get_running_loop().call_soon(self._next)
        else:
            self._busy = False

    def _next(self) -> None:
        while self._groups:
            group = next(iter(self._groups))
            waiting = self._groups.pop(group)
            mine = waiting.popleft()
            if waiting:
                self._groups[group] = waiting  # at the end of the queue
            if not mine.done():
                mine.set_result(None)
                return
        self._busy = False
