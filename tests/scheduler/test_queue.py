"""The queue: who is next, who has to wait, and what moves whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from transom.kit.clock import VirtualClock
from transom.scheduler.nominator import Nominator
from transom.scheduler.pods import PodInfo
from transom.scheduler.queue import SchedulingQueue, Waiting

from .objects import pod, required, term


class Bed:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.nominator = Nominator()
        self.queue = SchedulingQueue(self.clock, self.nominator)

    def add(self, name: str, **more: Any) -> PodInfo:
        info = PodInfo(pod(name, **more))
        self.queue.add(info)
        return info

    def pop(self) -> Waiting | None:
        return self.queue.try_pop()

    def next(self) -> str:
        item = self.pop()
        return item.info.name if item is not None else ""

    def fail(self) -> Waiting:
        """The next pod fits nowhere."""
        item = self.pop()
        assert item is not None
        self.queue.put_back(item, self.queue.cycle)
        return item


@pytest.fixture
def bed() -> Bed:
    async def make() -> Bed:
        return Bed()

    return asyncio.run(make())


def test_priority_then_first_come(bed: Bed) -> None:
    for name, priority in (("a", 0), ("b", 10), ("c", 0), ("d", 10)):
        bed.add(name, priority=priority)
        bed.clock.advance(0.1)
    assert [bed.next() for _ in range(5)] == ["b", "d", "a", "c", ""]


def test_a_pod_that_fits_nowhere_waits_for_news(bed: Bed) -> None:
    bed.add("a")
    bed.fail()
    bed.clock.advance(59)
    bed.queue.flush_backoff()
    bed.queue.flush_unschedulable()
    assert bed.next() == ""
    bed.queue.move_all()
    assert bed.next() == "a"


def test_after_a_minute_it_is_tried_anyway(bed: Bed) -> None:
    bed.add("a")
    bed.fail()
    bed.clock.advance(60)
    bed.queue.flush_unschedulable()
    assert bed.next() == ""
    bed.clock.advance(0.001)
    bed.queue.flush_unschedulable()
    assert bed.next() == "a"


def test_backoff_doubles_up_to_ten_seconds(bed: Bed) -> None:
    bed.add("a")
    for wait in (1, 2, 4, 8, 10, 10):
        bed.fail()
        bed.queue.move_all()
        assert (bed.queue.backing_off, bed.queue.unschedulable) == (1, 0)
        bed.clock.advance(wait - 0.01)
        bed.queue.flush_backoff()
        assert not bed.queue.active
        bed.clock.advance(0.01)
        bed.queue.flush_backoff()
        assert bed.queue.active == 1


def test_news_during_an_attempt_are_not_missed(bed: Bed) -> None:
    bed.add("a")
    item = bed.pop()
    assert item is not None
    bed.queue.move_all()  # a node came while the pod was looked at
    bed.queue.put_back(item, bed.queue.cycle)
    assert (bed.queue.backing_off, bed.queue.unschedulable) == (1, 0)


def test_old_news_do_not_count(bed: Bed) -> None:
    bed.add("a")
    bed.queue.move_all()
    bed.fail()
    assert (bed.queue.backing_off, bed.queue.unschedulable) == (0, 1)


@pytest.mark.parametrize(("change", "active"), [
    (lambda p: p["status"].update(phase="Pending"), 0),
    (lambda p: p["metadata"].update(resourceVersion="9"), 0),
    (lambda p: p["metadata"].update(labels={"x": "y"}), 1),
    (lambda p: p["spec"].update(tolerations=[{"operator": "Exists"}]), 1),
])
def test_a_changed_pod_is_tried_at_once(bed: Bed, change: Callable[[Any], None], active: int) -> None:
    old = bed.add("a")
    bed.fail()
    new = pod("a")
    change(new)
    bed.queue.update(old, PodInfo(new))
    assert bed.queue.active == active


def test_an_update_ends_a_backoff(bed: Bed) -> None:
    old = bed.add("a")
    bed.fail()
    bed.queue.move_all()
    bed.queue.update(old, PodInfo(pod("a", labels={"x": "y"})))
    item = bed.pop()
    assert item is not None and item.info.identity.labels == {"x": "y"} and item.attempts == 2


def test_a_pod_that_runs_helps_those_that_want_to_be_near_it(bed: Bed) -> None:
    bed.add("near", affinity={"podAffinity": required(term({"app": "x"}, "zone"))})
    bed.add("other")
    bed.fail()
    bed.fail()
    bed.clock.advance(2)
    bed.queue.assigned(PodInfo(pod("y", labels={"app": "y"}, node_name="n")))
    assert bed.queue.active == 0
    bed.queue.assigned(PodInfo(pod("x", labels={"app": "x"}, node_name="n")))
    assert bed.next() == "near" and bed.queue.unschedulable == 1


def test_a_deleted_pod_is_nowhere(bed: Bed) -> None:
    for name in "abc":
        bed.add(name)
    bed.fail()  # a is set aside
    for name in "abc":
        bed.queue.delete(f"default/{name}", f"uid-default-{name}")
    bed.clock.advance(100)
    bed.queue.flush_unschedulable()
    assert bed.next() == ""


def test_pop_waits_for_a_pod() -> None:
    async def main() -> None:
        bed = Bed()
        waiting = asyncio.create_task(bed.queue.pop())
        await asyncio.sleep(0)
        assert not waiting.done()
        bed.add("a")
        assert (await waiting).info.name == "a"

    asyncio.run(main())


def test_promises(bed: Bed) -> None:
    info = PodInfo(pod("a", status={"nominatedNodeName": "n1"}))
    bed.nominator.add(info)
    assert [p.name for p in bed.nominator.on("n1")] == ["a"]
    bed.nominator.add(info, "n2")
    assert not bed.nominator.on("n1") and bed.nominator.nodes == ["n2"]
    # A status that loses its nomination loses the promise; one that never showed it does not.
    bed.nominator.update(info, PodInfo(pod("a")))
    assert not bed.nominator
    plain = PodInfo(pod("b"))
    bed.nominator.add(plain, "n3")
    bed.nominator.update(plain, PodInfo(pod("b", labels={"x": "y"})))
    assert [p.identity.labels for p in bed.nominator.on("n3")] == [{"x": "y"}]
