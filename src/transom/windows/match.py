"""Which records apply to a node, and which fields of an object they match. Pure functions on data.

A `LimitMatcher` is built once for a set of limits and visits each object once: the paths of all
limits form one tree, and only fields that are both in the tree and in the object are visited.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from transom.kit.lazy import lazy_pattern
from transom.kit.named_tuple import NamedTuple
from transom.windows.records import (
    NodeTarget,
    Record,
    RecordField,
    Release,
    WindowsLimit,
    WindowsSupport,
)

Steps = tuple[str | int, ...]  # keys and indexes from the root of an object

_ELEMENTS: Final = "[*]"
_PART: Final = lazy_pattern(r"(\[(?:\*|\d+)\])|\['([^']*)'\]|\.?([^.\[]+)")
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")

# The location of the pod or pod template in other kinds.
POD_AT: Final[Mapping[str, Steps]] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "ReplicationController": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


_HYPERV_RELEASES: Final[Mapping[str, tuple[Release | None, Release | None]]] = {
    "HyperVContainer": (None, (1, 16)),
    "hyperv": ((1, 21), None),
}


class LimitMatch(NamedTuple):
    """A limit that a value of an object matches."""

    limit: WindowsLimit
    field: RecordField
    steps: Steps  # from the root of the whole object, not of the template
    value: Any

    @property
    def path(self) -> str:
        return steps_text(self.steps)


def record_holds(record: Record, target: NodeTarget) -> bool:
    """Whether a record applies to such a node. Unknown facts about the node exclude nothing."""
    if target.release < record.since or (
        record.until is not None and target.release > record.until
    ):
        return False
    if target.runtime is not None and target.runtime not in record.runtimes:
        return False
    if target.network is not None and target.network not in record.networks:
        return False
    if not target.features.issuperset(record.needs):
        return False
    if isinstance(record, WindowsSupport):
        return _has(record.builds, target) and _updated(record, target) is not False
    if any(
        name in target.features and _available(name, target.release) for name in record.lifted_by
    ):
        return False
    updated = _updated(record, target)
    return _has(record.builds, target) and not updated


def _available(feature: str, release: Release) -> bool:
    """Hyper-V isolation exists by annotation up to 1.16 and by runtime handler from 1.21 on: the
    document for 1.17 to 1.20 calls it planned.
    """
    first, last = _HYPERV_RELEASES.get(feature, (None, None))
    return (first is None or release >= first) and (last is None or release <= last)


def _has(builds: tuple[int, int | None], target: NodeTarget) -> bool:
    if target.build is None:
        return True
    first, last = builds
    return first <= target.build and (last is None or target.build <= last)


def _updated(record: Record, target: NodeTarget) -> bool | None:
    """Whether the node has the update that changed the behaviour; None if there is none for its
    build.
    """
    for build, revision in record.patches:
        if target.build is None or target.build == build:
            return target.revision is None or target.revision >= revision
    return None


def select_records(records: Iterable[Record], target: NodeTarget) -> list[Record]:
    return [record for record in records if record_holds(record, target)]


def pod_in(kind: str, obj: Mapping[str, Any]) -> tuple[Steps, Mapping[str, Any]] | None:
    """The pod or pod template of an object, and its path; None if there is none."""
    at = POD_AT.get(kind)
    if at is None:
        return None
    found: Any = obj
    for step in at:
        found = found.get(step) if isinstance(found, Mapping) else None
    return (at, found) if isinstance(found, Mapping) else None


@lru_cache(maxsize=1024)
def parts_of_pod(path: str) -> tuple[str, ...]:
    """`spec.volumes[*].nfs` -> ("spec", "volumes", "[*]", "nfs"). Keys keep a trailing `*`."""
    found, at = [], 0
    while at < len(path):
        match = _PART.match(path, at)
        if match is None:
            raise ValueError(f"not a path: {path}")
        found.append(match[1] or match[2] or match[3])
        at = match.end()
    return tuple(found)


def steps_text(steps: Steps) -> str:
    """("spec", "containers", 0, "image") -> `spec.containers[0].image`, like Kubernetes' field
    paths.
    """
    text = ""
    for step in steps:
        if isinstance(step, int) or "." in step or "/" in step:
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


class _Node:
    __slots__ = ("absent", "children", "ends", "prefixes")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.prefixes: list[tuple[str, _Node]] = []  # for keys with this prefix
        self.ends: list[tuple[WindowsLimit, RecordField]] = []
        self.absent: list[tuple[str, WindowsLimit, RecordField]] = []  # keys whose absence matches

    def child(self, part: str) -> _Node:
        if part.endswith("*") and part != _ELEMENTS:
            prefix = part[:-1]
            for known, node in self.prefixes:
                if known == prefix:
                    return node
            self.prefixes.append((prefix, _Node()))
            return self.prefixes[-1][1]
        return self.children.setdefault(part, _Node())


class LimitMatcher:
    """Finds the limits that objects match."""

    __slots__ = ("_roots",)

    def __init__(self, limits: Iterable[WindowsLimit]) -> None:
        self._roots: dict[str, _Node] = {}
        for limit in limits:
            for field in limit.fields:
                for parts in _spread(field):
                    self._add(limit, field, parts)

    def _add(self, limit: WindowsLimit, field: RecordField, parts: tuple[str, ...]) -> None:
        node = self._roots.setdefault(field.kind, _Node())
        if field.test == "absent":
            if parts[-1].startswith("[") or parts[-1].endswith("*"):
                raise ValueError(f"only a key can be absent: {field.path}")
            for part in parts[:-1]:
                node = node.child(part)
            node.absent.append((parts[-1], limit, field))
            return
        for part in parts:
            node = node.child(part)
        node.ends.append((limit, field))

    def find(self, kind: str, obj: Mapping[str, Any]) -> list[LimitMatch]:
        """Matches an object and its pod template, if it has one; in the order of the object's
        fields.
        """
        hits: list[LimitMatch] = []
        root = self._roots.get(kind) if kind != "Pod" else None
        if root is not None:
            _walk(root, obj, (), hits, kind, obj)
        pods = self._roots.get("Pod")
        held = pod_in(kind, obj) if pods is not None else None
        if held is not None:
            _walk(pods, held[1], held[0], hits, "Pod", held[1])  # type: ignore[arg-type]
        return hits


def _spread(field: RecordField) -> Iterator[tuple[str, ...]]:
    parts = parts_of_pod(field.path)
    if field.kind == "Pod" and parts[:2] == ("spec", "containers"):
        for name in _CONTAINERS:
            yield ("spec", name, *parts[2:])
    else:
        yield parts


def _walk(
    node: _Node,
    value: Any,
    steps: Steps,
    hits: list[LimitMatch],
    kind: str,
    whole: Mapping[str, Any],
) -> None:
    for limit, field in node.ends:
        repeated = bool(hits) and hits[-1].limit is limit and hits[-1].steps == steps
        if not repeated and _meets(field, value) and _applies(limit, kind, whole):
            hits.append(LimitMatch(limit, field, steps, value))
    if isinstance(value, Mapping):
        for key, limit, field in node.absent:
            if value.get(key) is None and _applies(limit, kind, whole):
                hits.append(LimitMatch(limit, field, (*steps, key), None))
        if not node.children and not node.prefixes:
            return
        for key, inner in value.items():
            child = node.children.get(key)
            if child is not None:
                _walk(child, inner, (*steps, key), hits, kind, whole)
            for prefix, child in node.prefixes:
                if isinstance(key, str) and key.startswith(prefix):
                    _walk(child, inner, (*steps, key), hits, kind, whole)
    elif isinstance(value, list):
        every = node.children.get(_ELEMENTS)
        for i, inner in enumerate(value):
            if every is not None:
                _walk(every, inner, (*steps, i), hits, kind, whole)
            one = node.children.get(f"[{i}]")
            if one is not None:
                _walk(one, inner, (*steps, i), hits, kind, whole)


def _applies(limit: WindowsLimit, kind: str, whole: Mapping[str, Any]) -> bool:
    return all(condition_met(field, kind, whole) for field in limit.given) and not any(
        condition_met(field, kind, whole) for field in limit.unless
    )


def condition_met(field: RecordField, kind: str, obj: Mapping[str, Any]) -> bool:
    """Whether a condition is met anywhere in an object of a kind (for "Pod": a pod or template
    itself).
    """
    if field.kind != kind:
        return False
    return any(_met(field, parts, obj) for parts in _spread(field))


def _met(field: RecordField, parts: tuple[str, ...], value: Any) -> bool:
    if not parts:
        return _meets(field, value)
    part, rest = parts[0], parts[1:]
    if part.startswith("["):
        if not isinstance(value, list):
            return False
        inside = value if part == _ELEMENTS else value[int(part[1:-1]) :][:1]
        return any(_met(field, rest, inner) for inner in inside)
    if not isinstance(value, Mapping):
        return False
    if field.test == "absent" and not rest:
        return value.get(part) is None
    if part.endswith("*"):
        return any(
            _met(field, rest, inner) for key, inner in value.items() if key.startswith(part[:-1])
        )
    return part in value and _met(field, rest, value[part])


def _meets(field: RecordField, value: Any) -> bool:
    if value is None:
        return False
    wanted: Any = field.value
    match field.test:
        case "set":
            return value not in ("", [], {})
        case "is":
            return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)
        case "not":
            return bool(value != wanted)
        case "one-of":
            return value in wanted
        case "none-of":
            return value not in wanted
        case "matches":
            return isinstance(value, str) and re.search(wanted, value) is not None
        case "above":
            return isinstance(value, int | float) and not isinstance(value, bool) and value > wanted
        case "below":
            return isinstance(value, int | float) and not isinstance(value, bool) and value < wanted
        case "longer":
            return isinstance(value, list | Mapping) and len(value) > wanted
    return False
