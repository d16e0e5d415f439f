"""Taints and tolerations: the one implementation of Kubernetes' rule (k8s.io/component-helpers and api/core/v1/toleration.go).

A toleration tolerates a taint if effect, key and value match. An empty effect matches all effects, an empty key all keys,
and the operator Exists all values. The scheduler, the controllers, the kubelet, doctor and lint use this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

Object = Mapping[str, Any]

DO_NOT_SCHEDULE: Final = ("NoSchedule", "NoExecute")


def tolerates_taint(toleration: Object, taint: Object) -> bool:
    """ToleratesTaint: whether a toleration matches a taint."""
    effect, key = toleration.get("effect"), toleration.get("key")
    if (effect and effect != taint.get("effect")) or (key and key != taint.get("key")):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(operator == "Exists")


def find_toleration(tolerations: Iterable[Object], taint: Object) -> Object | None:
    """The first toleration that matches a taint."""
    return next((one for one in tolerations if tolerates_taint(one, taint)), None)


def untolerated_taints(
    tolerations: Sequence[Object],
    taints: Iterable[Object],
    effects: Sequence[str] = DO_NOT_SCHEDULE,
) -> list[Object]:
    """FindMatchingUntoleratedTaint, for all of them: the taints with one of `effects` that no toleration matches."""
    return [
        taint
        for taint in taints
        if taint.get("effect") in effects and find_toleration(tolerations, taint) is None
    ]


class TolerationIndex:
    """The same rule for many taints: looking up a taint takes the same time for any number of tolerations."""

    __slots__ = ("_equal", "_exists")

    def __init__(self, tolerations: Iterable[Object]) -> None:
        self._exists: set[tuple[str, str]] = set()  # key, effect
        self._equal: set[tuple[str, str, str]] = set()  # key, value, effect
        for toleration in tolerations:
            key, effect = toleration.get("key") or "", toleration.get("effect") or ""
            operator = toleration.get("operator") or "Equal"
            if operator == "Exists":
                self._exists.add((key, effect))
            elif operator == "Equal":
                self._equal.add((key, toleration.get("value") or "", effect))

    def tolerates(self, key: str, value: str, effect: str) -> bool:
        exists, equal = self._exists, self._equal
        return (
            bool(exists)
            and not exists.isdisjoint(((key, effect), (key, ""), ("", effect), ("", "")))
        ) or (
            bool(equal)
            and not equal.isdisjoint(
                ((key, value, effect), (key, value, ""), ("", value, effect), ("", value, ""))
            )
        )
