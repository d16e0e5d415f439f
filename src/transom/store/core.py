"""A store is this core on top of a log: the core checks, numbers and publishes writes, the log
makes them durable.

All of it runs on the event loop. The core does not know how the log makes a batch durable, in which
thread or on which disk.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from transom.kit.clock import Clock, Timer
from transom.kit.lazy import lazy_import
from transom.store.api import (
    AlsoPut,
    KeyQuarantined,
    PreconditionFailed,
    RecordPage,
    StoreError,
    StoreEvent,
    StoreHealth,
    StoreRecord,
)
from transom.store.mvcc import MvccState
from transom.store.rows import StoredRow

if TYPE_CHECKING:
    from transom.store import recover
    from transom.store.recover import QuarantineRow
else:
    recover = lazy_import("transom.store.recover")

_log = logging.getLogger(__name__)

# The amount of work in one go before the loop runs other tasks.
_EXPIRE_AT_ONCE = 256
_TRIM_AT_ONCE = 512
_DISCARD_FROM = 1024
_RETRY_EXPIRY = 1.0
MAX_VALUE_BYTES = 64 << 20


class StoreWrite:
    __slots__ = ("event", "future", "quarantined", "raw")

    def __init__(
        self,
        event: StoreEvent,
        future: asyncio.Future[Any],
        quarantined: KeyQuarantined | None = None,
        raw: bytes = b"",
    ) -> None:
        """`quarantined`: the write deletes a record whose value, `raw`, goes to quarantine."""
        self.event = event
        self.future = future
        self.quarantined = quarantined
        self.raw = raw


class StoreLog(Protocol):
    """Makes writes durable, in order. Calls `committed` with each durable batch. If a batch fails,
    calls `failed` with it and everything appended since, and discards all of it.
    """

    async def open(
        self,
        state: MvccState,
        committed: Callable[[Sequence[StoreWrite]], None],
        failed: Callable[[Sequence[StoreWrite], Exception], None],
        corrupt: Callable[[StoredRow], None],
    ) -> tuple[Sequence[KeyQuarantined], Sequence[KeyQuarantined]]:
        """Fills the state, then accepts writes. Returns what is in quarantine, and which part of it
        this start found. Calls `corrupt` for each row that later turns out to be corrupt on disk.
        """

    def append(self, write: StoreWrite) -> None: ...

    def discard(self, revisions: Sequence[int], compacted: int) -> None:
        """These rows are no longer needed, because the history up to `compacted` is gone. Not
        urgent.
        """

    def repair(self, row: StoredRow, record: StoreRecord, note: QuarantineRow) -> None:
        """Rewrites the record of a corrupt row, and keeps the corrupt data in quarantine."""

    def clear_quarantine(self) -> None: ...

    def health(self) -> StoreHealth: ...

    async def close(self) -> None: ...


class CoreSnapshot:
    """Records are immutable, so a list of them is the state at that moment."""

    def __init__(self, revision: int, records: list[StoreRecord]) -> None:
        self.revision = revision
        self._records = records

    @property
    def count(self) -> int:
        return len(self._records)

    def records(self, start: int, limit: int) -> Sequence[StoreRecord]:
        return self._records[start : start + limit]


class CoreStore:
    follows = False  # one process has the data

    def __init__(
        self,
        log: StoreLog,
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
        self._state = MvccState(max_events=history_events, max_bytes=history_bytes)
        self._keep = history_seconds
        self._interval = compact_interval
        self._marks: deque[tuple[float, int]] = deque()  # (when, revision then)
        self._assigned = 1
        # the newest write of each key that is accepted but not durable
        self._pending: dict[str, StoreEvent] = {}
        self._expiries: list[tuple[float, str, int]] = []
        self._expiry_timer: Timer | None = None
        self._expiry_due = 0.0
        self._compact_timer: Timer | None = None
        self._trimming = False
        self._quarantined: list[KeyQuarantined] = []
        self._quarantine_listeners: list[Callable[[KeyQuarantined], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self.get = self._state.get
        self.list = self._state.list
        self.count = self._state.count
        self.records = self._state.records
        self.events = self._state.events
        self.watch = self._state.watch

    # Lifecycle

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        quarantined, found = await self._log.open(
            self._state, self._committed, self._failed, self._corrupt_on_disk
        )
        self._quarantined = list(quarantined)
        for one in found:
            self._notify_quarantined(one)
        self._loop = loop
        self._assigned = self._state.revision
        for record in self._state.all_records():
            if record.expires is not None:
                self._expiries.append((record.expires, record.key, record.mod_revision))
        heapq.heapify(self._expiries)
        # Keys that expired while the store was closed are removed before the first read.
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

    # Reading (the state implements get, list, count, records, events and watch)

    @property
    def revision(self) -> int:
        return self._state.revision

    @property
    def compacted(self) -> int:
        return self._state.compacted

    async def sync(self) -> None:
        """Reads are never behind."""

    async def list_past(
        self, prefix: str, *, after: str = "", limit: int = 0, revision: int
    ) -> RecordPage:
        return self._state.list(prefix, after=after, limit=limit, revision=revision)

    def on_reset(self, notify: Callable[[], None]) -> None:
        """The history is never lost while the store is open."""

    def latest(self, key: str) -> StoreRecord | None:
        event = self._pending.get(key)
        return self._state.get(key) if event is None else event.record

    # Writing

    def put(
        self,
        key: str,
        encode: Callable[[int], bytes],
        *,
        expected: int | None = None,
        ttl: float | None = None,
        cache: Any = None,
        stamp: Callable[[int], None] | None = None,
        lock: str = "",
        also: Sequence[AlsoPut] = (),
    ) -> asyncio.Future[StoreRecord]:
        if also:
            raise ValueError(
                "in a store of one process, writes of one iteration need no transaction"
            )
        previous = self._check(key, expected)
        revision = self._assigned + 1
        value = encode(revision)
        if len(value) > MAX_VALUE_BYTES:
            raise StoreError(f"a value of {len(value)} bytes is more than the store takes")
        created = revision if previous is None else previous.create_revision
        expires = None if ttl is None else self._clock.time() + ttl
        return self._accept(
            StoreEvent(
                revision, key, StoreRecord(key, value, created, revision, expires, cache), previous
            )
        )

    def delete(
        self, key: str, *, expected: int | None = None
    ) -> asyncio.Future[tuple[StoreRecord, int]]:
        previous = self._check(key, expected)
        if previous is None:
            raise PreconditionFailed(None)
        return self._accept(StoreEvent(self._assigned + 1, key, None, previous))

    def _check(self, key: str, expected: int | None) -> StoreRecord | None:
        if key.find("/") < 1:
            raise ValueError(f"a key has the form bucket/rest: {key!r}")
        if not key.isascii():
            key.encode()  # a key that the log cannot write must not fail the batch of others
        current = self.latest(key)
        if expected is not None and expected != (0 if current is None else current.mod_revision):
            raise PreconditionFailed(current)
        return current

    def _accept(
        self, event: StoreEvent, quarantined: KeyQuarantined | None = None, raw: bytes = b""
    ) -> asyncio.Future[Any]:
        if self._loop is None:
            raise StoreError("the store is closed")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._assigned = event.revision
        self._pending[event.key] = event
        self._log.append(StoreWrite(event, future, quarantined, raw))
        return future

    def _committed(self, batch: Sequence[StoreWrite]) -> None:
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
            if write.quarantined is not None:
                self._quarantined.append(write.quarantined)
                self._notify_quarantined(write.quarantined)
            if not write.future.done():
                event = write.event
                write.future.set_result(
                    (event.previous, event.revision) if event.record is None else event.record
                )
        self._arm_expiry()
        if self._state.garbage >= _DISCARD_FROM:
            self._discard()

    def _failed(self, batch: Sequence[StoreWrite], cause: Exception) -> None:
        # All of these writes were accepted after the first one, possibly on top of it: all of them
        # fail.
        self._pending.clear()
        _log.error("%d writes failed: %s", len(batch), cause)
        for write in batch:
            if not write.future.done():
                kind = type(cause) if isinstance(cause, StoreError) else StoreError
                error = kind(f"the write could not be made durable: {cause}")
                error.__cause__ = cause
                write.future.set_exception(error)

    # Corrupt records

    def snapshot(self) -> CoreSnapshot:
        return CoreSnapshot(self._state.revision, list(self._state.all_records()))

    def quarantine(
        self, key: str, reason: str, placeholder: bytes
    ) -> asyncio.Future[tuple[StoreRecord, int]]:
        current = self._check(key, None)
        if current is None:
            raise PreconditionFailed(None)
        shown = StoreRecord(key, placeholder, current.create_revision, current.mod_revision)
        about = KeyQuarantined(key, current.mod_revision, reason, self._clock.time())
        return self._accept(StoreEvent(self._assigned + 1, key, None, shown), about, current.value)

    def quarantined(self) -> Sequence[KeyQuarantined]:
        return tuple(self._quarantined)

    def on_quarantine(self, notify: Callable[[KeyQuarantined], None]) -> None:
        self._quarantine_listeners.append(notify)

    def clear_quarantine(self) -> None:
        self._quarantined.clear()
        self._log.clear_quarantine()

    def health(self) -> StoreHealth:
        return self._log.health()

    def _corrupt_on_disk(self, row: StoredRow) -> None:
        """Memory still has the written value, unless the row is no longer needed."""
        if self._loop is None:
            return
        record = self._state.find_revision(row.revision) if isinstance(row.revision, int) else None
        if record is None:
            return
        about = KeyQuarantined(
            record.key,
            record.mod_revision,
            "the checksum does not match on disk; it was written again from memory",
            self._clock.time(),
        )
        raw = row.value if isinstance(row.value, bytes) else b""
        self._log.repair(row, record, recover.QuarantineRow(about, raw))
        self._quarantined.append(about)
        self._notify_quarantined(about)

    def _notify_quarantined(self, one: KeyQuarantined) -> None:
        _log.error(
            "the record %s of revision %d is corrupt: %s",
            one.key or "(unknown)",
            one.revision,
            one.reason,
        )
        for notify in self._quarantine_listeners:
            try:
                notify(one)
            except Exception:
                _log.exception("the quarantine of %s could not be reported", one.key)

    # Keys with a TTL

    def _arm_expiry(self) -> None:
        if not self._expiries or self._loop is None:
            return
        due = self._expiries[0][0]
        if self._expiry_timer is not None:
            if self._expiry_due <= due:
                return
            self._expiry_timer.cancel()
        self._expiry_due = due
        self._expiry_timer = self._clock.call_later(
            max(due - self._clock.time(), 0.0), self._on_expiry
        )

    def _on_expiry(self) -> None:
        self._expiry_timer = None
        self._expire_due()
        self._arm_expiry()

    def _expire_due(self) -> list[asyncio.Future[tuple[StoreRecord, int]]]:
        now = self._clock.time()
        deletions: list[asyncio.Future[tuple[StoreRecord, int]]] = []
        while self._expiries and self._expiries[0][0] <= now and len(deletions) < _EXPIRE_AT_ONCE:
            _, key, revision = heapq.heappop(self._expiries)
            current = self.latest(key)
            if current is not None and current.mod_revision == revision:
                deletion = self.delete(key, expected=revision)
                deletion.add_done_callback(partial(self._expired, key, revision))
                deletions.append(deletion)
        return deletions

    def _expired(
        self, key: str, revision: int, deletion: asyncio.Future[tuple[StoreRecord, int]]
    ) -> None:
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
