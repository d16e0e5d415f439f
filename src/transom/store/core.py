"""A store is this core over a log: the core checks, numbers and shows writes, the log makes them durable.

All of it runs on the event loop. What the log does to make a batch durable, in which thread and on which disk, the core
does not know.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from transom.kit.clock import Clock, Timer
from transom.store.api import Event, PreconditionFailed, Record, StoreError
from transom.store.mvcc import State

_log = logging.getLogger(__name__)

# So much is done at one go before the loop gets its turn.
_EXPIRE_AT_ONCE = 256
_TRIM_AT_ONCE = 512
_DISCARD_FROM = 1024
_RETRY_EXPIRY = 1.0
MAX_VALUE_BYTES = 64 << 20


class Write:
    __slots__ = ("event", "future")

    def __init__(self, event: Event, future: asyncio.Future[Any]) -> None:
        self.event = event
        self.future = future


class Log(Protocol):
    """Makes writes durable, in order. Calls `committed` with each durable batch. If one fails, calls `failed` with
    it and everything appended since, and keeps none of it."""

    async def open(
        self,
        state: State,
        committed: Callable[[Sequence[Write]], None],
        failed: Callable[[Sequence[Write], Exception], None],
    ) -> None:
        """Fill the state, then accept writes."""

    def append(self, write: Write) -> None: ...

    def discard(self, revisions: Sequence[int], compacted: int) -> None:
        """These rows are needed no more, as the history up to `compacted` is gone. No hurry."""

    async def close(self) -> None: ...


class CoreStore:
    def __init__(
        self,
        log: Log,
        clock: Clock,
        *,
        history_seconds: float = 300.0,
        history_events: int = 100_000,
        history_bytes: int = 128 << 20,
        compact_interval: float = 60.0,
    ) -> None:
        """History is kept for `history_seconds`, unless one of the bounds is reached first."""
        self._log = log
        self._clock = clock
        self._state = State(max_events=history_events, max_bytes=history_bytes)
        self._keep = history_seconds
        self._interval = compact_interval
        self._marks: deque[tuple[float, int]] = deque()  # (when, revision then)
        self._assigned = 1
        self._pending: dict[str, Event] = {}  # the newest write of each key that is accepted but not durable
        self._expiries: list[tuple[float, str, int]] = []
        self._expiry_timer: Timer | None = None
        self._expiry_due = 0.0
        self._compact_timer: Timer | None = None
        self._trimming = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.get = self._state.get
        self.list = self._state.list
        self.count = self._state.count
        self.watch = self._state.watch

    # Life

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        await self._log.open(self._state, self._committed, self._failed)
        self._loop = loop
        self._assigned = self._state.revision
        for record in self._state.all_records():
            if record.expires is not None:
                self._expiries.append((record.expires, record.key, record.mod_revision))
        heapq.heapify(self._expiries)
        # What expired while nobody was there is gone before the first reader comes.
        while expired := self._expire_due():
            await asyncio.wait(expired)
        self._arm_expiry()
        self._tick()

    async def close(self) -> None:
        if self._loop is None:
            return
        self._loop = None
        for timer in (self._expiry_timer, self._compact_timer):
            if timer is not None:
                timer.cancel()
        await self._log.close()

    # Reading (get, list, count and watch are the state's own)

    @property
    def revision(self) -> int:
        return self._state.revision

    @property
    def compacted(self) -> int:
        return self._state.compacted

    def latest(self, key: str) -> Record | None:
        event = self._pending.get(key)
        return self._state.get(key) if event is None else event.record

    # Writing

    def put(
        self, key: str, encode: Callable[[int], bytes], *, expected: int | None = None, ttl: float | None = None,
        cache: Any = None,
    ) -> asyncio.Future[Record]:
        previous = self._check(key, expected)
        revision = self._assigned + 1
        value = encode(revision)
        if len(value) > MAX_VALUE_BYTES:
            raise StoreError(f"a value of {len(value)} bytes is more than the store takes")
        created = revision if previous is None else previous.create_revision
        expires = None if ttl is None else self._clock.time() + ttl
        return self._accept(Event(revision, key, Record(key, value, created, revision, expires, cache), previous))

    def delete(self, key: str, *, expected: int | None = None) -> asyncio.Future[tuple[Record, int]]:
        previous = self._check(key, expected)
        if previous is None:
            raise PreconditionFailed(None)
        return self._accept(Event(self._assigned + 1, key, None, previous))

    def _check(self, key: str, expected: int | None) -> Record | None:
        if key.find("/") < 1:
            raise ValueError(f"a key has the form bucket/rest: {key!r}")
        if not key.isascii():
            key.encode()  # one key that no log can write must not fail the batch of others
        current = self.latest(key)
        if expected is not None and expected != (0 if current is None else current.mod_revision):
            raise PreconditionFailed(current)
        return current

    def _accept(self, event: Event) -> asyncio.Future[Any]:
        if self._loop is None:
            raise StoreError("the store is closed")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._assigned = event.revision
        self._pending[event.key] = event
        self._log.append(Write(event, future))
        return future

    def _committed(self, batch: Sequence[Write]) -> None:
        pending = self._pending
        events = []
        for write in batch:
            event = write.event
            events.append(event)
            if pending.get(event.key) is event:
                del pending[event.key]
            if event.record is not None and event.record.expires is not None:
                heapq.heappush(self._expiries, (event.record.expires, event.key, event.revision))
        self._state.apply(events)
        for write in batch:
            if not write.future.done():
                event = write.event
                write.future.set_result((event.previous, event.revision) if event.record is None else event.record)
        self._arm_expiry()
        if self._state.garbage >= _DISCARD_FROM:
            self._discard()

    def _failed(self, batch: Sequence[Write], cause: Exception) -> None:
        # Every write in here was accepted after the first of them, possibly on top of it: all fall together.
        self._pending.clear()
        _log.error("%d writes failed: %s", len(batch), cause)
        for write in batch:
            if not write.future.done():
                error = StoreError(f"the write could not be made durable: {cause}")
                error.__cause__ = cause
                write.future.set_exception(error)

    # Keys that live for a while

    def _arm_expiry(self) -> None:
        if not self._expiries or self._loop is None:
            return
        due = self._expiries[0][0]
        if self._expiry_timer is not None:
            if self._expiry_due <= due:
                return
            self._expiry_timer.cancel()
        self._expiry_due = due
        self._expiry_timer = self._clock.call_later(max(due - self._clock.time(), 0.0), self._on_expiry)

    def _on_expiry(self) -> None:
        self._expiry_timer = None
        self._expire_due()
        self._arm_expiry()

    def _expire_due(self) -> list[asyncio.Future[tuple[Record, int]]]:
        now = self._clock.time()
        deletions: list[asyncio.Future[tuple[Record, int]]] = []
        while self._expiries and self._expiries[0][0] <= now and len(deletions) < _EXPIRE_AT_ONCE:
            _, key, revision = heapq.heappop(self._expiries)
            current = self.latest(key)
            if current is not None and current.mod_revision == revision:
                deletion = self.delete(key, expected=revision)
                deletion.add_done_callback(partial(self._expired, key, revision))
                deletions.append(deletion)
        return deletions

    def _expired(self, key: str, revision: int, deletion: asyncio.Future[tuple[Record, int]]) -> None:
        if not deletion.cancelled() and deletion.exception() is not None:
            heapq.heappush(self._expiries, (self._clock.time() + _RETRY_EXPIRY, key, revision))
            self._arm_expiry()

    # History

    def compact(self, revision: int) -> None:
        self._state.compact(revision)
        if not self._trimming and self._loop is not None:
            self._trimming = True
            self._loop.call_soon(self._trim)

    def _tick(self) -> None:
        now = self._clock.monotonic()
        target = 0
        while self._marks and self._marks[0][0] <= now - self._keep:
            target = self._marks.popleft()[1]
        self._marks.append((now, self._state.revision))
        if target > self._state.compacted:
            self.compact(target)
        else:
            self._discard()
        self._compact_timer = self._clock.call_later(self._interval, self._tick)

    def _trim(self) -> None:
        self._trimming = self._loop is not None and self._state.trim(_TRIM_AT_ONCE)
        if self._trimming and self._loop is not None:
            self._loop.call_soon(self._trim)
        else:
            self._discard()

    def _discard(self) -> None:
        if self._state.garbage and self._loop is not None:
            self._log.discard(self._state.take_garbage(), self._state.compacted)
