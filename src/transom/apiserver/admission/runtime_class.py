"""RuntimeClass: the class that a pod names adds its overhead, node selector and tolerations."""

from __future__ import annotations

from transom.apiserver.admission.attributes import Attributes
from transom.apiserver.resources import Resource
from transom.apiserver.storage import Storage
from transom.machinery.field import go_quote
from transom.machinery.objects import Object
from transom.machinery.quantity import parse

_DIFFERENT = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
_UNFOUNDED = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


class RuntimeClass:
    name = "RuntimeClass"

    def __init__(self, storage: Storage, classes: Resource) -> None:
        self._storage = storage
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
        found = self._storage.find(self._classes, "", name)
        if found is None:
            raise attributes.forbidden(f"pod rejected: RuntimeClass {go_quote(name)} not found")
        return found


def _overhead(runtime: Object) -> dict[str, str] | None:
    """What the class says a pod costs besides its containers; None when it says nothing of it."""
    overhead = runtime.get("overhead")
    return None if overhead is None else overhead.get("podFixed") or {}


def _same(first: dict[str, str], second: dict[str, str]) -> bool:
    return first.keys() == second.keys() and all(parse(first[name]) == parse(second[name]) for name in first)


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
    """Both lists in one, without those that another one covers."""
    every = [*first, *second]
    merged: list[Object] = []
    for i, toleration in enumerate(every):
        if any(_covers(kept, toleration) for kept in merged):
            continue
        # Of two equal ones the first stays.
        if any(later != toleration and _covers(later, toleration) for later in every[i + 1 :]):
            continue
        merged.append(toleration)
    return merged


def _covers(wide: Object, narrow: Object) -> bool:
    """Whether `wide` tolerates everything that `narrow` does."""
    if wide == narrow:
        return True
    key, operator, effect = wide.get("key", ""), wide.get("operator", ""), wide.get("effect", "")
    if narrow.get("key", "") != key and (key or operator != "Exists"):
        return False
    if effect and narrow.get("effect", "") != effect:
        return False
    seconds = wide.get("tolerationSeconds")
    if effect == "NoExecute" and seconds is not None:
        others = narrow.get("tolerationSeconds")
        if others is None or others > seconds:
            return False
    if operator in ("", "Equal"):
        return narrow.get("operator") == "Equal" and narrow.get("value", "") == wide.get("value", "")
    return bool(operator == "Exists")
