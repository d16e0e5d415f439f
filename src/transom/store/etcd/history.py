"""The history of the copy in memory: how long it is kept, and what it says about a write. etcd's own
history is compacted separately.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from transom.kit.clock import Clock, Timer
from transom.store.api import RevisionCompacted, StoreRecord, StoreUnavailable
from transom.store.mvcc import MvccState

_TRIM_AT_ONCE = 512
_EVENTS_AT_ONCE = 1024


def find_create(
    state: MvccState, key: str, value: Callable[[int], bytes], since: int
) -> int | None:
    """The revision after `since` at which the key was created with this value, 0 if it was not, None
    if the history does not go back to `since`. `value`: the value at a revision.
    """
    while True:
        try:
            events, reached = state.events(key, since, _EVENTS_AT_ONCE)
        except RevisionCompacted:
            return None
        for event in events:
            record = event.record
            if event.key != key or record is None or event.previous is not None:
                continue
            if record.value == value(record.mod_revision):
                return record.mod_revision
        if reached >= state.revision:
            return 0
        since = reached


def find_deleted(state: MvccState, key: str, revision: int) -> StoreRecord:
    """The record that was deleted at this revision."""
    try:
        events, _ = state.events(key[: key.find("/") + 1], revision - 1, 64)
    except RevisionCompacted:
        events = ()
    for event in events:
        if event.revision == revision and event.key == key and event.previous is not None:
            return event.previous
    raise StoreUnavailable(f"etcd: the object deleted at revision {revision} is not known")


def find_written(state: MvccState, key: str, revision: int) -> StoreRecord | None:
    """The record of a write; None if another write followed before the copy was read again."""
    record = state.get(key)
    if record is not None and record.mod_revision == revision:
        return record
    record = state.find_revision(revision, key)
    return None if record is None or record.key != key else record


def make_written(
    key: str, value: bytes, expected: int | None, previous: StoreRecord | None, revision: int
) -> StoreRecord:
    """The record of a write that is in no history: the copy was read again, and the key had been
    changed or deleted meanwhile. `previous`: the record before the write, as far as it was known.
    """
    if expected == 0:
        return StoreRecord(key, value, revision, revision)
    if previous is None or previous.mod_revision != expected:
        raise StoreUnavailable(f"etcd: the object written at revision {revision} is not known")
    return StoreRecord(key, value, previous.create_revision, revision)


class CopyHistory:
    """Compacts the copy periodically: events are kept for `keep` seconds."""

    def __init__(self, state: MvccState, clock: Clock, keep: float, interval: float) -> None:
        self._state = state
        self._clock = clock
        self._keep = keep
        self._interval = interval
        self._marks: deque[tuple[float, int]] = deque()  # (when, revision then)
        self._tick_timer: Timer | None = None
        self._trim_timer: asyncio.TimerHandle | None = None
        self._running = False

    def start(self) -> None:
        self._running = True
        self._tick()

    def stop(self) -> None:
        self._running = False
        for timer in (self._tick_timer, self._trim_timer):
            if timer is not None:
                timer.cancel()

    def clear(self) -> None:
        """The copy was read again: earlier revisions are not in it."""
        self._marks.clear()

    def compact(self, revision: int) -> None:
        self._state.compact(revision)
        if self._running and self._trim_timer is None:
            self._trim_later()

    def _tick(self) -> None:
        now = self._clock.monotonic()
        target = 0
        while self._marks and self._marks[0][0] <= now - self._keep:
            target = self._marks.popleft()[1]
        self._marks.append((now, self._state.revision))
        if target > self._state.compacted:
            self.compact(target)
        self._state.take_garbage()  # etcd frees its own
        self._tick_timer = self._clock.call_later(self._interval, self._tick)

    def _trim_later(self) -> None:
        self._trim_timer = asyncio.get_running_loop().call_later(0.0, self._trim)

    def _trim(self) -> None:
        """A few events at a time, so that other tasks run in between."""
        self._trim_timer = None
        if self._state.trim(_TRIM_AT_ONCE) and self._running:
            self._trim_later()
