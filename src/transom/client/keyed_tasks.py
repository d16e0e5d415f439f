"""Background work: items of one object in sequence, items of different objects concurrently.

Adding never blocks; a full lane drops new items. An idle lane has no task: a process may have
thousands of these.
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


class KeyedTasks(Generic[Thing]):
    __slots__ = ("_handle", "_queues", "_running", "_tasks")

    def __init__(self, handle: Callable[[Thing], Awaitable[None]]) -> None:
        self._handle = handle
        self._queues: dict[int, deque[Thing]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._running = False

    def add(self, key: str, thing: Thing) -> None:
        """Items with the same key keep their order."""
        lane = zlib.crc32(key.encode()) % _LANES
        queue = self._queues.get(lane)
        if queue is None:
            queue = self._queues[lane] = deque()
        if len(queue) < _QUEUED:
            queue.append(thing)
            if self._running and lane not in self._tasks:
                self._start(lane)

    async def run(self) -> None:
        """Works until cancelled."""
        self._running = True
        for lane in self._queues:
            self._start(lane)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._running = False
            tasks = [*self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, lane: int) -> None:
        self._tasks[lane] = asyncio.get_running_loop().create_task(self._run_lane(lane))

    async def _run_lane(self, lane: int) -> None:
        queue = self._queues[lane]
        try:
            while queue:
                try:
                    await self._handle(queue.popleft())
                except Exception:
                    # One item must not stop the others, nor the task that runs this.
                    log.exception("work in the background failed")
            del self._queues[lane]
        finally:
            del self._tasks[lane]
