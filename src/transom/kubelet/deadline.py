"""A timeout by the kubelet's clock, like `asyncio.timeout` by the machine's."""

from __future__ import annotations

import asyncio
from types import TracebackType

from transom.kit.clock import Clock, Timer


class TimeLimit:
    """`async with Within(clock, 3): ...` raises TimeoutError when the block takes longer than three
    seconds.
    """

    __slots__ = ("_before", "_clock", "_expired", "_seconds", "_task", "_timer")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._expired = False

    async def __aenter__(self) -> TimeLimit:
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[object] = task
        self._before = task.cancelling()
        self._timer: Timer = self._clock.call_later(self._seconds, self._expire)
        return self

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if (
            self._expired
            and self._task.uncancel() <= self._before
            and kind is asyncio.CancelledError
        ):
            raise TimeoutError from problem
