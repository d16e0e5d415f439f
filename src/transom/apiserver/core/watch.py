"""Watches: turns events of the store into ADDED, MODIFIED and DELETED events for each watcher.

Watchers that get the same bytes form one audience: an event is filtered and framed once for all of
them that keep up. A slow watcher has a cursor: a position in a shared snapshot or in the store's
history, from which its events are encoded when its client has read the earlier ones.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson

from transom.apiserver.core.converted_watch import ConvertedWatch
from transom.apiserver.core.lists import selector_filter
from transom.apiserver.core.options import ListOptions
from transom.apiserver.core.resources import Resource
from transom.apiserver.core.storage import Storage
from transom.apiserver.core.watch_encoding import (
    LargeEvents,
    SharedSlices,
    SliceEncoder,
    is_slow_to_encode,
)
from transom.apiserver.core.watch_types import Buffer, Sink, WatchEncoder, WatchStep
from transom.kit.clock import Timer
from transom.machinery import errors
from transom.store.api import RevisionCompacted, StoreEvent, StoreRecord
from transom.store.recordset import RecordSet

BOOKMARK_EVERY = 60.0
_BOOKMARK_BEFORE_END = 2.0
_LIVE_MOST = 64 * 1024  # larger batches are read from the history, slice by slice
# The field by which many clients watch their share of a kind: a thousand kubelets must not each
# examine every pod.
TRIGGERS = {"/Pod": "spec.nodeName"}


Keep = Callable[[StoreRecord], bool]
Item = tuple[str, StoreRecord]
BOOKMARK = "BOOKMARK"


class Watcher:
    __slots__ = ("audience", "bookmarks", "closed", "conversion", "fresh", "hub", "sink", "timers")

    def __init__(self, hub: WatchHub, audience: Audience, sink: Sink, bookmarks: bool) -> None:
        self.hub = hub
        self.audience = audience
        self.sink = sink
        self.bookmarks = bookmarks
        self.fresh = audience.form.headed  # has not received its first event
        self.timers: list[Timer] = []
        self.conversion: ConvertedWatch | None = None
        self.closed = False

    def close(self) -> None:
        """Stops watching; idempotent."""
        if self.closed:
            return
        self.closed = True
        for timer in self.timers:
            timer.cancel()
        if self.conversion is not None:
            self.conversion.cancel()
        self.audience.leave(self)

    def finish(self) -> None:
        """The requested timeout has passed: end the stream cleanly."""
        if not self.closed:
            self.close()
            self.sink.end()

    def bookmark(self) -> None:
        """Only a watcher that has received all events may get a bookmark of the current
        revision.
        """
        if not self.closed and id(self) in self.audience.live:
            self.sink.send(self.audience.form.bookmark(self.hub.storage.store.revision, False))

    def fall_behind(self, cursor: Cursor) -> None:
        self.audience.live.pop(id(self), None)
        self.audience.behind[id(self)] = self
        self.sink.follow(cursor)

    def catch_up(self) -> None:
        """The cursor has delivered all events."""
        if self.audience.behind.pop(id(self), None) is not None:
            self.audience.live[id(self)] = self


class Cursor:
    """The position of a watcher that does not get events as they happen: in the initial list, then
    in the history.

    It stores no events. If the history that it still needs is compacted, the watch ends with 410
    Expired.
    """

    __slots__ = ("_at", "_chunk", "_large", "_marker", "_over", "_snapshot", "_watcher", "revision")

    def __init__(
        self,
        watcher: Watcher,
        revision: int,
        snapshot: RecordSet | None = None,
        marker: bool = False,
    ) -> None:
        self._watcher = watcher
        self._snapshot = snapshot
        self._chunk = self._at = 0  # index of the next record of the snapshot
        self._marker = marker  # a bookmark must mark the end of the initial list
        self._over = False
        self._large: asyncio.Future[Any] | None = None  # the event that a worker thread encodes
        self.revision = revision

    def read(self, size: int) -> Sequence[Buffer] | asyncio.Future[Any] | None:
        """The next encoded events, at least one and about `size` bytes. Empty: call again; a future:
        call again when it is done; None: the watcher has caught up, or the watch has ended.
        """
        watcher = self._watcher
        if self._over:
            watcher.sink.end()
        if watcher.closed:
            return None
        try:
            if self._snapshot is not None:
                return self._read_snapshot(self._snapshot, size)
            if self._marker:
                self._marker = False
                return [watcher.audience.form.bookmark(self.revision, True)]
            return self._read_history(size)
        except RevisionCompacted as gone:
            watcher.close()
            self._over = True
            expired = errors.expired(f"too old resource version: {self.revision} ({gone.revision})")
            return [watcher.audience.form.error(expired.status())]

    def take(self, limit: int) -> list[WatchStep] | None:
        """The same without encoding. Raises Compacted."""
        watcher = self._watcher
        if watcher.closed:
            return None
        audience, store = watcher.audience, watcher.hub.storage.store
        snapshot = self._snapshot
        if snapshot is not None:
            records = self._next_records(snapshot, limit)
            keep = audience.keep
            return [WatchStep("ADDED", r) for r in records if keep is None or keep(r)]
        if self._marker:
            self._marker = False
            return [WatchStep(BOOKMARK, (self.revision, True))]
        events, reached = store.events(audience.prefix, self.revision, limit)
        if not events and reached == store.revision:
            self.revision = reached
            watcher.catch_up()
            return None
        found = []
        for event in events:
            seen = watch_change(event, audience.keep)
            if seen is not None:
                previous = event.previous if seen[0] == "MODIFIED" else None
                found.append(WatchStep(*seen, previous))
        self._forget(events)
        self.revision = reached
        return found

    def _next_records(self, snapshot: RecordSet, limit: int) -> Sequence[StoreRecord]:
        """Records of the snapshot, none at its end."""
        self._check(snapshot)
        if self._chunk >= len(snapshot.chunks):
            self._snapshot = None
            return ()
        chunk = snapshot.chunks[self._chunk].records
        records = chunk[self._at : self._at + limit]
        self._advance(chunk, self._at + len(records))
        return records

    def _check(self, snapshot: RecordSet) -> None:
        compacted = self._watcher.hub.storage.store.compacted
        if snapshot.revision < compacted:  # slow readers keep nothing older than the history
            raise RevisionCompacted(compacted)

    def _advance(self, chunk: Sequence[StoreRecord], at: int) -> None:
        if at >= len(chunk):
            self._chunk, self._at = self._chunk + 1, 0
        else:
            self._at = at

    def _read_large(self, kind: str, record: StoreRecord) -> asyncio.Future[Any]:
        """The encoded event, when the future is done."""
        watcher = self._watcher
        if self._large is None:
            self._large = watcher.hub.large_events.encode(
                watcher.audience.form, kind, record, watcher.fresh
            )
        return self._large

    def _take_large(self, encoded: asyncio.Future[Any]) -> Sequence[Buffer]:
        self._large = None
        self._watcher.fresh = False
        return [encoded.result()]

    def _read_snapshot(
        self, snapshot: RecordSet, size: int
    ) -> Sequence[Buffer] | asyncio.Future[Any]:
        watcher = self._watcher
        audience = watcher.audience
        self._check(snapshot)
        if self._chunk >= len(snapshot.chunks):
            self._snapshot = None
            return ()
        slices = watcher.hub.slices
        key = (audience.key, snapshot.serial, self._chunk, self._at, size, watcher.fresh)
        found = slices.get(key)
        if found is None:
            records = snapshot.chunks[self._chunk].records
            encoder = SliceEncoder(audience.form, size, watcher.fresh)
            at = self._at
            keep = audience.keep
            end = min(len(records), at + audience.form.batch)
            while at < end and not encoder.full:
                record = records[at]
                if keep is None or keep(record):
                    if is_slow_to_encode(audience.form, record):
                        if encoder.parts:
                            break
                        encoded = self._read_large("ADDED", record)
                        if not encoded.done():
                            return encoded
                        self._advance(records, at + 1)
                        return self._take_large(encoded)
                    encoder.add("ADDED", record)
                at += 1
            found = slices.put(key, encoder, at)
        self._advance(snapshot.chunks[self._chunk].records, found.end)
        if found.parts:
            watcher.fresh = False
        return found.parts

    def _read_history(self, size: int) -> Sequence[Buffer] | asyncio.Future[Any] | None:
        watcher = self._watcher
        audience, store = watcher.audience, watcher.hub.storage.store
        slices = watcher.hub.slices
        key = (audience.key, "history", self.revision, size, watcher.fresh)
        if self.revision < store.compacted:
            raise RevisionCompacted(store.compacted)
        found = slices.get(key)
        if found is None:
            events, reached = store.events(audience.prefix, self.revision, audience.form.batch)
            if not events and reached == store.revision:
                self.revision = reached
                watcher.catch_up()
                return None
            encoder = SliceEncoder(audience.form, size, watcher.fresh)
            before = self.revision
            for event in events:
                seen = watch_change(event, audience.keep)
                if seen is not None:
                    if is_slow_to_encode(audience.form, seen[1]):
                        if encoder.parts:
                            reached = before
                            break
                        encoded = self._read_large(*seen)
                        if not encoded.done():
                            return encoded
                        self.revision = event.revision
                        self._forget([event])
                        return self._take_large(encoded)
                    encoder.add(*seen)
                    if encoder.full:
                        reached = event.revision
                        break
                before = event.revision
            self._forget(events)
            found = slices.put(key, encoder, reached)
        self.revision = found.end
        if found.parts:
            watcher.fresh = False
        return found.parts

    def _forget(self, events: Sequence[StoreEvent]) -> None:
        """Drops what was derived from old records only for this reader."""
        storage = self._watcher.hub.storage
        for event in events:
            event.cache = None
            if event.previous is not None:
                storage.superseded(event.previous)


class Audience:
    """Watchers of one bucket with the same filter and the same form."""

    __slots__ = ("_bucket", "behind", "form", "keep", "key", "live", "place", "prefix")

    def __init__(
        self,
        bucket: _Bucket,
        key: object,
        prefix: str,
        keep: Keep | None,
        form: WatchEncoder,
        place: str = "",
    ) -> None:
        self._bucket = bucket
        self.key = key
        self.prefix = prefix
        self.keep = keep
        self.form = form
        self.place = place  # its key in the bucket
        self.live: dict[int, Watcher] = {}  # watchers that have seen everything
        self.behind: dict[int, Watcher] = {}  # watchers with cursors

    def leave(self, watcher: Watcher) -> None:
        self.live.pop(id(watcher), None)
        self.behind.pop(id(watcher), None)
        if not self.live and not self.behind:
            self._bucket.forget(self)

    def notify(self, events: Sequence[StoreEvent], before: int) -> None:
        """Sends to watchers that have seen everything up to the revision `before`."""
        if not self.live:
            return
        form = self.form
        if len(events) <= form.batch and (
            form.slow_from is None or _weight(events) <= form.slow_from
        ):
            parts = self.render(events)
            if not parts:
                return
            payload = self.form.join(parts)
            if len(payload) <= _LIVE_MOST:
                for watcher in list(self.live.values()):
                    if watcher.fresh or not watcher.sink.send(payload):
                        watcher.fall_behind(Cursor(watcher, before))
                return
        for watcher in list(self.live.values()):
            watcher.fall_behind(Cursor(watcher, before))

    def render(self, events: Sequence[StoreEvent]) -> list[Any]:
        out = []
        prefix, keep, form = self.prefix, self.keep, self.form
        for event in events:
            if not event.key.startswith(prefix):
                continue
            seen = watch_change(event, keep)
            if seen is not None:
                kind, record = seen
                # All audiences with the same form share the cache of an event.
                cache_key = (form.key, kind)
                cache = _cache(event)
                cached = cache.get(cache_key)
                if cached is None:
                    cached = cache[cache_key] = form.event(kind, record)
                out.append(cached)
        return out


def _weight(events: Sequence[StoreEvent]) -> int:
    """The bytes of the objects of some events."""
    records = [event.record or event.previous for event in events]
    return sum([len(record.value) for record in records if record is not None])


def watch_change(event: StoreEvent, keep: Keep | None) -> tuple[str, StoreRecord] | None:
    """The type of an event for a watcher with this filter: objects that enter or leave the
    selection are added or deleted.
    """
    record, previous = event.record, event.previous
    if keep is None:
        if record is None:
            return None if previous is None else ("DELETED", _at(event, previous))
        return ("ADDED" if previous is None else "MODIFIED", record)
    was = previous is not None and keep(previous)
    now = record is not None and keep(record)
    if now:
        assert record is not None
        return ("MODIFIED" if was else "ADDED", record)
    if was:
        assert previous is not None
        return ("DELETED", _at(event, previous))
    return None


def _at(event: StoreEvent, previous: StoreRecord) -> StoreRecord:
    """The last state of an object that was deleted or left the selection, with the resourceVersion
    of that event.
    """
    cache = _cache(event)
    gone: StoreRecord | None = cache.get("gone")
    if gone is None:
        gone = StoreRecord(
            previous.key,
            _with_version(previous, event.revision),
            previous.create_revision,
            event.revision,
        )
        cache["gone"] = gone
    return gone


def _with_version(record: StoreRecord, revision: int) -> bytes:
    """The stored object with another resourceVersion."""
    # Quotes in strings are escaped, so these bytes are a field and its value. Once is almost always:
    # then it is the one in the metadata, and a large object is not decoded.
    field = b'"resourceVersion":"%d"' % record.mod_revision
    if record.value.count(field) == 1:
        return record.value.replace(field, b'"resourceVersion":"%d"' % revision)
    body = orjson.loads(record.value)
    body["metadata"]["resourceVersion"] = str(revision)
    return orjson.dumps(body)


def _cache(event: StoreEvent) -> dict[Any, Any]:
    if event.cache is None:
        event.cache = {}
    return event.cache


class _Bucket:
    def __init__(self, hub: WatchHub, res: Resource) -> None:
        self._hub = hub
        self._res = res
        self._audiences: dict[object, Audience] = {}
        # Audiences that can only see one namespace, one object or the pods of one node are indexed
        # by it.
        self._by_place: dict[str, dict[object, Audience]] = {}
        self._trigger = TRIGGERS.get(res.kind.key, "")
        store = hub.storage.store
        self._subscription = store.watch(f"{res.bucket}/", store.revision, self._on_events)

    def audience(
        self, key: object, prefix: str, options: ListOptions, keep: Keep | None, form: WatchEncoder
    ) -> Audience:
        found = self._audiences.get(key)
        if found is None:
            place = self._place(prefix, options)
            found = self._audiences[key] = Audience(self, key, prefix, keep, form, place)
            self._by_place.setdefault(place, {})[key] = found
        return found

    def _place(self, prefix: str, options: ListOptions) -> str:
        if options.fields is not None:
            name = options.fields.exact("metadata.name")
            if name and prefix.count("/") == (2 if self._res.kind.namespaced else 1):
                return prefix + name
            value = options.fields.exact(self._trigger) if self._trigger else None
            if value is not None:
                return _triggered(value)
        return prefix

    def forget(self, audience: Audience) -> None:
        self._audiences.pop(audience.key, None)
        group = self._by_place.get(audience.place, {})
        group.pop(audience.key, None)
        if not group:
            self._by_place.pop(audience.place, None)
        if not self._audiences:
            self._subscription.cancel()
            self._hub.forget(self._res.bucket)

    def end(self) -> None:
        audiences = list(self._audiences.values())
        for watcher in [
            w
            for audience in audiences
            for w in (*audience.live.values(), *audience.behind.values())
        ]:
            watcher.finish()

    def _on_events(self, events: Sequence[StoreEvent]) -> None:
        touched: dict[Audience, list[StoreEvent]] = {}
        for event in events:
            for place in self._places(event):
                for audience in self._by_place.get(place, {}).values():
                    touched.setdefault(audience, []).append(event)
        before = events[0].revision - 1
        for audience, relevant in touched.items():
            audience.notify(relevant, before)
        for event in events:  # history keeps the events and their bytes, not derived data
            event.cache = None
            if event.previous is not None:
                self._hub.storage.superseded(event.previous)

    def _places(self, event: StoreEvent) -> Iterable[str]:
        """The index keys of audiences that can see this event: bucket, namespace, object, value of
        the trigger field.
        """
        key = event.key
        first = key.index("/") + 1
        places = [key[:first], key]
        second = key.find("/", first)
        if second >= 0:
            places.append(key[: second + 1])
        if self._trigger:
            values = {
                self._hub.storage.fields(self._res, record)[self._trigger]
                for record in (event.record, event.previous)
                if record is not None
            }
            places += [_triggered(value) for value in values]
        return places


def _triggered(value: str) -> str:
    return f"={value}"


class WatchHub:
    """All watchers of the server."""

    def __init__(self, storage: Storage, rng: random.Random) -> None:
        self.storage = storage
        self.slices = SharedSlices(storage.clock)
        self.large_events = LargeEvents(storage.workers)
        self._rng = rng
        self._buckets: dict[str, _Bucket] = {}

    def forget(self, name: str) -> None:
        self._buckets.pop(name, None)

    def end(self, bucket: str) -> None:
        """Ends all watches of a bucket; clients start again and see the new state."""
        found = self._buckets.get(bucket)
        if found is not None:
            found.end()

    def end_all(self) -> None:
        """Ends all watches: the history that they need is gone, and clients have to list again."""
        for bucket in list(self._buckets.values()):
            bucket.end()

    def is_future(self, since: int | None) -> bool:
        """Whether a watch would start at a revision that does not exist yet."""
        return since is not None and since > self.storage.store.revision

    def watch(
        self,
        res: Resource,
        namespace: str,
        options: ListOptions,
        since: int | None,
        form: WatchEncoder,
        sink: Sink,
    ) -> Watcher:
        """Adds a watcher. `since` None: first all existing objects as ADDED. Raises store.Compacted
        if `since` is too old.
        """
        storage = self.storage
        conversion = (
            ConvertedWatch(res, form, sink, options.fields)
            if res.ops.converter is not None
            else None
        )
        if conversion is not None:
            form, sink = conversion, conversion
        prefix = res.key_prefix(namespace)
        keep = selector_filter(storage, res, options)
        shape = (str(options.labels), str(options.fields)) if options.filtered else None
        key = (prefix, shape, form.key)
        store = storage.store
        if since is not None and since < store.compacted:
            raise RevisionCompacted(store.compacted)
        bucket = self._buckets.get(res.bucket)
        if bucket is None:
            bucket = self._buckets[res.bucket] = _Bucket(self, res)
        audience = bucket.audience(key, prefix, options, keep, form)
        watcher = Watcher(self, audience, sink, options.bookmarks)
        watcher.conversion = conversion
        if since is None:
            snapshot = store.records(prefix)
            marker = bool(options.send_initial_events) and options.bookmarks
            watcher.fall_behind(
                Cursor(watcher, store.revision, snapshot if snapshot.chunks else None, marker)
            )
        elif since < store.revision:
            watcher.fall_behind(Cursor(watcher, since))
        else:
            audience.live[id(watcher)] = watcher
        self._set_timers(watcher, options)
        return watcher

    def _set_timers(self, watcher: Watcher, options: ListOptions) -> None:
        clock = self.storage.clock
        seconds = float(options.timeout) if options.timeout else 1800.0 * (1 + self._rng.random())
        watcher.timers.append(clock.call_later(seconds, watcher.finish))
        if watcher.bookmarks:
            before_end = max(seconds - _BOOKMARK_BEFORE_END, 0.0)
            watcher.timers.append(clock.call_later(before_end, watcher.bookmark))
            if before_end > BOOKMARK_EVERY:
                self._repeat_bookmark(watcher)

    def _repeat_bookmark(self, watcher: Watcher) -> None:
        def again() -> None:
            watcher.bookmark()
            self._repeat_bookmark(watcher)

        if not watcher.closed:
            if len(watcher.timers) > 2:
                watcher.timers.pop()
            watcher.timers.append(self.storage.clock.call_later(BOOKMARK_EVERY, again))
