"""The metrics of work queues, requests and leases, on virtual time."""

from __future__ import annotations

import pytest

from transom.client.metrics import ClientMetrics, WorkQueueMetrics
from transom.client.workqueue import WorkQueue
from transom.kit.clock import VirtualClock
from transom.kit.prometheus import render_metrics
from transom.machinery.releases import Release


def values(families: object) -> dict[str, str]:
    lines = render_metrics(families).splitlines()  # type: ignore[arg-type]
    return dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))


async def test_a_queue_counts_what_its_items_go_through() -> None:
    clock = VirtualClock()
    metrics = WorkQueueMetrics()
    queue: WorkQueue[str] = WorkQueue(clock, name="deployment", metrics=metrics)
    queue.add("a")
    queue.add("a")  # queued once
    queue.add("b")
    assert values(metrics.collect())['workqueue_depth{name="deployment"}'] == "2"
    clock.advance(2)
    item = await queue.get()
    clock.advance(3)
    found = values(metrics.collect())
    assert found['workqueue_adds_total{name="deployment"}'] == "2"
    assert found['workqueue_depth{name="deployment"}'] == "1"
    assert found['workqueue_queue_duration_seconds_sum{name="deployment"}'] == "2"
    assert found['workqueue_unfinished_work_seconds{name="deployment"}'] == "3"
    assert found['workqueue_longest_running_processor_seconds{name="deployment"}'] == "3"
    queue.add_rate_limited(item)
    queue.done(item)
    found = values(metrics.collect())
    assert found['workqueue_retries_total{name="deployment"}'] == "1"
    assert found['workqueue_work_duration_seconds_sum{name="deployment"}'] == "3"
    assert found['workqueue_work_duration_seconds_bucket{name="deployment",le="1"}'] == "0"
    assert found['workqueue_work_duration_seconds_bucket{name="deployment",le="10"}'] == "1"
    assert found['workqueue_unfinished_work_seconds{name="deployment"}'] == "0"
    queue.shut_down()


async def test_counters_survive_the_end_of_the_controllers_and_depth_does_not() -> None:
    clock = VirtualClock()
    metrics = WorkQueueMetrics()
    first: WorkQueue[str] = WorkQueue(clock, name="job", metrics=metrics)
    first.add("a")
    metrics.end_work()
    second: WorkQueue[str] = WorkQueue(clock, name="job", metrics=metrics)
    second.add("b")
    found = values(metrics.collect())
    assert found['workqueue_adds_total{name="job"}'] == "2"
    assert found['workqueue_depth{name="job"}'] == "1"


@pytest.mark.parametrize(
    ("release", "target", "bucket"),
    [
        ((1, 20), 'url="https://10.0.0.1:6443/%7Bprefix%7D",verb="GET"', "0.002"),
        ((1, 24), 'host="10.0.0.1:6443",verb="GET"', "0.005"),
    ],
)
def test_requests_are_timed_by_url_until_1_23_and_by_host_afterwards(
    release: tuple[int, int], target: str, bucket: str
) -> None:
    metrics = ClientMetrics("10.0.0.1:6443", Release(*release))
    metrics.requests.record("GET", "200", 0.0015)
    found = values(metrics.collect())
    prefix = "rest_client_request_duration_seconds"
    assert found[f"{prefix}_count{{{target}}}"] == "1"
    assert found[f'{prefix}_bucket{{{target},le="{bucket}"}}'] == "1"
    total = 'rest_client_requests_total{code="200",host="10.0.0.1:6443",method="GET"}'
    assert found[total] == "1"


def test_a_lease_is_a_gauge() -> None:
    metrics = ClientMetrics()
    assert not [name for name in values(metrics.collect()) if name.startswith("leader_election")]
    metrics.leases.set_leading("kube-scheduler", True)
    name = 'leader_election_master_status{name="kube-scheduler"}'
    assert values(metrics.collect())[name] == "1"
