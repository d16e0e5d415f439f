"""Maps a request to its flow: the matching schema, the priority level, the queues.

The configuration is compiled as a whole whenever it changes. Between two changes the result for the
same user and kind of request is the same, so it is cached; the common case is a dictionary lookup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import RequestInfo
from transom.apiserver.flowcontrol import objects, rules
from transom.apiserver.flowcontrol.levels import PriorityLevel
from transom.http.messages import Headers
from transom.kit.clock import Clock
from transom.kit.prometheus import Family, Sample
from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT

# Kubernetes' limits of 400 reads and 200 writes in flight, divided among the levels.
CONCURRENCY = 600
_KEPT = 8192
_LONGEST_KEY = 1024  # characters of a path; longer ones are unusual and not cached
_OBJECTS_PER_SEAT = 100
_MOST_SEATS = 10
HEAVY = 500  # reads of at least this many objects take turns with others

_LEVEL_HEADER, _SCHEMA_HEADER = (
    b"X-Kubernetes-Pf-Prioritylevel-Uid",
    b"X-Kubernetes-Pf-Flowschema-Uid",
)


def list_seats(count: int) -> int:
    """A list takes seats according to its size; every other request takes one."""
    return min(_MOST_SEATS, -(-count // _OBJECTS_PER_SEAT)) or 1


class FlowSchema:
    """An active FlowSchema."""

    __slots__ = ("dispatched", "level", "name", "obj", "uid")

    def __init__(self, obj: Object, level: PriorityLevel) -> None:
        self.obj = obj
        self.name: str = obj["metadata"]["name"]
        self.uid: str = obj["metadata"].get("uid", "")
        self.level = level
        self.dispatched = 0


class RequestFlow:
    """A flow: requests of one schema with one distinguisher. `headers` are returned to the
    client.
    """

    __slots__ = ("hand", "headers", "level", "schema")

    def __init__(self, schema: FlowSchema, distinguisher: str) -> None:
        self.schema = schema
        self.level = schema.level
        self.hand = schema.level.deal(f"{schema.name}\0{distinguisher}")
        self.headers: Headers = [
            (_LEVEL_HEADER, schema.level.uid.encode()),
            (_SCHEMA_HEADER, schema.uid.encode()),
        ]


class RequestFlows:
    def __init__(self, clock: Clock, concurrency: int = CONCURRENCY) -> None:
        self._clock = clock
        self._concurrency = concurrency
        self.levels: dict[str, PriorityLevel] = {}
        self.schemas: list[FlowSchema] = []
        self._found: dict[tuple[object, ...], RequestFlow] = {}
        self.configure([], [])

    def find(self, user: UserInfo, info: RequestInfo) -> RequestFlow:
        if info.is_resource:
            key: tuple[object, ...] = (
                user.name,
                user.groups,
                info.verb,
                info.resource,
                info.subresource,
                info.group,
                info.namespace,
            )
        else:
            key = (user.name, user.groups, info.verb, info.path)
        flow = self._found.get(key)
        if flow is None:
            schema = next(
                (s for s in self.schemas if rules.matches_flow_schema(s.obj, user, info)),
                self._fallback,
            )
            flow = RequestFlow(schema, rules.flow_distinguisher(schema.obj, user, info))
            if len(info.path) < _LONGEST_KEY:
                if len(self._found) >= _KEPT:
                    self._found.clear()
                self._found[key] = flow
        return flow

    def configure(self, levels: Sequence[Object], schemas: Sequence[Object]) -> list[Object]:
        """Loads all stored objects (priority levels in v1 form). Returns the schemas whose level is
        missing.
        """
        specs = {obj["metadata"]["name"]: obj for obj in levels if _usable(obj)}
        mandatory = objects.mandatory_objects(DEFAULT)
        for obj in mandatory.levels:  # active even if they are not stored
            name = obj["metadata"]["name"]
            specs.setdefault(name, _as_v1(obj))
        total = sum(_shares(obj) for obj in specs.values()) or 1
        old, counts = self.levels, {s.name: s.dispatched for s in self.schemas}
        self.levels = {}
        for name, obj in specs.items():
            level = self.levels[name] = old.get(name) or PriorityLevel(name, self._clock)
            uid = obj["metadata"].get("uid", "")
            if obj["spec"]["type"] == "Exempt":
                level.configure(uid, 0)
                continue
            limit = math.ceil(self._concurrency * _shares(obj) / total) or 1
            queuing = obj["spec"]["limited"]["limitResponse"].get("queuing") or {}
            level.configure(
                uid,
                limit,
                queuing.get("queues", 0),
                queuing.get("handSize", 1),
                queuing.get("queueLengthLimit", 0),
            )
        known = [obj for obj in schemas if _level_name(obj) in self.levels]
        names = {obj["metadata"]["name"] for obj in known}
        first, last = mandatory.schemas
        ordered = rules.sorted_flow_schemas(known)
        if objects.EXEMPT not in names:
            ordered.insert(0, first)
        if objects.CATCH_ALL not in names:
            ordered.append(last)
        self.schemas = [FlowSchema(obj, self.levels[_level_name(obj)]) for obj in ordered]
        for schema in self.schemas:
            schema.dispatched = counts.get(schema.name, 0)
        self._fallback = next(s for s in self.schemas if s.name == objects.CATCH_ALL)
        self._found = {}
        return [obj for obj in schemas if _level_name(obj) not in self.levels]

    def collect_metrics(self) -> list[Family]:
        """Kubernetes' metrics of API Priority and Fairness."""
        dispatched = [
            Sample(
                (("flow_schema", schema.name), ("priority_level", schema.level.name)),
                schema.dispatched,
            )
            for schema in self.schemas
        ]
        rejected = [
            Sample(
                (("flow_schema", name), ("priority_level", level.name), ("reason", reason)), number
            )
            for level in self.levels.values()
            for (name, reason), number in level.rejected.items()
        ]
        limited = [level for level in self.levels.values() if level.limit]
        return [
            Family(
                _METRICS + "dispatched_requests_total",
                "counter",
                "[STABLE] Number of requests released by API Priority and Fairness",
                dispatched,
            ),
            Family(
                _METRICS + "rejected_requests_total",
                "counter",
                "[STABLE] Number of requests rejected by API Priority and Fairness",
                rejected,
            ),
            _by_level(
                "request_concurrency_limit",
                "Shared concurrency limit",
                [(level.name, level.limit) for level in limited],
            ),
            _by_level(
                "current_executing_requests",
                "Number of seats taken",
                [(level.name, level.executing) for level in limited],
            ),
            _by_level(
                "current_inqueue_requests",
                "Number of requests waiting in queues",
                [(level.name, level.waiting) for level in limited],
            ),
        ]


_METRICS = "apiserver_flowcontrol_"


def _by_level(name: str, text: str, values: list[tuple[str, int]]) -> Family:
    samples = [Sample((("priority_level", level),), value) for level, value in values]
    return Family(_METRICS + name, "gauge", f"[STABLE] {text}", samples)


def _level_name(schema: Object) -> str:
    return str((schema["spec"].get("priorityLevelConfiguration") or {}).get("name", ""))


def _shares(level: Object) -> int:
    return int((level["spec"].get("limited") or {}).get("nominalConcurrencyShares", 0))


def _usable(level: Object) -> bool:
    """Whether the object is consistent; an inconsistent one counts as missing."""
    spec = level["spec"]
    exempt = spec.get("type") == "Exempt"
    if exempt != (level["metadata"]["name"] == objects.EXEMPT) or exempt != (
        spec.get("limited") is None
    ):
        return False
    response = (spec.get("limited") or {}).get("limitResponse") or {}
    return exempt or (response.get("type") == "Reject") == (response.get("queuing") is None)


def _as_v1(level: Object) -> Object:
    limited = level["spec"].get("limited")
    if limited is None:
        return level
    renamed = {
        "nominalConcurrencyShares" if k == "assuredConcurrencyShares" else k: v
        for k, v in limited.items()
    }
    return {**level, "spec": {**level["spec"], "limited": renamed}}
