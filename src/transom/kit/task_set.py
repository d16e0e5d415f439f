"""Tasks that an object starts and that end with it: a set keeps them from being collected."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class TaskSet:
    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs `work`; the task leaves the set when it is done."""
        task = asyncio.get_running_loop().create_task(work)
        self.add(task)
        return task

    def add(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    def cancel_others(self) -> None:
        """Cancels all but the task that calls this."""
        current = asyncio.current_task() if self._tasks else None
        for task in tuple(self._tasks):
            if task is not current:
                task.cancel()

    async def wait(self) -> None:
        """Waits for the tasks that run now; their errors are not raised."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Cancels the tasks and waits for their end."""
        tasks = tuple(self._tasks)
        self.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
