"""The scheduling queue: its order, back-off, and the events that move pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from transom.kit.clock import VirtualClock
from transom.scheduler.framework import QueuedPodInfo
from transom.scheduler.nominator import PodNominator
from transom.scheduler.plugins.priority_sort import PrioritySort
from transom.scheduler.pods import PodInfo
from transom.scheduler.queue import SchedulingQueue

from .objects import pod, required, term


class QueueHarness:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.nominator = PodNominator()
        self.gated: set[str] = set()
        self.queue = SchedulingQueue(
            self.clock,
            self.nominator,
            PrioritySort.less.__get__(object()),
            lambda pod: pod.name not in self.gated,
        )

    def add(self, name: str, **more: Any) -> PodInfo:
        info = PodInfo(pod(name, **more))
        self.queue.add(info)
        return info

    def pop(self) -> QueuedPodInfo | None:
        return self.queue.try_pop()

    def next(self) -> str:
        item = self.pop()
        return item.pod_info.name if item is not None else ""

    def fail(self) -> QueuedPodInfo:
        """The next pod fits nowhere."""
        item = self.pop()
        assert item is not None
        self.queue.add_unschedulable_if_not_present(item, self.queue.scheduling_cycle)
        return item


@pytest.fixture
def harness() -> QueueHarness:
    async def make() -> QueueHarness:
        return QueueHarness()

    return asyncio.run(make())


def test_priority_then_first_come(harness: QueueHarness) -> None:
    for name, priority in (("a", 0), ("b", 10), ("c", 0), ("d", 10)):
        harness.add(name, priority=priority)
        harness.clock.advance(0.1)
    assert [harness.next() for _ in range(5)] == ["b", "d", "a", "c", ""]


def test_a_pod_that_fits_nowhere_waits_for_news(harness: QueueHarness) -> None:
    harness.add("a")
    harness.fail()
    harness.clock.advance(59)
    harness.queue.flush_backoff()
    harness.queue.flush_unschedulable()
    assert harness.next() == ""
    harness.queue.move_all_to_active_or_backoff()
    assert harness.next() == "a"


def test_after_a_minute_it_is_tried_anyway(harness: QueueHarness) -> None:
    harness.add("a")
    harness.fail()
    harness.clock.advance(60)
    harness.queue.flush_unschedulable()
    assert harness.next() == ""
    harness.clock.advance(0.001)
    harness.queue.flush_unschedulable()
    assert harness.next() == "a"


def test_backoff_doubles_up_to_ten_seconds(harness: QueueHarness) -> None:
    harness.add("a")
    for wait in (1, 2, 4, 8, 10, 10):
        harness.fail()
        harness.queue.move_all_to_active_or_backoff()
        assert (harness.queue.backing_off, harness.queue.unschedulable) == (1, 0)
        harness.clock.advance(wait - 0.01)
        harness.queue.flush_backoff()
        assert not harness.queue.active
        harness.clock.advance(0.01)
        harness.queue.flush_backoff()
        assert harness.queue.active == 1


def test_news_during_an_attempt_are_not_missed(harness: QueueHarness) -> None:
    harness.add("a")
    item = harness.pop()
    assert item is not None
    harness.queue.move_all_to_active_or_backoff()  # a node came while the pod was looked at
    harness.queue.add_unschedulable_if_not_present(item, harness.queue.scheduling_cycle)
    assert (harness.queue.backing_off, harness.queue.unschedulable) == (1, 0)


def test_old_news_do_not_count(harness: QueueHarness) -> None:
    harness.add("a")
    harness.queue.move_all_to_active_or_backoff()
    harness.fail()
    assert (harness.queue.backing_off, harness.queue.unschedulable) == (0, 1)


@pytest.mark.parametrize(
    ("change", "active"),
    [
        (lambda p: p["status"].update(phase="Pending"), 0),
        (lambda p: p["metadata"].update(resourceVersion="9"), 0),
        (lambda p: p["metadata"].update(labels={"x": "y"}), 1),
        (lambda p: p["spec"].update(tolerations=[{"operator": "Exists"}]), 1),
    ],
)
def test_a_changed_pod_is_tried_at_once(
    harness: QueueHarness, change: Callable[[Any], None], active: int
) -> None:
    old = harness.add("a")
    harness.fail()
    new = pod("a")
    change(new)
    harness.queue.update(old, PodInfo(new))
    assert harness.queue.active == active


def test_an_update_ends_a_backoff(harness: QueueHarness) -> None:
    old = harness.add("a")
    harness.fail()
    harness.queue.move_all_to_active_or_backoff()
    harness.queue.update(old, PodInfo(pod("a", labels={"x": "y"})))
    item = harness.pop()
    assert item is not None and item.pod_info.identity.labels == {"x": "y"} and item.attempts == 2


def test_a_pod_that_runs_helps_those_that_want_to_be_near_it(harness: QueueHarness) -> None:
    harness.add("near", affinity={"podAffinity": required(term({"app": "x"}, "zone"))})
    harness.add("other")
    harness.fail()
    harness.fail()
    harness.clock.advance(2)
    harness.queue.assigned_pod_added(PodInfo(pod("y", labels={"app": "y"}, node_name="n")))
    assert harness.queue.active == 0
    harness.queue.assigned_pod_added(PodInfo(pod("x", labels={"app": "x"}, node_name="n")))
    assert harness.next() == "near" and harness.queue.unschedulable == 1


def test_a_deleted_pod_is_nowhere(harness: QueueHarness) -> None:
    for name in "abc":
        harness.add(name)
    harness.fail()  # a is set aside
    for name in "abc":
        harness.queue.delete(f"default/{name}", f"uid-default-{name}")
    harness.clock.advance(100)
    harness.queue.flush_unschedulable()
    assert harness.next() == ""


async def test_pop_waits_for_a_pod() -> None:
    harness = QueueHarness()
    waiting = asyncio.create_task(harness.queue.pop())
    await asyncio.sleep(0)
    assert not waiting.done()
    harness.add("a")
    assert (await waiting).pod_info.name == "a"


def test_promises(harness: QueueHarness) -> None:
    info = PodInfo(pod("a", status={"nominatedNodeName": "n1"}))
    harness.nominator.add_nominated_pod(info)
    assert [p.name for p in harness.nominator.nominated_pods_for_node("n1")] == ["a"]
    harness.nominator.add_nominated_pod(info, "n2")
    assert not harness.nominator.nominated_pods_for_node("n1") and harness.nominator.nodes == ["n2"]
    # A status that loses its nomination loses the promise; one that never showed it does not.
    harness.nominator.update_nominated_pod(info, PodInfo(pod("a")))
    assert not harness.nominator
    plain = PodInfo(pod("b"))
    harness.nominator.add_nominated_pod(plain, "n3")
    harness.nominator.update_nominated_pod(plain, PodInfo(pod("b", labels={"x": "y"})))
    assert [p.identity.labels for p in harness.nominator.nominated_pods_for_node("n3")] == [
        {"x": "y"}
    ]
