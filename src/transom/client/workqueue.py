"""The work queue of a controller.

An item that is added while it is being processed is processed again afterwards, never by two
workers at once; an item added twice before it is taken is processed once. Supports delayed adds and
back-off after failures.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from transom.client.metrics import QueueMetrics, WorkQueueMetrics
from transom.client.ratelimit import ControllerLimiter, RateLimiter
from transom.kit.clock import Clock, Timer
from transom.machinery.errors import ApiError

_TURN = 4  # items that a worker processes before other tasks run

log = logging.getLogger("transom.client")
Item = TypeVar("Item", bound=Hashable)
_ASIDE_SECONDS = 1000.0  # as long as the longest back-off


class ShutDown(Exception):
    """The queue is shut down; there is nothing more to get."""


class WorkQueue(Generic[Item]):
    """`metrics` are those of the component; the queue is counted in them under its name."""

    def __init__(
        self,
        clock: Clock,
        limiter: RateLimiter | None = None,
        name: str = "",
        metrics: WorkQueueMetrics | None = None,
    ) -> None:
        self._clock = clock
        self._limiter = limiter or ControllerLimiter(clock)
        self.name = name
        self._metrics = QueueMetrics(clock) if metrics is None else metrics.new_queue(name, clock)
        self._ready: deque[Item] = deque()
        self._dirty: set[Item] = set()  # to be processed, whether in `_ready` or in progress
        self._working: set[Item] = set()
        self._waiting: dict[Item, tuple[float, Timer]] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or in progress; delayed items do not count."""
        return not self._ready and not self._working

    # ---- adding ----

    def add(self, item: Item) -> None:
        if self._closed or item in self._dirty:
            return
        self._dirty.add(item)
        self._metrics.add(item)
        if item not in self._working:
            self._ready.append(item)
            self._wake_one()

    def add_after(self, item: Item, seconds: float) -> None:
        """Adds later. If several times are requested, the earliest counts."""
        if self._closed:
            return
        self._metrics.retries += 1
        if seconds <= 0:
            self.add(item)
            return
        due = self._clock.monotonic() + seconds
        before = self._waiting.get(item)
        if before is not None:
            if before[0] <= due:
                return
            before[1].cancel()
        self._waiting[item] = due, self._clock.call_later(seconds, self._due, item)

    def _due(self, item: Item) -> None:
        self._waiting.pop(item, None)
        self.add(item)

    def add_rate_limited(self, item: Item) -> None:
        """Adds again after a failure, with the rate limiter's delay."""
        self.add_after(item, self._limiter.when(item))

    def set_aside(self, item: Item) -> None:
        """The item failed too often: delays it for a long time, unless something changes. Its
        obstacle may disappear without a change of any watched object, so it is not delayed forever.
        """
        self.add_after(item, _ASIDE_SECONDS)

    def forget(self, item: Item) -> None:
        """The item succeeded or is given up: its next failure counts as the first."""
        self._limiter.forget(item)

    def failures(self, item: Item) -> int:
        return self._limiter.failures(item)

    # ---- working ----

    async def get(self) -> Item:
        """The next item; `done` must follow. Raises ShutDown at the end."""
        while not self._ready:
            if self._closed:
                raise ShutDown
            waiter = asyncio.get_running_loop().create_future()
            self._getters.append(waiter)
            try:
                await waiter
            except BaseException:
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()  # woken and cancelled at once: let another worker take it
                elif waiter in self._getters:
                    self._getters.remove(waiter)
                raise
        item = self._ready.popleft()
        self._working.add(item)
        self._dirty.discard(item)
        self._metrics.get(item)
        return item

    def done(self, item: Item) -> None:
        self._working.discard(item)
        self._metrics.done(item)
        if item in self._dirty:
            self._ready.append(item)
            self._wake_one()

    def _wake_one(self) -> None:
        while self._getters:
            waiter = self._getters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def shut_down(self) -> None:
        """Accepts no more items; workers finish the queued ones and end."""
        self._closed = True
        for _, timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()
        for waiter in self._getters:
            if not waiter.done():
                waiter.set_result(None)
        self._getters.clear()

    async def run(self, sync: Callable[[Item], Awaitable[None]], workers: int = 1) -> None:
        """Works until the queue is shut down. An item whose `sync` raises is retried with back-off."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work(sync))

    async def _work(self, sync: Callable[[Item], Awaitable[None]]) -> None:
        handled = 0
        while True:
            handled += 1
            if handled % _TURN == 0:
                # calls to an in-process API server do not yield, and the queue may be long
                await asyncio.sleep(0)
            try:
                item = await self.get()
            except ShutDown:
                return
            try:
                await sync(item)
            except Exception as problem:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    # The cleanup after the cancellation failed; the cancellation must not get lost.
                    raise asyncio.CancelledError from problem
                self._failed(item, problem)
            else:
                self.forget(item)
            finally:
                self.done(item)

    def _failed(self, item: Item, problem: Exception) -> None:
        # API errors and an unreachable server are expected; anything else is a bug.
        ours = not isinstance(problem, OSError | RetryLater | ApiError)
        log.log(
            logging.ERROR if ours else logging.INFO,
            "%s: %s failed: %s",
            self.name or "queue",
            item,
            problem,
            exc_info=problem if ours else None,
        )
        self.add_rate_limited(item)


class RetryLater(Exception):
    """Raised by a sync that is not finished and must be called again with back-off."""
