"""The work queue of a controller: what is to be looked at, each thing once at a time.

An item that is added while it is being worked on is done again afterwards, never by two workers at once; an item added
twice before anybody took it is done once. Waiting for a time and backing off after failures are part of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from transom.client.ratelimit import ControllerLimiter, RateLimiter
from transom.kit.clock import Clock, Timer

log = logging.getLogger("transom.client")
Item = TypeVar("Item", bound=Hashable)
_ASIDE_SECONDS = 1000.0  # as long as the longest back-off


class ShutDown(Exception):
    """The queue has ended; there is nothing more to get."""


class WorkQueue(Generic[Item]):
    def __init__(self, clock: Clock, limiter: RateLimiter | None = None, name: str = "") -> None:
        self._clock = clock
        self._limiter = limiter or ControllerLimiter(clock)
        self.name = name
        self._ready: deque[Item] = deque()
        self._dirty: set[Item] = set()  # to be done, whether in `_ready` or in work
        self._working: set[Item] = set()
        self._waiting: dict[Item, tuple[float, Timer]] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def idle(self) -> bool:
        """Nothing to do and nothing being done; what waits for its time does not count."""
        return not self._ready and not self._working

    # ---- adding --------------------------------------------------------------------------------------------------

    def add(self, item: Item) -> None:
        if self._closed or item in self._dirty:
            return
        self._dirty.add(item)
        if item not in self._working:
            self._ready.append(item)
            self._wake_one()

    def add_after(self, item: Item, seconds: float) -> None:
        """Add later. Of several times asked for, the earliest counts."""
        if self._closed:
            return
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
        """Add again after a failure, when the rate limiter says so."""
        self.add_after(item, self._limiter.when(item))

    def set_aside(self, item: Item) -> None:
        """It failed too often: it is let alone for long, unless something changes. What stood in the way may go without a
        change of anything that is watched, so it cannot be for ever."""
        self.add_after(item, _ASIDE_SECONDS)

    def forget(self, item: Item) -> None:
        """The item is fine, or given up: its next failure is its first."""
        self._limiter.forget(item)

    def failures(self, item: Item) -> int:
        return self._limiter.failures(item)

    # ---- working -------------------------------------------------------------------------------------------------

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
                    self._wake_one()  # woken and cancelled at once: somebody else must take it
                elif waiter in self._getters:
                    self._getters.remove(waiter)
                raise
        item = self._ready.popleft()
        self._working.add(item)
        self._dirty.discard(item)
        return item

    def done(self, item: Item) -> None:
        self._working.discard(item)
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
        """No more is taken in; workers finish what is there and end."""
        self._closed = True
        for _, timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()
        for waiter in self._getters:
            if not waiter.done():
                waiter.set_result(None)
        self._getters.clear()

    async def run(self, sync: Callable[[Item], Awaitable[None]], workers: int = 1) -> None:
        """Work until the queue is shut down. An item whose `sync` raises is tried again with back-off."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work(sync))

    async def _work(self, sync: Callable[[Item], Awaitable[None]]) -> None:
        while True:
            try:
                item = await self.get()
            except ShutDown:
                return
            try:
                await sync(item)
            except Exception as problem:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    # What failed was the cleaning up after the cancellation, which must not get lost over it.
                    raise asyncio.CancelledError from problem
                self._failed(item, problem)
            else:
                self.forget(item)
            finally:
                self.done(item)

    def _failed(self, item: Item, problem: Exception) -> None:
        # What an API server says, or that it says nothing, is part of life; anything else is a mistake of ours.
        ours = not isinstance(problem, (OSError, RetryLater)) and not hasattr(problem, "status")
        log.log(logging.ERROR if ours else logging.INFO, "%s: %s failed: %s", self.name or "queue", item, problem,
                exc_info=problem if ours else None)
        self.add_rate_limited(item)


class RetryLater(Exception):
    """Raised by a sync that is not done yet and wants to be called again with back-off."""
