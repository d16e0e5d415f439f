"""The state of a store in memory: current records, their recent history, and the watchers.

Shared by all stores that keep their data in this process. It receives changes when they are durable
and does not depend on disks, threads or clocks. The value of a record is one bytes object, shared
by state, history and readers.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from transom.store.api import FutureRevision, RecordPage, RevisionCompacted, StoreEvent, StoreRecord
from transom.store.recordset import RecordSet, RecordSets

_log = logging.getLogger(__name__)

# The memory of an event beside the value it keeps alive.
_EVENT_BYTES = 256

Row = tuple[int, str, bytes | None, int, float | None]
"""One change as stored in a log: revision, key, value (None: deleted), create revision, expiry."""


class MvccSubscription:
    __slots__ = ("_active", "_on_events", "_prefix", "_seen", "_table")

    def __init__(
        self,
        table: dict[str, list[MvccSubscription]],
        prefix: str,
        seen: int,
        on_events: Callable[[Sequence[StoreEvent]], None],
    ) -> None:
        self._table = table
        self._prefix = prefix
        self._seen = seen
        self._on_events = on_events
        self._active = True
        table.setdefault(prefix, []).append(self)

    def cancel(self) -> None:
        if self._active:
            self._active = False
            watchers = self._table[self._prefix]
            watchers.remove(self)
            if not watchers:
                del self._table[self._prefix]

    def rewind(self, seen: int) -> None:
        self._seen = seen

    def deliver(self, events: Sequence[StoreEvent]) -> None:
        # A watcher that joined during this delivery, or waits for a future revision, already has
        # some of it.
        if not self._active or events[-1].revision <= self._seen:
            return
        if events[0].revision <= self._seen:
            events = [event for event in events if event.revision > self._seen]
        self._seen = events[-1].revision
        try:
            self._on_events(events)
        except Exception:
            _log.exception("a watcher of %s failed", self._prefix)


class _Bucket:
    __slots__ = ("history", "keys", "name", "records", "sets", "watchers")

    def __init__(self, name: str) -> None:
        self.name = name  # with the slash
        self.records: dict[str, StoreRecord] = {}
        self.keys: list[str] = []  # sorted
        self.history: deque[StoreEvent] = deque()
        self.watchers: dict[str, list[MvccSubscription]] = {}
        self.sets = RecordSets()


class MvccState:
    __slots__ = (
        "_buckets",
        "_bytes",
        "_events",
        "_everywhere",
        "_garbage",
        "compacted",
        "max_bytes",
        "max_events",
        "revision",
    )

    def __init__(self, *, max_events: int, max_bytes: int) -> None:
        self.max_events = max_events
        self.max_bytes = max_bytes
        self.reset()

    def reset(self) -> None:
        """Becomes empty, at first and for a log that turned out to be damaged during loading."""
        self.revision = 1
        self.compacted = 0
        self._buckets: dict[str, _Bucket] = {}
        # The events of all buckets; each bucket holds its own share in the same order.
        self._events: deque[StoreEvent] = deque()
        self._bytes = 0
        # The subscriptions of prefixes that are not longer than a bucket's name.
        self._everywhere: dict[str, list[MvccSubscription]] = {}
        self._garbage: list[int] = []

    # Reading

    def get(self, key: str, revision: int = 0) -> StoreRecord | None:
        bucket = self._buckets.get(key[: key.find("/") + 1])
        if bucket is None:
            self._check(revision)
            return None
        if revision and self._check(revision) < self.revision:
            return self._rolled_back(bucket, key, revision).get(key, bucket.records.get(key))
        return bucket.records.get(key)

    def list(
        self, prefix: str, *, after: str = "", limit: int = 0, revision: int = 0
    ) -> RecordPage:
        at = self._check(revision) if revision else self.revision
        buckets = self._matching(prefix)
        if not revision and (not buckets or (len(buckets) == 1 and not buckets[0].keys)):
            return RecordPage([], at, False, 0)  # admission asks this about every new object
        changed: dict[str, StoreRecord | None] = {}
        keys: list[str] = []
        for bucket in buckets:
            low, high = _span(bucket, prefix, after)
            keys += bucket.keys[low:high]
            if at < self.revision:
                changed |= self._rolled_back(bucket, prefix, at)
        if changed:
            keys = [key for key in keys if key not in changed]
            keys += (key for key, record in changed.items() if record is not None and key > after)
        if changed or len(buckets) > 1:
            keys.sort()
        total = len(keys)
        if limit and limit < total:
            del keys[limit:]
        if len(buckets) == 1 and not changed:
            records = buckets[0].records
            found = [records[key] for key in keys]
        else:
            found = [changed.get(key) or self._current(key) for key in keys]
        return RecordPage(found, at, len(keys) < total, total - len(keys))

    def records(self, prefix: str) -> RecordSet:
        bucket = self._bucket(prefix[: prefix.find("/") + 1])
        sets = bucket.sets
        if sets.revision < self.revision:
            changed: dict[str, StoreRecord | None] = {}
            if sets.built:
                for event in reversed(bucket.history):
                    if event.revision <= sets.revision:
                        break
                    changed.setdefault(event.key, event.record)
            sets.advance(self.revision, changed, bucket.keys, bucket.records)
        return sets.part(bucket.name, prefix)

    def count(self, prefix: str) -> int:
        total = 0
        for bucket in self._matching(prefix):
            low, high = _span(bucket, prefix, "")
            total += high - low
        return total

    def all_records(self) -> Iterable[StoreRecord]:
        for bucket in self._buckets.values():
            yield from bucket.records.values()

    def find_revision(self, revision: int, key: str = "") -> StoreRecord | None:
        """The record that a revision wrote, if it is still referenced; of `key`, if it wrote several."""
        for event in self._events:
            if event.revision == revision and key in ("", event.key):
                return event.record
        for bucket in self._buckets.values():
            for record in bucket.records.values():
                if record.mod_revision == revision and key in ("", record.key):
                    return record
        return None

    def _current(self, key: str) -> StoreRecord:
        return self._buckets[key[: key.find("/") + 1]].records[key]

    def _check(self, revision: int) -> int:
        if revision > self.revision:
            raise FutureRevision(self.revision)
        if revision and revision < self.compacted:
            raise RevisionCompacted(self.compacted)
        return revision or self.revision

    def _matching(self, prefix: str) -> Sequence[_Bucket]:
        slash = prefix.find("/")
        if slash < 0:
            return [bucket for bucket in self._buckets.values() if bucket.name.startswith(prefix)]
        bucket = self._buckets.get(prefix[: slash + 1])
        return () if bucket is None else (bucket,)

    @staticmethod
    def _rolled_back(bucket: _Bucket, prefix: str, revision: int) -> dict[str, StoreRecord | None]:
        """The state at `revision` of the keys that changed after it."""
        then: dict[str, StoreRecord | None] = {}
        for event in reversed(bucket.history):
            if event.revision <= revision:
                break
            if event.key.startswith(prefix):
                then[event.key] = event.previous
        return then

    # Watching

    def watch(
        self, prefix: str, since: int, on_events: Callable[[Sequence[StoreEvent]], None]
    ) -> MvccSubscription:
        if since < self.compacted:
            raise RevisionCompacted(self.compacted)
        slash = prefix.find("/")
        if slash < 0:
            table, history = self._everywhere, self._events
        else:
            bucket = self._bucket(prefix[: slash + 1])
            table, history = bucket.watchers, bucket.history
        if since < self.revision:
            missed = []
            for event in reversed(history):
                if event.revision <= since:
                    break
                if event.key.startswith(prefix):
                    missed.append(event)
            if missed:
                missed.reverse()
                on_events(missed)
        return MvccSubscription(table, prefix, max(since, self.revision), on_events)

    def events(self, prefix: str, since: int, limit: int) -> tuple[Sequence[StoreEvent], int]:
        if since < self.compacted:
            raise RevisionCompacted(self.compacted)
        bucket = self._buckets.get(prefix[: prefix.find("/") + 1])
        if bucket is None:
            return [], self.revision
        history = bucket.history
        first = bisect_right(history, since, key=_revision)
        last = min(first + limit, len(history))
        found = [
            event for at in range(first, last) if (event := history[at]).key.startswith(prefix)
        ]
        return found, self.revision if last == len(history) else history[last - 1].revision

    # Changing

    def apply(self, events: Sequence[StoreEvent]) -> None:
        """Applies a durable batch, in order of revision, and notifies the watchers."""
        touched: dict[_Bucket, list[StoreEvent]] = {}
        for event in events:
            key = event.key
            bucket = self._bucket(key[: key.find("/") + 1])
            if event.record is not None:
                if event.previous is None:
                    insort(bucket.keys, key)
                bucket.records[key] = event.record
            else:
                del bucket.records[key]
                del bucket.keys[bisect_left(bucket.keys, key)]
            self._remember(bucket, event)
            group = touched.get(bucket)
            if group is None:
                touched[bucket] = [event]
            else:
                group.append(event)
        self.revision = events[-1].revision
        self._enforce_bounds()
        for bucket, group in touched.items():
            if bucket.watchers:
                _notify(bucket.watchers, group, bucket.name)
        if self._everywhere:
            _notify(self._everywhere, events, "")

    def advance(self, revision: int) -> None:
        """The state is that of this revision too: nothing has changed up to it."""
        self.revision = max(self.revision, revision)

    def rewind(self, revision: int) -> None:
        """Forgets the history: the state belongs to another one from now on, at this revision, which
        may be lower. The next batch, of the same revision, is delivered to all watchers.
        """
        self.revision = self.compacted = revision
        self._events.clear()
        self._bytes = 0
        self._garbage = []
        tables = [self._everywhere]
        for bucket in self._buckets.values():
            bucket.history.clear()
            bucket.sets.drop()
            tables.append(bucket.watchers)
        for table in tables:
            for watchers in table.values():
                for watcher in watchers:
                    watcher.rewind(revision - 1)

    def load(self, rows: Iterable[Row], compacted: int) -> None:
        """Loads the rows of a log, in order of revision. The state must be empty."""
        self.compacted = compacted
        revision = 1
        name, records = (
            "",
            dict[str, StoreRecord](),
        )  # the bucket of the last row; rows of one often follow each other
        for revision, key, value, create_revision, expires in rows:
            if not name or not key.startswith(name):
                name = key[: key.find("/") + 1]
                records = self._bucket(name).records
            record = (
                None
                if value is None
                else StoreRecord(key, value, create_revision, revision, expires)
            )
            previous = records.get(key)
            if revision > compacted:
                self._remember(self._buckets[name], StoreEvent(revision, key, record, previous))
            elif previous is not None or record is None:
                self._add_tombstone(revision, record, previous)
            if record is not None:
                records[key] = record
            elif previous is not None:
                del records[key]
        self.revision = max(revision, compacted, 1)
        for bucket in self._buckets.values():
            bucket.keys = sorted(bucket.records)
        self._enforce_bounds()

    def _bucket(self, name: str) -> _Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(name)
        return bucket

    # Compaction

    def compact(self, revision: int) -> None:
        """Makes the history up to `revision` unavailable; `trim` then frees it."""
        if revision > self.revision:
            raise FutureRevision(self.revision)
        self.compacted = max(self.compacted, revision)

    def trim(self, limit: int) -> bool:
        """Frees up to `limit` compacted events; returns whether more are left. In pieces, because
        freeing takes time.
        """
        for _ in range(limit):
            if not self._events or self._events[0].revision > self.compacted:
                return False
            self._forget_oldest()
        return True

    def take_garbage(self) -> Sequence[int]:
        """Revisions whose rows have become unreachable for readers since the last call."""
        garbage, self._garbage = self._garbage, []
        return garbage

    @property
    def garbage(self) -> int:
        return len(self._garbage)

    def _remember(self, bucket: _Bucket, event: StoreEvent) -> None:
        self._events.append(event)
        bucket.history.append(event)
        self._bytes += (
            _EVENT_BYTES if event.previous is None else _EVENT_BYTES + len(event.previous.value)
        )

    def _enforce_bounds(self) -> None:
        while len(self._events) > self.max_events or self._bytes > self.max_bytes:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        event = self._events.popleft()
        bucket = self._buckets[event.key[: event.key.find("/") + 1]]
        bucket.history.popleft()
        if bucket.sets.built and bucket.sets.revision < event.revision:
            bucket.sets.drop()  # it holds the last reference to what this event replaced
        self._bytes -= (
            _EVENT_BYTES if event.previous is None else _EVENT_BYTES + len(event.previous.value)
        )
        self.compacted = max(self.compacted, event.revision)
        self._add_tombstone(event.revision, event.record, event.previous)

    def _add_tombstone(
        self, revision: int, record: StoreRecord | None, previous: StoreRecord | None
    ) -> None:
        if previous is not None:
            self._garbage.append(previous.mod_revision)
        if record is None:
            self._garbage.append(revision)


def _revision(event: StoreEvent) -> int:
    return event.revision


def _span(bucket: _Bucket, prefix: str, after: str) -> tuple[int, int]:
    """The range of keys with this prefix after `after`."""
    keys = bucket.keys
    low, high = 0, len(keys)
    if not bucket.name.startswith(prefix):
        low = bisect_left(keys, prefix)
        # No character sorts after the last code point, so this is after every key with the prefix.
        high = bisect_right(keys, prefix + "\U0010ffff", low)
    if after:
        low = bisect_right(keys, after, low, high)
    return low, high


def _notify(
    table: dict[str, list[MvccSubscription]], events: Sequence[StoreEvent], everything: str
) -> None:
    for prefix, watchers in tuple(table.items()):
        if prefix == everything:
            matching = events
        else:
            matching = [event for event in events if event.key.startswith(prefix)]
            if not matching:
                continue
        for watcher in tuple(watchers):
            watcher.deliver(matching)
