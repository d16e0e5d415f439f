"""Work in the background: things about one object one after the other, things about several at the same time.

Adding never waits; when a lane has too much to do, what comes is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

log = logging.getLogger("transom.client")

Thing = TypeVar("Thing")
_LANES = 8
_QUEUED = 1000


class Lanes(Generic[Thing]):
    def __init__(self, handle: Callable[[Thing], Awaitable[None]]) -> None:
        self._handle = handle
        self._queues: list[deque[Thing]] = [deque() for _ in range(_LANES)]
        self._wake = [asyncio.Event() for _ in range(_LANES)]

    def add(self, key: str, thing: Thing) -> None:
        """Things with the same key keep their order."""
        lane = zlib.crc32(key.encode()) % _LANES
        if len(self._queues[lane]) < _QUEUED:
            self._queues[lane].append(thing)
            self._wake[lane].set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for queue, wake in zip(self._queues, self._wake, strict=True):
                group.create_task(self._run_lane(queue, wake))

    async def _run_lane(self, queue: deque[Thing], wake: asyncio.Event) -> None:
        while True:
            while queue:
                try:
                    await self._handle(queue.popleft())
                except Exception:
                    # What one thing does must not stop the others, nor whoever runs beside this.
                    log.exception("work in the background failed")
            wake.clear()
            await wake.wait()
