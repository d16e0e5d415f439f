"""The scheduler's metrics: what an attempt and the queue report, and the names of each release."""

from __future__ import annotations

import pytest
from tests.conftest import ContextFactory

from transom.kit.prometheus import Family, render_metrics
from transom.machinery.releases import Release
from transom.scheduler.metrics import SCHEDULED, SchedulerMetrics

from .objects import node, pod


def values(families: list[Family]) -> dict[str, str]:
    lines = render_metrics(families).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))


async def test_attempts_and_queues_are_counted(running_cluster: ContextFactory) -> None:
    async with running_cluster() as cluster:
        await cluster.add_node(node("a", cpu="1"))
        await cluster.add_pod(pod("fits"))
        await cluster.add_pod(pod("large", cpu="2"))
        await cluster.settle()
        found = values(cluster.scheduler.collect_metrics())
    attempts = "scheduler_schedule_attempts_total"
    labels = 'profile="default-scheduler"'
    assert found[f'{attempts}{{{labels},result="scheduled"}}'] == "1"
    assert found[f'{attempts}{{{labels},result="unschedulable"}}'] == "1"
    assert (
        found[f'scheduler_e2e_scheduling_duration_seconds_count{{{labels},result="scheduled"}}']
        == "1"
    )
    assert found['scheduler_pod_scheduling_duration_seconds_count{attempts="1"}'] == "1"
    assert found["scheduler_pod_scheduling_attempts_sum"] == "1"
    assert found["scheduler_binding_duration_seconds_count"] == "1"
    assert found["scheduler_scheduling_algorithm_duration_seconds_count"] == "1"
    queued = "scheduler_queue_incoming_pods_total"
    assert found[f'{queued}{{event="PodAdd",queue="active"}}'] == "2"
    assert found[f'{queued}{{event="ScheduleAttemptFailure",queue="unschedulable"}}'] == "1"
    assert found['scheduler_pending_pods{queue="unschedulable"}'] == "1"
    assert found['scheduler_pending_pods{queue="active"}'] == "0"
    assert found['scheduler_scheduler_cache_size{type="nodes"}'] == "1"
    assert found['scheduler_scheduler_cache_size{type="pods"}'] == "1"


@pytest.mark.parametrize(
    ("release", "attempt", "pods"),
    [
        ((1, 20), ["e2e_scheduling"], ["pod_scheduling"]),
        ((1, 23), ["e2e_scheduling", "scheduling_attempt"], ["pod_scheduling"]),
        ((1, 24), ["scheduling_attempt"], ["pod_scheduling"]),
        ((1, 29), ["scheduling_attempt"], ["pod_scheduling", "pod_scheduling_sli"]),
        ((1, 36), ["scheduling_attempt"], ["pod_scheduling_sli"]),
    ],
)
def test_each_release_has_its_names(
    release: tuple[int, int], attempt: list[str], pods: list[str]
) -> None:
    metrics = SchedulerMetrics(Release(*release))
    metrics.attempt_ended(SCHEDULED, "default-scheduler", 0.01)
    metrics.pod_scheduled(20, 3)
    metrics.binding_ended(0.01)
    names = {family.name for family in metrics.collect()}
    expected = {f"scheduler_{name}_duration_seconds" for name in attempt + pods}
    binding = {"scheduler_binding_duration_seconds"}
    durations = {name for name in names if name.endswith("_duration_seconds")}
    assert durations - binding == expected
    assert (binding <= names) == (release == (1, 20))
    text = render_metrics(metrics.collect())
    assert f'scheduler_{pods[-1]}_duration_seconds_count{{attempts="15+"}} 1\n' in text


def test_events_and_gated_pods_have_the_labels_of_the_release() -> None:
    old, new = SchedulerMetrics(Release(1, 25)), SchedulerMetrics(Release(1, 32))
    for metrics in (old, new):
        metrics.pod_queued("active", "NodeLabelChange")
        metrics.set_pending(active=1, backoff=2, unschedulable=3, gated=4)
    name = "scheduler_queue_incoming_pods_total"
    assert f'{name}{{event="NodeLabelChange",queue="active"}}' in values(old.collect())
    assert f'{name}{{event="NodeUpdateNodeLabel",queue="active"}}' in values(new.collect())
    assert values(old.collect())['scheduler_pending_pods{queue="unschedulable"}'] == "7"
    assert values(new.collect())['scheduler_pending_pods{queue="unschedulable"}'] == "3"
    assert values(new.collect())['scheduler_pending_pods{queue="gated"}'] == "4"
