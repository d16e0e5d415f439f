"""Events: what a component tells people about an object, without flooding the API.

An event that was told before is counted up by a patch instead of stored again; ten different texts of one reason within
ten minutes are combined into one; and one object can have 25 events at once and then one in five minutes from the same
component. All that is how Kubernetes' own recorder behaves. Recording never waits: a task of its own does the writing.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from transom.client.api import STRATEGIC_PATCH, Client, is_already_exists, is_not_found
from transom.client.lanes import Lanes
from transom.client.ratelimit import TokenBucket
from transom.client.resources import EVENTS
from transom.kit.clock import Clock, rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

log = logging.getLogger("transom.client")

NORMAL, WARNING = "Normal", "Warning"

_CACHED = 4096
TRIES = 12
TRY_SECONDS = 10.0
_SPAM_BURST, _SPAM_QPS = 25, 1 / 300
_SIMILAR, _SIMILAR_SECONDS = 10, 600.0

Value = TypeVar("Value")


class Lru(Generic[Value]):
    """The entries used last. A plain dict keeps its order too, in half the memory of an OrderedDict, and a process may have
    thousands of these."""

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


class _Told(NamedTuple):
    """An event as it was last written."""

    times: int
    first: str
    name: str


class _Similar:
    """Texts of one reason, the oldest first, and when the last came. Nearly always there is one."""

    __slots__ = ("_texts", "last")

    def __init__(self) -> None:
        self._texts: tuple[str, ...] = ()
        self.last = float("-inf")

    def add(self, text: str) -> int:
        """How many different ones there are now."""
        if text not in self._texts:
            self._texts += (text,)
        return len(self._texts)

    def drop_first(self) -> None:
        self._texts = self._texts[1:]


REFERENCE = ("kind", "apiVersion", "fieldPath", "namespace", "name", "uid", "resourceVersion")


def reference(obj: Object, field_path: str = "") -> Object:
    """What an event is about. `field_path` points into the object: `spec.containers{app}`."""
    meta = obj["metadata"]
    out = {"kind": obj.get("kind", ""), "apiVersion": obj.get("apiVersion", ""), "fieldPath": field_path}
    out |= {k: meta.get(k, "") for k in ("namespace", "name", "uid", "resourceVersion")}
    return {k: v for k, v in out.items() if v}


class Stamp:
    """Names of events: `NAME.HEX`, where the hexadecimal digits are the time in nanoseconds, never the same twice."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

    def name(self, about: str) -> str:
        self._last = max(int(self._clock.time() * 1e9), self._last + 1)
        return f"{about}.{self._last:x}"


class Correlator:
    """Turns an event into the one to be written: a new one, a count of an old one, or none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._similar: Lru[_Similar] = Lru()
        self._told: Lru[_Told] = Lru()
        self._spam: Lru[tuple[tuple[str, ...], TokenBucket]] = Lru()

    def correlate(self, event: Object) -> tuple[Object, Object | None] | None:
        """The event, and the patch of an earlier one when there is one; None when it is too much."""
        about = _about(event)
        known = self._spam.get(about)
        if known is None:
            known = about, TokenBucket(self._clock, _SPAM_QPS, _SPAM_BURST)
            self._spam.put(about, known)
        about, bucket = known  # one tuple for all that is kept about an object
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
            **event,
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "message": "(combined from similar events): " + message,
            "firstTimestamp": rfc3339(now), "lastTimestamp": rfc3339(now), "count": 1,
        }
        return combined, key

    def _count(self, event: Object, key: Hashable) -> tuple[Object, Object | None]:
        patch = None
        told = self._told.get(key)
        if told is not None:
            event = {**event, "metadata": {**event["metadata"], "name": told.name}, "firstTimestamp": told.first,
                     "count": told.times + 1}
            patch = {"count": event["count"], "lastTimestamp": event["lastTimestamp"], "message": event["message"]}
        self._remember(event, key)
        return event, patch

    def written(self, event: Object) -> None:
        """The event as the server has it."""
        self._remember(event, _exactly(event, _about(event)))

    def _remember(self, event: Object, key: Hashable) -> None:
        self._told.put(key, _Told(event.get("count", 0), event.get("firstTimestamp") or "", event["metadata"]["name"]))


def _about(event: Object) -> tuple[str, ...]:
    """Who speaks about which object."""
    source, about = event["source"].get, event["involvedObject"].get
    return (source("component", ""), source("host", ""), about("kind", ""), about("namespace", ""), about("name", ""),
            about("uid", ""), about("apiVersion", ""))


def _exactly(event: Object, about: tuple[str, ...]) -> Hashable:
    return (about, event["involvedObject"].get("fieldPath", ""), event["type"], event["reason"], event.get("message", ""))


class EventRecorder:
    """`component` (and `host`, for what runs on a node) is the source that people see. Run `run` as a task."""

    def __init__(
        self, client: Client, component: str, clock: Clock, rng: random.Random, *, host: str = ""
    ) -> None:
        self._client = client
        self._source = {"component": component, "host": host} if host else {"component": component}
        self._clock = clock
        self._rng = rng
        self._correlator = Correlator(clock)
        self._lanes: Lanes[Object] = Lanes(self._record)
        self._stamp = Stamp(clock)
        self.told: Callable[[Object], None] | None = None  # hears of each event before it is written

    def event(
        self, about: Object, kind: str, reason: str, message: str, *, annotations: dict[str, str] | None = None,
        field_path: str = "",
    ) -> None:
        """Tell something about an object (or a reference to one, as `reference` makes it)."""
        ref = reference(about, field_path) if "metadata" in about else dict(about)
        now = self._clock.time()
        meta: Object = {"name": self._stamp.name(ref["name"]), "namespace": ref.get("namespace") or "default"}
        if annotations:
            meta["annotations"] = annotations
        event = {
            "kind": "Event", "apiVersion": "v1", "metadata": meta, "involvedObject": ref, "reason": reason,
            "message": message, "source": self._source, "firstTimestamp": rfc3339(now), "lastTimestamp": rfc3339(now),
            "count": 1, "type": kind,
        }
        if self.told is not None:
            self.told(event)
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
                if patch is not None:  # a new one is as it was remembered when it was made
                    self._correlator.written(written)
                return
            except ApiError as problem:
                if not is_already_exists(problem):
                    log.info("the server refused the event %s: %s", event["metadata"]["name"], problem)
                return
            except OSError as problem:
                log.info("the event %s could not be written: %s", event["metadata"]["name"], problem)
            # The first wait is random, so that not all components come back at once after an outage.
            await self._clock.sleep(TRY_SECONDS * (self._rng.random() if attempt == 0 else 1.0))
        log.warning("the event %s is given up", event["metadata"]["name"])

    async def _write(self, event: Object, patch: Object | None) -> Object:
        meta = event["metadata"]
        if patch is not None:
            try:
                return await self._client.patch(EVENTS, meta["namespace"], meta["name"], patch, STRATEGIC_PATCH)
            except ApiError as problem:
                if not is_not_found(problem):
                    raise
        return await self._client.create(EVENTS, meta["namespace"], event)
