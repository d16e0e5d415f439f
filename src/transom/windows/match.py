"""Which records hold for a node, and what in an object they concern. Pure functions on data.

A `Matcher` is made once for a set of limits and looks at each object once: the paths of all limits form one tree, and only
what is both in the tree and in the object is visited.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from transom.windows.records import Field, Limit, Record, Support, Target

Steps = tuple[str | int, ...]  # keys and indexes from the root of an object

_ELEMENTS: Final = "[*]"
_PART: Final = re.compile(r"\[\*\]|\['([^']*)'\]|\.?([^.\[]+)")
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")

# Where objects of other kinds hold a pod or a template of pods.
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


class Hit(NamedTuple):
    """A limit, met by a value of an object."""

    limit: Limit
    field: Field
    steps: Steps  # from the root of the whole object, not of the template
    value: Any

    @property
    def path(self) -> str:
        return path_text(self.steps)


def holds(record: Record, target: Target) -> bool:
    """Whether a record holds on such a node. What is not known of the node rules nothing out."""
    if target.release < record.since or (record.until is not None and target.release > record.until):
        return False
    if target.runtime is not None and target.runtime not in record.runtimes:
        return False
    if target.network is not None and target.network not in record.networks:
        return False
    if isinstance(record, Support):
        return _build_has(record, target) and target.features.issuperset(record.needs)
    return _build_lacks(record, target) and target.features.isdisjoint(record.lifted_by)


def _build_has(record: Support, target: Target) -> bool:
    first, last = record.builds
    if target.build is None:
        return True
    if target.build < first or (last is not None and target.build > last):
        return False
    old = record.patched is not None and target.build == first and target.revision is not None
    return not old or target.revision >= record.patched  # type: ignore[operator]


def _build_lacks(record: Limit, target: Target) -> bool:
    first, last = record.builds
    build = target.build
    if build is None:
        return record.patched is None
    if build < first or (last is not None and build > last):
        return False
    if record.patched is None or build != last:
        return True
    return target.revision is not None and target.revision < record.patched


def select(records: Iterable[Record], target: Target) -> list[Record]:
    return [record for record in records if holds(record, target)]


def pod_in(kind: str, obj: Mapping[str, Any]) -> tuple[Steps, Mapping[str, Any]] | None:
    """The pod, or template of pods, that an object is or has, and where; None if it has none."""
    at = POD_AT.get(kind)
    if at is None:
        return None
    found: Any = obj
    for step in at:
        found = found.get(step) if isinstance(found, Mapping) else None
    return (at, found) if isinstance(found, Mapping) else None


@lru_cache(maxsize=1024)
def parts_of(path: str) -> tuple[str, ...]:
    """`spec.volumes[*].nfs` -> ("spec", "volumes", "[*]", "nfs"). Keys keep a trailing `*`."""
    found, at = [], 0
    while at < len(path):
        match = _PART.match(path, at)
        if match is None:
            raise ValueError(f"not a path: {path}")
        found.append(match[1] or match[2] or _ELEMENTS)
        at = match.end()
    return tuple(found)


def path_text(steps: Steps) -> str:
    """("spec", "containers", 0, "image") -> `spec.containers[0].image`, as Kubernetes writes field paths."""
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
        self.prefixes: list[tuple[str, _Node]] = []  # for keys that begin so
        self.ends: list[tuple[Limit, Field]] = []
        self.absent: list[tuple[str, Limit, Field]] = []  # keys that are looked for in vain

    def child(self, part: str) -> _Node:
        if part.endswith("*") and part != _ELEMENTS:
            prefix = part[:-1]
            for known, node in self.prefixes:
                if known == prefix:
                    return node
            self.prefixes.append((prefix, _Node()))
            return self.prefixes[-1][1]
        return self.children.setdefault(part, _Node())


class Matcher:
    """Finds what a set of limits has to say about objects."""

    __slots__ = ("_roots",)

    def __init__(self, limits: Iterable[Limit]) -> None:
        self._roots: dict[str, _Node] = {}
        for limit in limits:
            for field in limit.fields:
                for parts in _spread(field):
                    self._add(limit, field, parts)

    def _add(self, limit: Limit, field: Field, parts: tuple[str, ...]) -> None:
        node = self._roots.setdefault(field.kind, _Node())
        if field.test == "absent":
            for part in parts[:-1]:
                node = node.child(part)
            node.absent.append((parts[-1], limit, field))
            return
        for part in parts:
            node = node.child(part)
        node.ends.append((limit, field))

    def find(self, kind: str, obj: Mapping[str, Any]) -> list[Hit]:
        """In an object and, if it has one, in its template of pods; in the order of the object's fields."""
        hits: list[Hit] = []
        root = self._roots.get(kind) if kind != "Pod" else None
        if root is not None:
            _walk(root, obj, (), hits, kind, obj)
        pods = self._roots.get("Pod")
        held = pod_in(kind, obj) if pods is not None else None
        if held is not None:
            _walk(pods, held[1], held[0], hits, "Pod", held[1])  # type: ignore[arg-type]
        return hits


def _spread(field: Field) -> Iterator[tuple[str, ...]]:
    parts = parts_of(field.path)
    if field.kind == "Pod" and parts[:2] == ("spec", "containers"):
        for name in _CONTAINERS:
            yield ("spec", name, *parts[2:])
    else:
        yield parts


def _walk(node: _Node, value: Any, steps: Steps, hits: list[Hit], kind: str, whole: Mapping[str, Any]) -> None:
    for limit, field in node.ends:
        if _meets(field, value) and all(met(other, kind, whole) for other in limit.given):
            hits.append(Hit(limit, field, steps, value))
    if isinstance(value, Mapping):
        for key, limit, field in node.absent:
            if value.get(key) is None and all(met(other, kind, whole) for other in limit.given):
                hits.append(Hit(limit, field, (*steps, key), None))
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
        child = node.children.get(_ELEMENTS)
        if child is not None:
            for i, inner in enumerate(value):
                _walk(child, inner, (*steps, i), hits, kind, whole)


def met(field: Field, kind: str, obj: Mapping[str, Any]) -> bool:
    """Whether a condition is met anywhere in an object of a kind (for "Pod": a pod or template itself)."""
    if field.kind != kind:
        return False
    return any(_met(field, parts, obj) for parts in _spread(field))


def _met(field: Field, parts: tuple[str, ...], value: Any) -> bool:
    if not parts:
        return _meets(field, value)
    part, rest = parts[0], parts[1:]
    if part == _ELEMENTS:
        return isinstance(value, list) and any(_met(field, rest, inner) for inner in value)
    if not isinstance(value, Mapping):
        return False
    if field.test == "absent" and not rest:
        return value.get(part) is None
    if part.endswith("*"):
        return any(_met(field, rest, inner) for key, inner in value.items() if key.startswith(part[:-1]))
    return part in value and _met(field, rest, value[part])


def _meets(field: Field, value: Any) -> bool:
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
