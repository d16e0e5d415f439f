"""WATCH: store events turned into ADDED, MODIFIED and DELETED for whoever asked.

Watchers that would get the same bytes form one audience: an event is filtered and framed once for all of them. A slow
watcher is dropped by its connection, never awaited.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import orjson

from transom.apiserver.crd.watching import ConvertedWatch
from transom.apiserver.lists import matcher
from transom.apiserver.options import ListOptions
from transom.apiserver.resources import Resource
from transom.apiserver.storage import Storage
from transom.machinery.objects import Object
from transom.store.api import Event, Record

BOOKMARK_EVERY = 60.0
_BOOKMARK_BEFORE_END = 2.0
# The field by which many watch their share of a kind: a thousand kubelets must not each look at every pod.
TRIGGERS = {"/Pod": "spec.nodeName"}


class Sink(Protocol):
    """Where events go: a chunked HTTP response, or an in-process client."""

    def first(self, parts: list[Any]) -> None: ...  # may be far more than a later batch
    def send(self, payload: Any) -> None: ...
    def end(self) -> None: ...


class Form(Protocol):
    """How events look to a watcher: JSON of a version, a Table, a dict."""

    key: object  # watchers with equal keys can share bytes

    def event(self, kind: str, record: Record) -> Any: ...
    def bookmark(self, revision: int, initial: bool) -> Any: ...
    def error(self, status: Object) -> Any: ...
    def join(self, parts: list[Any]) -> Any: ...


Keep = Callable[[Record], bool]


class Watcher:
    __slots__ = ("_audience", "_hub", "bookmarks", "closed", "conversion", "form", "sink", "timers")

    def __init__(self, hub: Hub, audience: Audience, form: Form, sink: Sink, bookmarks: bool) -> None:
        self._hub = hub
        self._audience = audience
        self.form = form
        self.sink = sink
        self.bookmarks = bookmarks
        self.timers: list[Any] = []
        self.conversion: ConvertedWatch | None = None
        self.closed = False

    def close(self) -> None:
        """Stop watching; safe to call twice."""
        if self.closed:
            return
        self.closed = True
        for timer in self.timers:
            timer.cancel()
        if self.conversion is not None:
            self.conversion.cancel()
        self._audience.leave(self)

    def finish(self) -> None:
        """The time asked for is over: end the stream cleanly."""
        if not self.closed:
            self.close()
            self.sink.end()

    def bookmark(self) -> None:
        if not self.closed:
            self.sink.send(self.form.bookmark(self._hub.storage.store.revision, False))


class Audience:
    """Watchers of one bucket with the same filter and the same form."""

    __slots__ = ("_bucket", "form", "keep", "key", "members", "place", "prefix")

    def __init__(
        self, bucket: _Bucket, key: object, prefix: str, keep: Keep | None, form: Form, place: str = ""
    ) -> None:
        self._bucket = bucket
        self.key = key
        self.prefix = prefix
        self.keep = keep
        self.form = form
        self.place = place  # where the bucket finds it
        self.members: dict[int, Watcher] = {}

    def leave(self, watcher: Watcher) -> None:
        self.members.pop(id(watcher), None)
        if not self.members:
            self._bucket.forget(self)

    def render(self, events: Sequence[Event]) -> list[Any]:
        out = []
        prefix, keep, form = self.prefix, self.keep, self.form
        for event in events:
            if not event.key.startswith(prefix):
                continue
            seen = change(event, keep)
            if seen is not None:
                kind, record = seen
                # The cache of an event is shared by all audiences with the same form.
                cache_key = (form.key, kind)
                cache = _cache(event)
                cached = cache.get(cache_key)
                if cached is None:
                    cached = cache[cache_key] = form.event(kind, record)
                out.append(cached)
        return out


def change(event: Event, keep: Keep | None) -> tuple[str, Record] | None:
    """What an event means to a watcher with this filter: things entering or leaving the selection are added or deleted."""
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


def _at(event: Event, previous: Record) -> Record:
    """The last state of an object that went (from the cluster or the selection), at the version of its going."""
    cache = _cache(event)
    gone: Record | None = cache.get("gone")
    if gone is None:
        body = orjson.loads(previous.value)
        body["metadata"]["resourceVersion"] = str(event.revision)
        gone = Record(previous.key, orjson.dumps(body), previous.create_revision, event.revision)
        cache["gone"] = gone
    return gone


def _cache(event: Event) -> dict[Any, Any]:
    if event.cache is None:
        event.cache = {}
    return event.cache


class _Bucket:
    def __init__(self, hub: Hub, res: Resource) -> None:
        self._hub = hub
        self._res = res
        self._audiences: dict[object, Audience] = {}
        # Audiences that can only ever see one namespace, one object or the pods of one node are found by it.
        self._by_place: dict[str, dict[object, Audience]] = {}
        self._trigger = TRIGGERS.get(res.kind.key, "")
        store = hub.storage.store
        self._subscription = store.watch(f"{res.bucket}/", store.revision, self._on_events)

    def audience(self, key: object, prefix: str, options: ListOptions, keep: Keep | None, form: Form) -> Audience:
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
        for watcher in [w for audience in self._audiences.values() for w in audience.members.values()]:
            watcher.finish()

    def _on_events(self, events: Sequence[Event]) -> None:
        touched: dict[Audience, list[Event]] = {}
        for event in events:
            for place in self._places(event):
                for audience in self._by_place.get(place, {}).values():
                    touched.setdefault(audience, []).append(event)
        for audience, relevant in touched.items():
            parts = audience.render(relevant)
            if not parts:
                continue
            payload = audience.form.join(parts)
            for watcher in list(audience.members.values()):
                watcher.sink.send(payload)
        for event in events:  # history keeps the events and their bytes, not what was made of them
            event.cache = None
            if event.previous is not None:
                self._hub.storage.superseded(event.previous)

    def _places(self, event: Event) -> Iterable[str]:
        """Where those may stand who can see this event: bucket, namespace, object, value of the trigger field."""
        key = event.key
        first = key.index("/") + 1
        places = [key[:first], key]
        second = key.find("/", first)
        if second >= 0:
            places.append(key[: second + 1])
        if self._trigger:
            values = {
                self._hub.storage.fields(self._res, record)[self._trigger]
                for record in (event.record, event.previous) if record is not None
            }
            places += [_triggered(value) for value in values]
        return places


def _triggered(value: str) -> str:
    return f"={value}"


class Hub:
    """All watchers of the server."""

    def __init__(self, storage: Storage, rng: random.Random) -> None:
        self.storage = storage
        self._rng = rng
        self._buckets: dict[str, _Bucket] = {}
        self._watchers: set[Watcher] = set()

    def forget(self, name: str) -> None:
        self._buckets.pop(name, None)

    def end(self, bucket: str) -> None:
        """End all watches of a bucket; clients begin again and see what became of it."""
        found = self._buckets.get(bucket)
        if found is not None:
            found.end()

    def history(self, prefix: str, since: int) -> list[Event]:
        """Events after a revision. Raises Compacted."""
        collected: list[Event] = []
        self.storage.store.watch(prefix, since, collected.extend).cancel()
        return collected

    def watch(
        self, res: Resource, namespace: str, options: ListOptions, since: int | None, form: Form, sink: Sink
    ) -> Watcher:
        """Join. `since` None means: first everything there is as ADDED. Raises store.Compacted when `since` is too old."""
        storage = self.storage
        conversion = ConvertedWatch(res, form, sink) if res.ops.converter is not None else None
        if conversion is not None:
            form, sink = conversion, conversion
        prefix = res.key_prefix(namespace)
        keep = matcher(storage, res, options)
        shape = (str(options.labels), str(options.fields)) if options.filtered else None
        key = (prefix, shape, form.key)
        if since is None:
            first: list[Any] = [
                form.event("ADDED", record) for record in storage.store.list(prefix).records
                if keep is None or keep(record)
            ]
        else:
            missed = self.history(prefix, since)
            first = Audience(None, key, prefix, keep, form).render(missed)  # type: ignore[arg-type]
            for event in missed:
                event.cache = None
        bucket = self._buckets.get(res.bucket)
        if bucket is None:
            bucket = self._buckets[res.bucket] = _Bucket(self, res)
        audience = bucket.audience(key, prefix, options, keep, form)
        watcher = Watcher(self, audience, form, sink, options.bookmarks)
        watcher.conversion = conversion
        audience.members[id(watcher)] = watcher
        if first:
            sink.first(first)
        if since is None and options.send_initial_events:
            sink.send(form.bookmark(storage.store.revision, True))
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


