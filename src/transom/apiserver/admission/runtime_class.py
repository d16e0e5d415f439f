"""RuntimeClass: a pod gets the overhead, node selector and tolerations of its class."""

from __future__ import annotations

import math

from transom.apiserver.admission.plugin import MutatingPlugin, ValidatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import Resource
from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object
from transom.machinery.quantity import parse_quantity

_DIFFERENT = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
_UNFOUNDED = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


class RuntimeClass(MutatingPlugin, ValidatingPlugin):
    name = "RuntimeClass"
    thread_safe = True

    def __init__(self, objects: ObjectStore, classes: Resource) -> None:
        self._objects = objects
        self._classes = classes

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.kind.key == "/Pod" and operation == "CREATE" and not subresource

    def admit(self, attributes: Attributes) -> None:
        spec = attributes.obj["spec"]
        runtime = self._find(attributes, spec)
        if runtime is None:
            return
        overhead = _overhead(runtime)
        if overhead is not None:
            if spec.get("overhead") is not None and not _same(overhead, spec["overhead"]):
                raise attributes.forbidden(_DIFFERENT)
            spec["overhead"] = dict(overhead)
        scheduling = runtime.get("scheduling")
        if scheduling is not None:
            _schedule(attributes, spec, scheduling)

    def validate(self, attributes: Attributes) -> None:
        spec = attributes.obj["spec"]
        runtime = self._find(attributes, spec)
        overhead = _overhead(runtime) if runtime is not None else None
        if overhead is None:
            if spec.get("overhead") is not None:
                raise attributes.forbidden(_UNFOUNDED)
        elif not _same(overhead, spec.get("overhead") or {}):
            raise attributes.forbidden(_DIFFERENT)

    def _find(self, attributes: Attributes, spec: Object) -> Object | None:
        name = spec.get("runtimeClassName")
        if name is None:
            return None
        found = self._objects.find(self._classes, "", name)
        if found is None:
            raise attributes.forbidden(f"pod rejected: RuntimeClass {go_quote(name)} not found")
        return found


def _overhead(runtime: Object) -> dict[str, str] | None:
    """The overhead of the class; None if it has none."""
    overhead = runtime.get("overhead")
    return None if overhead is None else overhead.get("podFixed") or {}


def _same(first: dict[str, str], second: dict[str, str]) -> bool:
    return first.keys() == second.keys() and all(
        parse_quantity(first[name]) == parse_quantity(second[name]) for name in first
    )


def _schedule(attributes: Attributes, spec: Object, scheduling: Object) -> None:
    wanted = scheduling.get("nodeSelector") or {}
    given = spec.get("nodeSelector") or {}
    for key, value in wanted.items():
        if given.get(key, value) != value:
            raise attributes.forbidden(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {given[key]}"
            )
    if wanted:
        spec["nodeSelector"] = {**given, **wanted}
    merged = merge_tolerations(spec.get("tolerations") or [], scheduling.get("tolerations") or [])
    if merged:
        spec["tolerations"] = merged


def merge_tolerations(first: list[Object], second: list[Object]) -> list[Object]:
    """Merges both lists, without tolerations that another one covers. Linear in the number of
    tolerations.
    """
    every = [*first, *second]
    values = [_toleration(each) for each in every]
    covered_later: list[bool] = []
    later = _Tolerations()
    for value in reversed(values):
        # the first of two equal ones is kept
        covered_later.append(later.any_covers(value, other_than=value))
        later.add(value)
    merged: list[Object] = []
    kept = _Tolerations()
    for toleration, value, covered in zip(every, values, reversed(covered_later), strict=True):
        if not covered and not kept.any_covers(value):
            kept.add(value)
            merged.append(toleration)
    return merged


class _Toleration(NamedTuple):
    key: str
    operator: str
    effect: str
    value: str
    seconds: int | None

    def covers(self, narrow: _Toleration) -> bool:
        """Whether this toleration covers `narrow`."""
        if self == narrow:
            return True
        if narrow.key != self.key and (self.key or self.operator != "Exists"):
            return False
        if self.effect and narrow.effect != self.effect:
            return False
        if self.longest < (math.inf if narrow.seconds is None else narrow.seconds):
            return False
        if self.operator in ("", "Equal"):
            return narrow.operator == "Equal" and narrow.value == self.value
        return self.operator == "Exists"

    @property
    def longest(self) -> float:
        return self.seconds if self.effect == "NoExecute" and self.seconds is not None else math.inf


def _toleration(given: Object) -> _Toleration:
    key, operator, effect, value = (
        given.get(name) or "" for name in ("key", "operator", "effect", "value")
    )
    return _Toleration(key, operator, effect, value, given.get("tolerationSeconds"))


class _Tolerations:
    """A set of tolerations that finds one that covers another.

    Tolerations are in one group if they differ only in their seconds (or, with Exists, their
    values). The two longest of each group are sufficient for every query.
    """

    def __init__(self) -> None:
        self._longest: dict[tuple[str, ...], list[_Toleration]] = {}

    def add(self, one: _Toleration) -> None:
        value = () if one.operator == "Exists" else (one.value,)
        group = self._longest.setdefault((one.key, one.effect, one.operator, *value), [])
        if one not in group:
            group.append(one)
            group.sort(key=lambda each: each.longest, reverse=True)
            del group[2:]

    def any_covers(self, one: _Toleration, *, other_than: _Toleration | None = None) -> bool:
        for key in {one.key, ""}:
            for effect in {one.effect, ""}:
                for kind in {
                    ("Exists",),
                    ("Equal", one.value),
                    ("", one.value),
                    (one.operator, one.value),
                }:
                    for wide in self._longest.get((key, effect, *kind), ()):
                        if wide != other_than and wide.covers(one):
                            return True
        return False
