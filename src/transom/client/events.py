"""Events that a component records about an object, without flooding the API.

A repeated event increments the count of the existing one with a patch; ten different messages of
one reason within ten minutes are combined into one; and a component can record a burst of 25 events
about an object and then one every five minutes. Kubernetes' own recorder behaves the same way.
Recording never blocks: a separate task writes.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from transom.client.api import STRATEGIC_PATCH, ApiClient, is_already_exists, is_not_found
from transom.client.keyed_tasks import KeyedTasks
from transom.client.ratelimit import TokenBucket
from transom.client.resources import EVENTS
from transom.kit.clock import Clock, rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour

log = logging.getLogger("transom.client")

NORMAL, WARNING = "Normal", "Warning"

_CACHED = 4096
TRIES = 12
TRY_SECONDS = 10.0
_SPAM_BURST, _SPAM_QPS = 25, 1 / 300
_SIMILAR, _SIMILAR_SECONDS = 10, 600.0

Value = TypeVar("Value")


class LruCache(Generic[Value]):
    """The most recently used entries. A plain dict is ordered too, takes half the memory of an
    OrderedDict, and a process may have thousands of these.
    """

    __slots__ = ("_entries", "_size")

    def __init__(self, size: int = _CACHED) -> None:
        self._size = size
        self._entries: dict[Hashable, Value] = {}

    def get(self, key: Hashable) -> Value | None:
        value = self._entries.pop(key, None)
        if value is not None:
            self._entries[key] = value
        return value

    def put(self, key: Hashable, value: Value) -> None:
        self._entries.pop(key, None)
        self._entries[key] = value
        if len(self._entries) > self._size:
            del self._entries[next(iter(self._entries))]


class _RecordedEvent(NamedTuple):
    """An event as it was last written."""

    times: int
    first: str
    name: str


class _Similar:
    """Messages of one reason, the oldest first, and the time of the last. Nearly always there is
    one.
    """

    __slots__ = ("_texts", "last")

    def __init__(self) -> None:
        self._texts: tuple[str, ...] = ()
        self.last = float("-inf")

    def add(self, text: str) -> int:
        """Returns how many different ones there are now."""
        if text not in self._texts:
            self._texts += (text,)
        return len(self._texts)

    def drop_first(self) -> None:
        self._texts = self._texts[1:]


REFERENCE = ("kind", "apiVersion", "fieldPath", "namespace", "name", "uid", "resourceVersion")


def object_reference(obj: Object, field_path: str = "") -> Object:
    """A reference to the object of an event. `field_path` points into the object:
    `spec.containers{app}`.
    """
    meta = obj["metadata"]
    out = {
        "kind": obj.get("kind", ""),
        "apiVersion": obj.get("apiVersion", ""),
        "fieldPath": field_path,
    }
    out |= {k: meta.get(k, "") for k in ("namespace", "name", "uid", "resourceVersion")}
    return {k: v for k, v in out.items() if v}


class EventStamp:
    """Names of events: `NAME.HEX`, where the hexadecimal digits are the time in nanoseconds, made
    unique.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

    def name(self, about: str) -> str:
        self._last = max(int(self._clock.time() * 1e9), self._last + 1)
        return f"{about}.{self._last:x}"


class EventCorrelator:
    """Turns an event into the one to write: a new one, an increment of an old one, or none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._similar: LruCache[_Similar] = LruCache()
        self._recorded: LruCache[_RecordedEvent] = LruCache()
        self._spam: LruCache[tuple[tuple[str, ...], TokenBucket]] = LruCache()

    def correlate(self, event: Object) -> tuple[Object, Object | None] | None:
        """The event, and the patch of an earlier one if there is one; None if it exceeds the rate
        limit.
        """
        about = _about(event)
        known = self._spam.get(about)
        if known is None:
            known = about, TokenBucket(self._clock, _SPAM_QPS, _SPAM_BURST)
            self._spam.put(about, known)
        about, bucket = known  # one tuple for everything that is kept about an object
        event, key = self._combine(event, about)
        event, patch = self._count(event, key)
        return (event, patch) if bucket.allow() else None

    def _combine(self, event: Object, about: tuple[str, ...]) -> tuple[Object, Hashable]:
        now = self._clock.time()
        key = (about, event["type"], event["reason"])
        message = event["message"]
        similar = self._similar.get(key)
        if similar is None or now - similar.last > _SIMILAR_SECONDS:
            similar = _Similar()
            self._similar.put(key, similar)
        similar.last = now
        if similar.add(message) < _SIMILAR:
            return event, _exactly(event, about)
        similar.drop_first()
        meta = event["metadata"]
        combined = {
            **{name: value for name, value in event.items() if not name.startswith("reporting")},
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "message": "(combined from similar events): " + message,
            "firstTimestamp": rfc3339(now),
            "lastTimestamp": rfc3339(now),
            "count": 1,
        }
        return combined, key

    def _count(self, event: Object, key: Hashable) -> tuple[Object, Object | None]:
        patch = None
        recorded = self._recorded.get(key)
        if recorded is not None:
            event = {
                **event,
                "metadata": {**event["metadata"], "name": recorded.name},
                "firstTimestamp": recorded.first,
                "count": recorded.times + 1,
            }
            patch = {
                "count": event["count"],
                "lastTimestamp": event["lastTimestamp"],
                "message": event["message"],
            }
        self._remember(event, key)
        return event, patch

    def written(self, event: Object) -> None:
        """Records the event as the server stored it."""
        self._remember(event, _exactly(event, _about(event)))

    def _remember(self, event: Object, key: Hashable) -> None:
        self._recorded.put(
            key,
            _RecordedEvent(
                event.get("count", 0), event.get("firstTimestamp") or "", event["metadata"]["name"]
            ),
        )


def _about(event: Object) -> tuple[str, ...]:
    """The source and the object of an event."""
    source, about = event["source"].get, event["involvedObject"].get
    return (
        source("component", ""),
        source("host", ""),
        about("kind", ""),
        about("namespace", ""),
        about("name", ""),
        about("uid", ""),
        about("apiVersion", ""),
    )


def _exactly(event: Object, about: tuple[str, ...]) -> Hashable:
    return (
        about,
        event["involvedObject"].get("fieldPath", ""),
        event["type"],
        event["reason"],
        event.get("message", ""),
    )


class EventRecorder:
    """`component` (and `host`, on a node) is the source that users see. Run `run` as a task.
    `on_event` is called with each event before it is written.
    """

    def __init__(
        self,
        client: ApiClient,
        component: str,
        clock: Clock,
        rng: random.Random,
        *,
        release: Release,
        host: str = "",
        on_event: Callable[[Object], None] | None = None,
    ) -> None:
        self._client = client
        reporter = {"reportingComponent": component, "reportingInstance": host}
        self._reporter = reporter if has_behaviour(release, "EventsNameReporter") else {}
        self._source = {"component": component, "host": host} if host else {"component": component}
        self._clock = clock
        self._rng = rng
        self._correlator = EventCorrelator(clock)
        self._lanes: KeyedTasks[Object] = KeyedTasks(self._record)
        self._stamp = EventStamp(clock)
        self._on_event = on_event

    def event(
        self,
        about: Object,
        kind: str,
        reason: str,
        message: str,
        *,
        annotations: dict[str, str] | None = None,
        field_path: str = "",
    ) -> None:
        """Records an event about an object (or a reference to one, as `object_reference` makes
        it).
        """
        ref = object_reference(about, field_path) if "metadata" in about else dict(about)
        now = self._clock.time()
        meta: Object = {
            "name": self._stamp.name(ref["name"]),
            "namespace": ref.get("namespace") or "default",
        }
        if annotations:
            meta["annotations"] = annotations
        event = {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": meta,
            "involvedObject": ref,
            "reason": reason,
            "message": message,
            "source": self._source,
            "firstTimestamp": rfc3339(now),
            "lastTimestamp": rfc3339(now),
            "count": 1,
            "type": kind,
            **self._reporter,
        }
        if self._on_event is not None:
            self._on_event(event)
        self._lanes.add(ref.get("uid") or ref["name"], event)

    async def run(self) -> None:
        await self._lanes.run()

    async def _record(self, event: Object) -> None:
        wanted = self._correlator.correlate(event)
        if wanted is None:
            return
        event, patch = wanted
        for attempt in range(TRIES):
            try:
                written = await self._write(event, patch)
                if patch is not None:  # a new one was cached when it was created
                    self._correlator.written(written)
                return
            except ApiError as problem:
                if not is_already_exists(problem):
                    log.info(
                        "the server refused the event %s: %s", event["metadata"]["name"], problem
                    )
                return
            except OSError as problem:
                log.info(
                    "the event %s could not be written: %s", event["metadata"]["name"], problem
                )
            # The first delay is random, so that components do not all retry at once after an
            # outage.
            await self._clock.sleep(TRY_SECONDS * (self._rng.random() if attempt == 0 else 1.0))
        log.warning("the event %s is given up", event["metadata"]["name"])

    async def _write(self, event: Object, patch: Object | None) -> Object:
        meta = event["metadata"]
        if patch is not None:
            try:
                return await self._client.patch(
                    EVENTS, meta["namespace"], meta["name"], patch, STRATEGIC_PATCH
                )
            except ApiError as problem:
                if not is_not_found(problem):
                    raise
        return await self._client.create(EVENTS, meta["namespace"], event)
