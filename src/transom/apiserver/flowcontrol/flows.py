"""From a request to its flow: the schema that matches, the priority level, the queues it may use.

The configuration is digested as a whole, whenever any of it changes. Between two changes the answer for the same user
and the same kind of request is the same, so it is kept; that makes the common case a dictionary lookup.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from transom.apiserver.context import User
from transom.apiserver.flowcontrol import objects, rules
from transom.apiserver.flowcontrol.levels import Level
from transom.apiserver.requestinfo import RequestInfo
from transom.http.messages import Headers
from transom.kit.clock import Clock
from transom.machinery.objects import Object

# Kubernetes' limits of 400 reads and 200 writes in flight, shared out among the levels.
CONCURRENCY = 600
_KEPT = 8192
_OBJECTS_PER_SEAT = 100
_MOST_SEATS = 10
HEAVY = 500  # objects from which on a read takes turns with others

_LEVEL_HEADER, _SCHEMA_HEADER = b"X-Kubernetes-Pf-Prioritylevel-Uid", b"X-Kubernetes-Pf-Flowschema-Uid"


def list_seats(count: int) -> int:
    """A list weighs as much as what it lists; everything else weighs one."""
    return min(_MOST_SEATS, -(-count // _OBJECTS_PER_SEAT)) or 1


class Schema:
    """A FlowSchema in use."""

    __slots__ = ("dispatched", "level", "name", "obj", "uid")

    def __init__(self, obj: Object, level: Level) -> None:
        self.obj = obj
        self.name: str = obj["metadata"]["name"]
        self.uid: str = obj["metadata"].get("uid", "")
        self.level = level
        self.dispatched = 0


class Flow:
    """What belongs together: requests of one schema with one distinguisher. `headers` tell the client."""

    __slots__ = ("hand", "headers", "level", "schema")

    def __init__(self, schema: Schema, distinguisher: str) -> None:
        self.schema = schema
        self.level = schema.level
        self.hand = schema.level.deal(f"{schema.name}\0{distinguisher}")
        self.headers: Headers = [
            (_LEVEL_HEADER, schema.level.uid.encode()), (_SCHEMA_HEADER, schema.uid.encode()),
        ]  # fmt: skip


class Flows:
    def __init__(self, clock: Clock, concurrency: int = CONCURRENCY) -> None:
        self._clock = clock
        self._concurrency = concurrency
        self.levels: dict[str, Level] = {}
        self.schemas: list[Schema] = []
        self._found: dict[tuple[object, ...], Flow] = {}
        self.configure([], [])

    def find(self, user: User, info: RequestInfo) -> Flow:
        if info.is_resource:
            key: tuple[object, ...] = (
                user.name, user.groups, info.verb, info.resource, info.subresource, info.group, info.namespace,
            )  # fmt: skip
        else:
            key = (user.name, user.groups, info.verb, info.path)
        flow = self._found.get(key)
        if flow is None:
            schema = next((s for s in self.schemas if rules.matches(s.obj, user, info)), self._fallback)
            flow = Flow(schema, rules.distinguisher(schema.obj, user, info))
            if len(self._found) >= _KEPT:
                self._found.clear()
            self._found[key] = flow
        return flow

    def configure(self, levels: Sequence[Object], schemas: Sequence[Object]) -> list[Object]:
        """Take in all stored objects (priority levels in v1's shape). Returns the schemas whose level is missing."""
        specs = {obj["metadata"]["name"]: obj for obj in levels if _usable(obj)}
        for obj in objects.mandatory_levels():  # in force even while nobody has stored them
            name = obj["metadata"]["name"]
            specs.setdefault(name, _as_v1(obj))
        total = sum(_shares(obj) for obj in specs.values()) or 1
        old, counts = self.levels, {s.name: s.dispatched for s in self.schemas}
        self.levels = {}
        for name, obj in specs.items():
            level = self.levels[name] = old.get(name) or Level(name, self._clock)
            uid = obj["metadata"].get("uid", "")
            if obj["spec"]["type"] == "Exempt":
                level.configure(uid, 0)
                continue
            limit = math.ceil(self._concurrency * _shares(obj) / total) or 1
            queuing = obj["spec"]["limited"]["limitResponse"].get("queuing") or {}
            level.configure(
                uid, limit, queuing.get("queues", 0), queuing.get("handSize", 1), queuing.get("queueLengthLimit", 0)
            )
        known = [obj for obj in schemas if _level_name(obj) in self.levels]
        names = {obj["metadata"]["name"] for obj in known}
        first, last = (obj for obj in objects.mandatory_schemas())
        ordered = rules.in_order(known)
        if objects.EXEMPT not in names:
            ordered.insert(0, first)
        if objects.CATCH_ALL not in names:
            ordered.append(last)
        self.schemas = [Schema(obj, self.levels[_level_name(obj)]) for obj in ordered]
        for schema in self.schemas:
            schema.dispatched = counts.get(schema.name, 0)
        self._fallback = next(s for s in self.schemas if s.name == objects.CATCH_ALL)
        self._found = {}
        return [obj for obj in schemas if _level_name(obj) not in self.levels]

    def render(self, head: Callable[[list[str], str, str, str], None], out: list[str]) -> None:
        """Kubernetes' metrics of priority and fairness."""
        prefix = "apiserver_flowcontrol_"
        head(out, prefix + "dispatched_requests_total", "counter", "Number of requests released by API Priority and Fairness")
        for schema in self.schemas:
            out.append(f'{prefix}dispatched_requests_total{{flow_schema="{schema.name}",priority_level="{schema.level.name}"}} '
                       f"{schema.dispatched}")
        head(out, prefix + "rejected_requests_total", "counter", "Number of requests rejected by API Priority and Fairness")
        for level in self.levels.values():
            for (name, reason), number in level.rejected.items():
                out.append(f'{prefix}rejected_requests_total{{flow_schema="{name}",priority_level="{level.name}",'
                           f'reason="{reason}"}} {number}')
        for metric, text, field in (
            ("request_concurrency_limit", "Shared concurrency limit", "limit"),
            ("current_executing_requests", "Number of seats taken", "executing"),
            ("current_inqueue_requests", "Number of requests waiting in queues", "waiting"),
        ):
            head(out, prefix + metric, "gauge", text)
            out.extend(f'{prefix}{metric}{{priority_level="{level.name}"}} {getattr(level, field)}'
                       for level in self.levels.values() if level.limit)


def _level_name(schema: Object) -> str:
    return str((schema["spec"].get("priorityLevelConfiguration") or {}).get("name", ""))


def _shares(level: Object) -> int:
    return int((level["spec"].get("limited") or {}).get("nominalConcurrencyShares", 0))


def _usable(level: Object) -> bool:
    """Whether the parts agree; one that is broken counts as missing."""
    spec = level["spec"]
    exempt = spec.get("type") == "Exempt"
    if exempt != (level["metadata"]["name"] == objects.EXEMPT) or exempt != (spec.get("limited") is None):
        return False
    response = (spec.get("limited") or {}).get("limitResponse") or {}
    return exempt or (response.get("type") == "Reject") == (response.get("queuing") is None)


def _as_v1(level: Object) -> Object:
    limited = level["spec"].get("limited")
    if limited is None:
        return level
    renamed = {"nominalConcurrencyShares" if k == "assuredConcurrencyShares" else k: v for k, v in limited.items()}
    return {**level, "spec": {**level["spec"], "limited": renamed}}
