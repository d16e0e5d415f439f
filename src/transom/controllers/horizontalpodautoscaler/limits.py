"""Limits the proposals of the metrics: stabilization over time, and the rate of change.

Recommendations and scaling events of each autoscaler are kept in memory only, as in Kubernetes:
after a restart the first recommendation is the current size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from transom.controllers.horizontalpodautoscaler.conditions import (
    ABLE_TO_SCALE,
    SCALING_LIMITED,
    Conditions,
)
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object

DOWNSCALE_STABILIZATION_SECONDS = 300
_UP_FACTOR, _UP_MINIMUM = 2, 4
_WITHIN = ("DesiredWithinRange", "the desired count is within the acceptable range")
_TOO_FAST_UP = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
)
_TOO_FAST_DOWN = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
)
_TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
_TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
_STABILIZED_UP = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
_STABILIZED_DOWN = (
    "ScaleDownStabilized",
    (
        "recent recommendations were higher than current one, applying the highest recent "
        "recommendation"
    ),
)
_DEFAULT_UP: Object = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_DEFAULT_DOWN: Object = {
    "stabilizationWindowSeconds": DOWNSCALE_STABILIZATION_SECONDS,
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


class _At(NamedTuple):
    time: float
    value: int


class ScalingHistory:
    """The history of one autoscaler."""

    def __init__(self, replicas: int, now: float) -> None:
        self._recommended = [_At(now, replicas)]
        self._ups: list[_At] = []
        self._downs: list[_At] = []

    def scaled(self, behavior: Object | None, before: int, after: int, now: float) -> None:
        """Records a change, for policies that limit the changes in a period."""
        if behavior is None:
            return
        events, rules = (
            (self._ups, _rules(behavior, "scaleUp"))
            if after > before
            else (self._downs, _rules(behavior, "scaleDown"))
        )
        longest = max((policy["periodSeconds"] for policy in rules["policies"]), default=0)
        events[:] = [event for event in events if event.time >= now - longest]
        events.append(_At(now, abs(after - before)))

    def limited(
        self,
        spec: Object,
        current: int,
        desired: int,
        least: int,
        now: float,
        conditions: Conditions,
    ) -> int:
        """The new size, with the conditions that explain it."""
        behavior = spec.get("behavior")
        if behavior is None:
            stable, why = self._stabilized(desired, now)
        else:
            stable, why = self._stabilized_by(behavior, current, desired, now)
        if stable == desired:
            why = "ReadyForNewScale", "recommended size matches current size"
        conditions.set(ABLE_TO_SCALE, True, *why)
        if behavior is None:
            result, limit = _bounded(current, stable, least, spec["maxReplicas"])
        else:
            result, limit = self._rate_limited(
                behavior, current, stable, least, spec["maxReplicas"], now
            )
        conditions.set(SCALING_LIMITED, result != stable, *limit)
        return result

    # ---- stabilization ----

    def _stabilized(self, desired: int, now: float) -> tuple[int, tuple[str, str]]:
        cutoff = now - DOWNSCALE_STABILIZATION_SECONDS
        result = max((r.value for r in self._recommended if r.time >= cutoff), default=desired)
        self._recommend(desired, cutoff, now)
        return max(result, desired), _STABILIZED_DOWN

    def _stabilized_by(
        self, behavior: Object, current: int, desired: int, now: float
    ) -> tuple[int, tuple[str, str]]:
        up = _rules(behavior, "scaleUp")["stabilizationWindowSeconds"]
        down = _rules(behavior, "scaleDown")["stabilizationWindowSeconds"]
        window, better, why = (
            (up, min, _STABILIZED_UP) if desired >= current else (down, max, _STABILIZED_DOWN)
        )
        result = better([desired, *(r.value for r in self._recommended if r.time > now - window)])
        self._recommend(desired, now - max(up, down), now)
        return result, why

    def _recommend(self, desired: int, cutoff: float, now: float) -> None:
        self._recommended = [r for r in self._recommended if r.time >= cutoff]
        self._recommended.append(_At(now, desired))

    # ---- rates ----

    def _rate_limited(
        self, behavior: Object, current: int, desired: int, least: int, most: int, now: float
    ) -> tuple[int, tuple[str, str]]:
        if desired > current:
            limit = max(_up_limit(current, self._ups, _rules(behavior, "scaleUp"), now), current)
            allowed, why = (limit, _TOO_FAST_UP) if most > limit else (most, _TOO_MANY)
            if desired > allowed:
                return allowed, why
        elif desired < current:
            limit = min(
                _down_limit(current, self._downs, _rules(behavior, "scaleDown"), now), current
            )
            allowed, why = (limit, _TOO_FAST_DOWN) if least < limit else (least, _TOO_FEW)
            if desired < allowed:
                return allowed, why
        return desired, _WITHIN


def _bounded(current: int, desired: int, least: int, most: int) -> tuple[int, tuple[str, str]]:
    limit = max(_UP_FACTOR * current, _UP_MINIMUM)
    allowed, why = (limit, _TOO_FAST_UP) if most > limit else (most, _TOO_MANY)
    if desired < least:
        return least, _TOO_FEW
    if desired > allowed:
        return allowed, why
    return desired, _WITHIN


def _rules(behavior: Object, direction: str) -> Object:
    default = _DEFAULT_UP if direction == "scaleUp" else _DEFAULT_DOWN
    given = {
        name: value for name, value in (behavior.get(direction) or {}).items() if value is not None
    }
    return {**default, **given}


def _changed(events: Sequence[_At], period: int, now: float) -> int:
    return sum(event.value for event in events if event.time > now - period)


def _up_limit(current: int, events: Sequence[_At], rules: Object, now: float) -> int:
    if rules["selectPolicy"] == "Disabled":
        return current
    proposals = []
    for policy in rules["policies"]:
        start = current - _changed(events, policy["periodSeconds"], now)
        if policy["type"] == "Pods":
            proposals.append(start + policy["value"])
        else:
            # Rounded up: a small percentage of few pods must still be a change.
            proposals.append(math.ceil(start * (1 + policy["value"] / 100)))
    return (min if rules["selectPolicy"] == "Min" else max)(proposals)


def _down_limit(current: int, events: Sequence[_At], rules: Object, now: float) -> int:
    if rules["selectPolicy"] == "Disabled":
        return current
    proposals = []
    for policy in rules["policies"]:
        start = current + _changed(events, policy["periodSeconds"], now)
        if policy["type"] == "Pods":
            proposals.append(start - policy["value"])
        else:
            proposals.append(int(start * (1 - policy["value"] / 100)))
    return (max if rules["selectPolicy"] == "Min" else min)(proposals)
