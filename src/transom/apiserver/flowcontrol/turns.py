"""Heavy reads take turns: one at a time, and between two of them the event loop looks after everybody else.

A list of ten thousand objects is work of many milliseconds in the one thread that also renews leases and feeds watches.
Turns go round among the groups that wait (the priority levels), so that the flood in one does not hold up the others.
Nothing is refused here, and nobody without heavy work ever waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable


class Turns:
    def __init__(self) -> None:
        self._groups: dict[Hashable, deque[asyncio.Future[None]]] = {}  # in the order of their next turn
        self._busy = False

    async def take(self, group: Hashable) -> None:
        """Returns when it is the caller's turn; `done` must follow."""
        if not self._busy and not self._groups:
            self._busy = True
            try:
                await asyncio.sleep(0)  # what came in together with this request goes first
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
        """The next one begins after the loop has been around once."""
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
                self._groups[group] = waiting  # at the end of the line
            if not mine.done():
                mine.set_result(None)
                return
        self._busy = False
