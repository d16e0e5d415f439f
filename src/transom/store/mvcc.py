"""The state of a store in memory: current records, their recent history, and who watches.

Shared by all stores that keep their data in this process. It is told of changes when they are durable and knows neither
disks nor threads nor clocks. The value of a record is one bytes object, shared by state, history and readers.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from transom.store.api import Compacted, Event, FutureRevision, Page, Record

_log = logging.getLogger(__name__)

# What an event costs beside the value it keeps alive.
_EVENT_BYTES = 256

Row = tuple[int, str, bytes | None, int, float | None]
"""One change as a log keeps it: revision, key, value (None: deleted), create revision, expiry."""


class Subscription:
    __slots__ = ("_active", "_on_events", "_prefix", "_seen", "_table")

    def __init__(
        self, table: dict[str, list[Subscription]], prefix: str, seen: int, on_events: Callable[[Sequence[Event]], None]
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

    def deliver(self, events: Sequence[Event]) -> None:
        # Who came while this batch was being delivered, or waits for a future revision, has had some of it.
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
    __slots__ = ("history", "keys", "name", "records", "watchers")

    def __init__(self, name: str) -> None:
        self.name = name  # with the slash
        self.records: dict[str, Record] = {}
        self.keys: list[str] = []  # sorted
        self.history: deque[Event] = deque()
        self.watchers: dict[str, list[Subscription]] = {}


class State:
    __slots__ = ("_buckets", "_bytes", "_events", "_everywhere", "_garbage", "compacted", "max_bytes", "max_events",
                 "revision")  # fmt: skip

    def __init__(self, *, max_events: int, max_bytes: int) -> None:
        self.revision = 1
        self.compacted = 0
        self.max_events = max_events
        self.max_bytes = max_bytes
        self._buckets: dict[str, _Bucket] = {}
        self._events: deque[Event] = deque()  # of all buckets; each bucket holds its own share in the same order
        self._bytes = 0
        self._everywhere: dict[str, list[Subscription]] = {}  # prefixes that are no longer than a bucket's name
        self._garbage: list[int] = []

    # Reading

    def get(self, key: str, revision: int = 0) -> Record | None:
        bucket = self._buckets.get(key[: key.find("/") + 1])
        if bucket is None:
            self._check(revision)
            return None
        if revision and self._check(revision) < self.revision:
            return self._rolled_back(bucket, key, revision).get(key, bucket.records.get(key))
        return bucket.records.get(key)

    def list(self, prefix: str, *, after: str = "", limit: int = 0, revision: int = 0) -> Page:
        at = self._check(revision)
        changed: dict[str, Record | None] = {}
        keys: list[str] = []
        buckets = self._matching(prefix)
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
        return Page(found, at, len(keys) < total, total - len(keys))

    def count(self, prefix: str) -> int:
        total = 0
        for bucket in self._matching(prefix):
            low, high = _span(bucket, prefix, "")
            total += high - low
        return total

    def all_records(self) -> Iterable[Record]:
        for bucket in self._buckets.values():
            yield from bucket.records.values()

    def _current(self, key: str) -> Record:
        return self._buckets[key[: key.find("/") + 1]].records[key]

    def _check(self, revision: int) -> int:
        if revision > self.revision:
            raise FutureRevision(self.revision)
        if revision and revision < self.compacted:
            raise Compacted(self.compacted)
        return revision or self.revision

    def _matching(self, prefix: str) -> Sequence[_Bucket]:
        slash = prefix.find("/")
        if slash < 0:
            return [bucket for bucket in self._buckets.values() if bucket.name.startswith(prefix)]
        bucket = self._buckets.get(prefix[: slash + 1])
        return () if bucket is None else (bucket,)

    @staticmethod
    def _rolled_back(bucket: _Bucket, prefix: str, revision: int) -> dict[str, Record | None]:
        """What the keys that changed after `revision` were then."""
        then: dict[str, Record | None] = {}
        for event in reversed(bucket.history):
            if event.revision <= revision:
                break
            if event.key.startswith(prefix):
                then[event.key] = event.previous
        return then

    # Watching

    def watch(self, prefix: str, since: int, on_events: Callable[[Sequence[Event]], None]) -> Subscription:
        if since < self.compacted:
            raise Compacted(self.compacted)
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
        return Subscription(table, prefix, max(since, self.revision), on_events)

    # Changing

    def apply(self, events: Sequence[Event]) -> None:
        """Take in a durable batch, in order of revision, and tell the watchers."""
        touched: dict[_Bucket, list[Event]] = {}
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

    def load(self, rows: Iterable[Row], compacted: int) -> None:
        """Become what a log says, rows in order of revision. For a state that is still empty."""
        self.compacted = compacted
        revision = 1
        for revision, key, value, create_revision, expires in rows:
            bucket = self._bucket(key[: key.find("/") + 1])
            record = None if value is None else Record(key, value, create_revision, revision, expires)
            previous = bucket.records.get(key)
            if revision > compacted:
                self._remember(bucket, Event(revision, key, record, previous))
            else:
                self._bury(revision, record, previous)
            if record is not None:
                bucket.records[key] = record
            elif previous is not None:
                del bucket.records[key]
        self.revision = max(revision, compacted, 1)
        for bucket in self._buckets.values():
            bucket.keys = sorted(bucket.records)
        self._enforce_bounds()

    def _bucket(self, name: str) -> _Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(name)
        return bucket

    # Forgetting

    def compact(self, revision: int) -> None:
        """The history up to `revision` may not be asked for any more; `trim` then frees it."""
        if revision > self.revision:
            raise FutureRevision(self.revision)
        self.compacted = max(self.compacted, revision)

    def trim(self, limit: int) -> bool:
        """Free up to `limit` compacted events; says whether more are left. In pieces, because freeing takes time."""
        for _ in range(limit):
            if not self._events or self._events[0].revision > self.compacted:
                return False
            self._forget_oldest()
        return True

    def take_garbage(self) -> Sequence[int]:
        """Revisions whose rows no reader can reach any more, since the last call."""
        garbage, self._garbage = self._garbage, []
        return garbage

    @property
    def garbage(self) -> int:
        return len(self._garbage)

    def _remember(self, bucket: _Bucket, event: Event) -> None:
        self._events.append(event)
        bucket.history.append(event)
        self._bytes += _EVENT_BYTES if event.previous is None else _EVENT_BYTES + len(event.previous.value)

    def _enforce_bounds(self) -> None:
        while len(self._events) > self.max_events or self._bytes > self.max_bytes:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        event = self._events.popleft()
        self._buckets[event.key[: event.key.find("/") + 1]].history.popleft()
        self._bytes -= _EVENT_BYTES if event.previous is None else _EVENT_BYTES + len(event.previous.value)
        self.compacted = max(self.compacted, event.revision)
        self._bury(event.revision, event.record, event.previous)

    def _bury(self, revision: int, record: Record | None, previous: Record | None) -> None:
        if previous is not None:
            self._garbage.append(previous.mod_revision)
        if record is None:
            self._garbage.append(revision)


def _span(bucket: _Bucket, prefix: str, after: str) -> tuple[int, int]:
    """Where the keys with this prefix and behind `after` stand."""
    keys = bucket.keys
    low, high = 0, len(keys)
    if not bucket.name.startswith(prefix):
        low = bisect_left(keys, prefix)
        # No character sorts behind the last code point, so this is behind every key with the prefix.
        high = bisect_right(keys, prefix + "\U0010ffff", low)
    if after:
        low = bisect_right(keys, after, low, high)
    return low, high


def _notify(table: dict[str, list[Subscription]], events: Sequence[Event], everything: str) -> None:
    for prefix, watchers in tuple(table.items()):
        if prefix == everything:
            matching = events
        else:
            matching = [event for event in events if event.key.startswith(prefix)]
            if not matching:
                continue
        for watcher in tuple(watchers):
            watcher.deliver(matching)
