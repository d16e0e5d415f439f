"""Computes a number of replicas from pod metrics.

The ratio of current to target usage determines the result; a deviation of up to 10 % changes
nothing. Pods without metrics, or not ready, are counted conservatively: they reduce the change, but
never reverse it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from transom.controllers.horizontalpodautoscaler.metrics import MetricsError, PodMetric, PodMetrics
from transom.controllers.pods import is_pod_ready, pod_phase, pod_ready_condition
from transom.kit.clock import parse_rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object
from transom.machinery.quantity import parse_quantity

TOLERANCE = 0.1


class Tolerance(NamedTuple):
    """Deviations from the target that change nothing, by direction."""

    down: float = TOLERANCE
    up: float = TOLERANCE

    def allows(self, ratio: float) -> bool:
        if self == _SAME:
            return abs(1.0 - ratio) <= TOLERANCE
        return 1.0 - self.down <= ratio <= 1.0 + self.up


_SAME = Tolerance()
CPU_INITIALIZATION_SECONDS = 300.0
INITIAL_READINESS_SECONDS = 30.0
_NO_PODS = "no pods returned by selector while calculating replica count"
_NO_METRICS = "did not receive metrics for any ready pods"


class Utilization(NamedTuple):
    """A proposal by percentage of requests."""

    replicas: int
    percent: int
    average: int  # in thousandths


class _Groups(NamedTuple):
    ready: int
    unready: set[str]
    missing: set[str]


def _grouped(pods: Sequence[Object], metrics: PodMetrics, resource: str, now: float) -> _Groups:
    """Groups pods by whether their metrics are meaningful; removes the others from `metrics`."""
    ready, unready, missing, ignored = 0, set(), set(), set()
    for pod in pods:
        name = pod["metadata"]["name"]
        if "deletionTimestamp" in pod["metadata"] or pod_phase(pod) == "Failed":
            ignored.add(name)
        elif pod_phase(pod) == "Pending":
            unready.add(name)
        elif name not in metrics:
            missing.add(name)
        elif resource == "cpu" and _is_starting(pod, metrics[name], now):
            unready.add(name)
        else:
            ready += 1
    for name in ignored | unready:
        metrics.pop(name, None)
    return _Groups(ready, unready, missing)


def _is_starting(pod: Object, metric: PodMetric, now: float) -> bool:
    """Whether the CPU usage of a pod may still be that of its start-up."""
    condition = pod_ready_condition(pod)
    started = (pod.get("status") or {}).get("startTime")
    if condition is None or not started:
        return True
    since = (
        parse_rfc3339(condition["lastTransitionTime"])
        if condition.get("lastTransitionTime")
        else 0.0
    )
    start, unready = parse_rfc3339(started), condition.get("status") == "False"
    if start + CPU_INITIALIZATION_SECONDS > now:
        return unready or metric.timestamp < since + metric.window
    return unready and start + INITIAL_READINESS_SECONDS > since


def _ceil(value: float) -> int:
    return math.ceil(value)


def by_utilization(
    current: int,
    target: int,
    metrics: PodMetrics,
    pods: Sequence[Object],
    resource: str,
    container: str,
    now: float,
    tolerance: Tolerance = _SAME,
) -> Utilization:
    """For pods to use `target` percent of their requests."""
    if not pods:
        raise MetricsError(_NO_PODS)
    metrics = dict(metrics)
    groups = _grouped(pods, metrics, resource, now)
    requests = _requests(pods, container, resource)
    if not metrics:
        raise MetricsError(_NO_METRICS)
    ratio, percent, average = _utilization(metrics, requests, target)
    rebalance = bool(groups.unready) and ratio > 1.0
    if not rebalance and not groups.missing:
        if tolerance.allows(ratio):
            return Utilization(current, percent, average)
        return Utilization(_ceil(ratio * groups.ready), percent, average)
    for name in groups.missing:
        if ratio != 1.0:
            metrics[name] = PodMetric(requests[name] if ratio < 1.0 else 0)
    for name in groups.unready if rebalance else ():
        metrics[name] = PodMetric(0)
    new_ratio, _, _ = _utilization(metrics, requests, target)
    if tolerance.allows(new_ratio) or (ratio < 1.0 < new_ratio) or (ratio > 1.0 > new_ratio):
        return Utilization(current, percent, average)
    replicas = _ceil(new_ratio * len(metrics))
    if (new_ratio < 1.0 and replicas > current) or (new_ratio > 1.0 and replicas < current):
        return Utilization(current, percent, average)
    return Utilization(replicas, percent, average)


def by_average(
    current: int,
    target: int,
    metrics: PodMetrics,
    pods: Sequence[Object],
    resource: str,
    now: float,
    tolerance: Tolerance = _SAME,
) -> tuple[int, int]:
    """For an average of `target` (in thousandths) per pod; also returns the current average."""
    if not pods:
        raise MetricsError(_NO_PODS)
    metrics = dict(metrics)
    groups = _grouped(pods, metrics, resource, now)
    if not metrics:
        raise MetricsError(_NO_METRICS)
    ratio, average = _average(metrics, target)
    rebalance = bool(groups.unready) and ratio > 1.0
    if not rebalance and not groups.missing:
        if tolerance.allows(ratio):
            return current, average
        return _ceil(ratio * groups.ready), average
    for name in groups.missing:
        metrics[name] = PodMetric(target if ratio < 1.0 else 0)
    for name in groups.unready if rebalance else ():
        metrics[name] = PodMetric(0)
    new_ratio, _ = _average(metrics, target)
    if tolerance.allows(new_ratio) or (ratio < 1.0 < new_ratio) or (ratio > 1.0 > new_ratio):
        return current, average
    return _ceil(new_ratio * len(metrics)), average


def by_total(
    current: int,
    target: int,
    value: int,
    pods: Sequence[Object],
    tolerance: Tolerance = _SAME,
) -> int:
    """For a shared value to reach its target."""
    ratio = value / target
    if current == 0:
        return _ceil(ratio)  # scaling up from zero: there are no pods to count
    if tolerance.allows(ratio):
        return current
    if not pods:
        raise MetricsError(f"unable to calculate ready pods: {_NO_PODS}")
    return _ceil(ratio * sum(pod_phase(pod) == "Running" and is_pod_ready(pod) for pod in pods))


def by_total_per_pod(
    replicas: int, target: int, value: int, tolerance: Tolerance = _SAME
) -> tuple[int, int]:
    """For `target` of a shared value per pod; also returns the current value per pod."""
    wanted = replicas
    if replicas == 0 or not tolerance.allows(value / (target * replicas)):
        wanted = _ceil(value / target)
    return wanted, _ceil(value / replicas) if replicas else 0


def _requests(pods: Sequence[Object], container: str, resource: str) -> dict[str, int]:
    out = {}
    for pod in pods:
        total = 0
        for spec in pod["spec"].get("containers") or ():
            if not container or spec["name"] == container:
                request = ((spec.get("resources") or {}).get("requests") or {}).get(resource)
                if request is None:
                    raise MetricsError(f"missing request for {resource}")
                total += parse_quantity(request).milli_value()
        out[pod["metadata"]["name"]] = total
    return out


def _utilization(
    metrics: PodMetrics, requests: dict[str, int], target: int
) -> tuple[float, int, int]:
    known = [(metric.value, requests[name]) for name, metric in metrics.items() if name in requests]
    used, requested = sum(value for value, _ in known), sum(request for _, request in known)
    if requested == 0:
        raise MetricsError("no metrics returned matched known pods")
    percent = used * 100 // requested
    return percent / target, percent, used // len(known)


def _average(metrics: PodMetrics, target: int) -> tuple[float, int]:
    average = sum(metric.value for metric in metrics.values()) // len(metrics)
    return average / target, average
