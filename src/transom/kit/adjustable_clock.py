"""A clock that follows real time and can be advanced: the time of a cluster in tests.

Between two advances, time passes as usual. `advance` stops it, moves it to each timer that becomes
due, in order, and lets the event loop finish the work of one timer before the next: five minutes of
a cluster take a moment, and everything that happens in them happens at its own time.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any

from transom.kit.clock import Timer

_FEW_TIMERS = 64  # below this number, cancelled timers are not worth removing


class _IdleSelector(selectors.DefaultSelector):
    """Knows when the loop has nothing to do: it is about to wait, and nothing has arrived."""

    def __init__(self, may_be_idle: Callable[[], bool], on_idle: Callable[[], bool]) -> None:
        super().__init__()
        self._may_be_idle = may_be_idle
        self._on_idle = on_idle

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if (timeout is None or timeout > 0) and self._may_be_idle():
            found = super().select(0)
            if found or self._on_idle():
                return found
        return super().select(timeout)


class _CountingExecutor(ThreadPoolExecutor):
    """Knows how many functions are waiting or running."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="transom-work")
        self._lock = threading.Lock()
        self.unfinished = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        with self._lock:
            self.unfinished += 1
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._finished)
        return future

    def _finished(self, _: Future[Any]) -> None:
        with self._lock:
            self.unfinished -= 1


class IdleDetectingLoop(asyncio.SelectorEventLoop):
    """An event loop that can wait until all work is done, also that of `asyncio.to_thread`."""

    def __init__(self) -> None:
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._executor = _CountingExecutor()
        super().__init__(_IdleSelector(self._may_be_idle, self._on_idle))
        self.set_default_executor(self._executor)

    async def wait_idle(self) -> None:
        """Returns when no callback is ready, no socket has data and no thread works. Callbacks of
        the loop's own timers are not waited for.
        """
        waiter: asyncio.Future[None] = self.create_future()
        self._idle_waiters.append(waiter)
        await waiter

    def _may_be_idle(self) -> bool:
        return bool(self._idle_waiters) and not self._executor.unfinished

    def _on_idle(self) -> bool:
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        return bool(waiters)


class _AdjustableTimer:
    __slots__ = ("args", "cancelled", "clock", "due", "function")

    def __init__(
        self,
        clock: AdjustableClock,
        due: float,
        function: Callable[..., object],
        args: tuple[Any, ...],
    ) -> None:
        self.clock = clock
        self.due = due
        self.function = function
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self.clock.timer_cancelled()


class AdjustableClock:
    """Must be used in an `IdleDetectingLoop`."""

    def __init__(self) -> None:
        self._skipped = 0.0  # seconds ahead of real time
        self._stopped_at: float | None = None  # monotonic time while it is advanced
        self._epoch = time.time() - time.monotonic()
        self._order = count()
        self._timers: list[tuple[float, int, _AdjustableTimer]] = []
        self._cancelled = 0
        self._armed: asyncio.TimerHandle | None = None
        self._armed_for = 0.0
        self._advancing = asyncio.Lock()

    def time(self) -> float:
        return self._epoch + self.monotonic()

    def monotonic(self) -> float:
        return time.monotonic() + self._skipped if self._stopped_at is None else self._stopped_at

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, _wake_sleeper, woken)
        try:
            await woken
        finally:
            timer.cancel()

    def call_later(self, seconds: float, function: Callable[..., object], *args: Any) -> Timer:
        timer = _AdjustableTimer(self, self.monotonic() + max(seconds, 0.0), function, args)
        heapq.heappush(self._timers, (timer.due, next(self._order), timer))
        self._arm()
        return timer

    def timer_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled > _FEW_TIMERS and self._cancelled * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled]
            heapq.heapify(self._timers)
            self._cancelled = 0

    async def advance(self, seconds: float) -> float:
        """Advances the time and returns the new one. Everything that is due has happened."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, IdleDetectingLoop):
            raise RuntimeError("the clock can be advanced in an IdleDetectingLoop only")
        async with self._advancing:
            await loop.wait_idle()
            self._stopped_at = self.monotonic()
            end = self._stopped_at + seconds
            try:
                while (timer := self._next_due(end)) is not None:
                    self._stopped_at = max(self._stopped_at, timer.due)
                    timer.function(*timer.args)
                    await loop.wait_idle()
                self._stopped_at = end
            finally:
                self._skipped = self._stopped_at - time.monotonic()
                self._stopped_at = None
                self._arm()
            return self.time()

    def _next_due(self, end: float) -> _AdjustableTimer | None:
        while self._timers and self._timers[0][0] <= end:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                timer.cancelled = True  # it is no longer in the list
                return timer
            self._cancelled -= 1
        return None

    def _arm(self) -> None:
        """Lets the loop run the first timer at its real time."""
        if not self._timers or self._stopped_at is not None:
            return
        due = self._timers[0][0] - self._skipped
        if self._armed is not None:
            if self._armed_for <= due:
                return
            self._armed.cancel()
        self._armed_for = due
        loop = asyncio.get_running_loop()
        self._armed = loop.call_later(max(due - time.monotonic(), 0.0), self._run_due)

    def _run_due(self) -> None:
        self._armed = None
        if self._stopped_at is not None:
            return  # `advance` runs it
        while (timer := self._next_due(self.monotonic())) is not None:
            timer.function(*timer.args)
        self._arm()


def _wake_sleeper(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
