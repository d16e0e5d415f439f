"""Bounds the open streams of the console: each is a task that ends with its browser or session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Final

log = logging.getLogger("transom.web")

MOST_STREAMS: Final = 64


class StreamLimit:
    """The tasks of all open streams."""

    def __init__(self, most: int = MOST_STREAMS) -> None:
        self._most = most
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def full(self) -> bool:
        return len(self._tasks) >= self._most

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("a stream of the console failed", exc_info=problem)
