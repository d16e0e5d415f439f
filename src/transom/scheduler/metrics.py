"""The scheduler's metrics with Kubernetes' names: attempts, latencies, and the pods in the queues.

The scheduler and its queue report what they do; the sizes of queues and cache are read when the
metrics are collected.
"""

from __future__ import annotations

from typing import Final

from transom.kit.metric_table import MetricRow, MetricTable, exponential_buckets
from transom.kit.prometheus import Family, Histogram, Sample
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.releases.metrics import MetricRules, metric_rules

SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
_PREFIX: Final = "scheduler_"
_ATTEMPT_SECONDS: Final = exponential_buckets(0.001, 2, 15)
_POD_SECONDS: Final = exponential_buckets(0.01, 2, 20)
_ATTEMPTS: Final = exponential_buckets(1, 2, 5)
_MANY_ATTEMPTS: Final = 15


class SchedulerMetrics:
    def __init__(self, release: Release = DEFAULT) -> None:
        self._rules = metric_rules(release)
        self._table = MetricTable(_metric_rows(self._rules))
        self._queues: dict[str, int] = {}
        self._cache: dict[str, int] = {}

    def pod_queued(self, queue: str, event: str) -> None:
        """A pod entered a queue because of this event, with the label of 1.20."""
        label = self._rules.queue_events.get(event, event)
        self._table.count(_PREFIX + "queue_incoming_pods_total", label, queue)

    def algorithm_ended(self, seconds: float) -> None:
        self._table.observe(_PREFIX + "scheduling_algorithm_duration_seconds", seconds)

    def binding_ended(self, seconds: float) -> None:
        if self._rules.scheduler_binding:
            self._table.observe(_PREFIX + "binding_duration_seconds", seconds)

    def attempt_ended(self, result: str, profile: str, seconds: float) -> None:
        self._table.count(_PREFIX + "schedule_attempts_total", profile, result)
        for name in self._rules.scheduler_attempt:
            self._table.observe(_PREFIX + name, seconds, profile, result)

    def pod_scheduled(self, attempts: int, seconds: float) -> None:
        """`seconds` since the pod first entered the active queue."""
        label = str(attempts) if attempts < _MANY_ATTEMPTS else f"{_MANY_ATTEMPTS}+"
        self._table.observe(_PREFIX + "pod_scheduling_attempts", attempts)
        for name in self._rules.scheduler_pod:
            self._table.observe(_PREFIX + name, seconds, label)

    def set_pending(self, active: int, backoff: int, unschedulable: int, gated: int) -> None:
        self._queues = {"active": active, "backoff": backoff, "unschedulable": unschedulable}
        if self._rules.scheduler_gated:
            self._queues["gated"] = gated
        else:
            self._queues["unschedulable"] += gated

    def set_cache(self, nodes: int, pods: int, assumed: int) -> None:
        self._cache = {"assumed_pods": assumed, "nodes": nodes, "pods": pods}

    def collect(self) -> list[Family]:
        queues: list[Sample | Histogram] = [
            Sample((("queue", name),), count) for name, count in self._queues.items()
        ]
        cached: list[Sample | Histogram] = [
            Sample((("type", name),), count) for name, count in self._cache.items()
        ]
        return [
            *self._table.collect(),
            self._table.family(_PREFIX + "pending_pods", queues),
            self._table.family(_PREFIX + self._rules.scheduler_cache, cached),
        ]


def _metric_rows(rules: MetricRules) -> dict[str, MetricRow]:
    stable = rules.scheduler_stability
    pending = (
        "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; "
        "'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in "
        "unschedulable"
    )
    if rules.scheduler_gated:
        pending += (
            "Pods that the scheduler attempted to schedule and failed; 'gated' is the number of "
            "unschedulable pods that the scheduler never attempted to schedule because they are "
            "gated."
        )
    else:
        pending += "Q."
    rows = {
        "schedule_attempts_total": MetricRow(
            "counter",
            "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could "
            "not be scheduled, while 'error' means an internal scheduler problem.",
            ("profile", "result"),
            stability=stable,
        ),
        "scheduling_algorithm_duration_seconds": MetricRow(
            "histogram", "Scheduling algorithm latency in seconds", (), _ATTEMPT_SECONDS
        ),
        "binding_duration_seconds": MetricRow(
            "histogram",
            "(Deprecated since 1.20.0) Binding latency in seconds",
            (),
            _ATTEMPT_SECONDS,
        ),
        "e2e_scheduling_duration_seconds": MetricRow(
            "histogram",
            "E2e scheduling latency in seconds (scheduling algorithm + binding)",
            ("profile", "result"),
            _ATTEMPT_SECONDS,
        ),
        "scheduling_attempt_duration_seconds": MetricRow(
            "histogram",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
            ("profile", "result"),
            _ATTEMPT_SECONDS,
            "STABLE",
        ),
        "pending_pods": MetricRow("gauge", pending, ("queue",), stability=stable),
        "pod_scheduling_duration_seconds": MetricRow(
            "histogram",
            "E2e latency for a pod being scheduled which may include multiple scheduling attempts.",
            ("attempts",),
            _POD_SECONDS,
            stable,
        ),
        "pod_scheduling_sli_duration_seconds": MetricRow(
            "histogram",
            "E2e latency for a pod being scheduled, from the time the pod enters the scheduling "
            "queue and might involve multiple scheduling attempts.",
            ("attempts",),
            _POD_SECONDS,
            "BETA",
        ),
        "pod_scheduling_attempts": MetricRow(
            "histogram",
            "Number of attempts to successfully schedule a pod.",
            (),
            _ATTEMPTS,
            stable,
        ),
        "queue_incoming_pods_total": MetricRow(
            "counter",
            "Number of pods added to scheduling queues by event and queue type.",
            ("event", "queue"),
            stability=stable,
        ),
        rules.scheduler_cache: MetricRow(
            "gauge",
            "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
            ("type",),
        ),
    }
    return {_PREFIX + name: row for name, row in rows.items()}
