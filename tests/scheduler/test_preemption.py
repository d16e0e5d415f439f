"""Which pods are preempted, and on which node: single decisions; events and nominations are in
test_life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from transom.client.resources import POD_DISRUPTION_BUDGETS
from transom.scheduler.framework import CycleState, FitError
from transom.scheduler.pods import PodInfo
from transom.scheduler.preemption import Candidate, pick_one_node_for_preemption

from .conftest import SchedulerHarness
from .objects import Object, node, pod, required, term

HOST = "kubernetes.io/hostname"


class Client:
    """Remembers what was deleted."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.patched: list[str] = []

    async def delete(self, _resource: object, _namespace: str, name: str) -> None:
        self.deleted.append(name)

    async def patch(
        self, _resource: object, _namespace: str, name: str, *_args: object, **_more: object
    ) -> None:
        self.patched.append(name)


def preempt(harness: SchedulerHarness, wanted: Object) -> tuple[str, list[str]]:
    """The node, and who goes."""
    scheduler = harness.scheduler
    profile = scheduler.profiles["default-scheduler"]
    client = profile.client = Client()  # type: ignore[assignment]
    scheduler.pods._put(f"default/{wanted['metadata']['name']}", wanted)
    before = harness.snapshot.used_cpu.copy()
    state, info = CycleState(), PodInfo(wanted)
    with pytest.raises(FitError) as error:
        scheduler.algorithm.schedule(profile, state, info)
    statuses = error.value.filtered_nodes_statuses
    result, _ = asyncio.run(profile.run_post_filter_plugins(state, info, statuses))
    assert (harness.snapshot.used_cpu == before).all()  # all that was only tried is undone
    return (result.nominated_node_name if result else ""), sorted(client.deleted)


def running(
    name: str, where: str, cpu: str, priority: int = 0, start: int = 0, **more: object
) -> Object:
    status = {"startTime": f"2020-01-01T00:00:{start:02}Z"}
    return pod(name, cpu=cpu, node_name=where, priority=priority, status=status, **more)  # type: ignore[arg-type]


def test_only_lower_priorities_and_only_as_many_as_needed(harness: SchedulerHarness) -> None:
    harness.nodes(node("a", cpu="4"))
    harness.running(
        running("low1", "a", "1", 1),
        running("low2", "a", "1", 2),
        running("mid", "a", "1", 50),
        running("high", "a", "1", 1000),
    )
    assert preempt(harness, pod("p", cpu="1", priority=100)) == ("a", ["low1"])
    assert preempt(harness, pod("p", cpu="2", priority=100)) == ("a", ["low1", "low2"])
    assert preempt(harness, pod("p", cpu="4", priority=100)) == ("", [])
    assert preempt(harness, pod("p", cpu="1", priority=1)) == ("", [])


def test_equal_priorities_the_youngest_goes(harness: SchedulerHarness) -> None:
    harness.nodes(node("a", cpu="2"))
    harness.running(running("old", "a", "1", start=1), running("young", "a", "1", start=9))
    assert preempt(harness, pod("p", cpu="1", priority=5)) == ("a", ["young"])


def test_never_means_never(harness: SchedulerHarness) -> None:
    harness.nodes(node("a", cpu="1"))
    harness.running(running("x", "a", "1"))
    assert preempt(harness, pod("p", cpu="1", priority=5, preemptionPolicy="Never")) == ("", [])


def test_nodes_that_would_not_do_anyway_are_left_alone(harness: SchedulerHarness) -> None:
    harness.nodes(
        node("a", cpu="1", taints=[{"key": "t", "effect": "NoSchedule"}]), node("b", cpu="1")
    )
    harness.running(running("x", "a", "1"), running("y", "b", "1", 3))
    assert preempt(harness, pod("p", cpu="1", priority=5)) == ("b", ["y"])


def test_a_pod_that_waits_for_victims_preempts_no_others(harness: SchedulerHarness) -> None:
    harness.nodes(node("a", cpu="1"), node("b", cpu="1"))
    going = running("going", "a", "1")
    going["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z"
    harness.running(going, running("y", "b", "1"))
    waiting = pod("p", cpu="1", priority=5, status={"nominatedNodeName": "a"})
    assert preempt(harness, waiting) == ("", [])


def test_disruption_budgets_are_kept_if_possible(harness: SchedulerHarness) -> None:
    def budget(app: str, allowed: int) -> Object:
        return {
            "metadata": {"name": app, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed},
        }

    harness.nodes(node("a", cpu="1"), node("b", cpu="1"))
    harness.running(
        running("x", "a", "1", 1, labels={"app": "kept"}),
        running("y", "b", "1", 3, labels={"app": "free"}),
    )
    harness.put(POD_DISRUPTION_BUDGETS, budget("kept", 0), budget("free", 1))
    assert preempt(harness, pod("p", cpu="1", priority=5)) == ("b", ["y"])
    harness.put(POD_DISRUPTION_BUDGETS, budget("free", 0))
    assert preempt(harness, pod("p", cpu="1", priority=5)) == (
        "a",
        ["x"],
    )  # both break one; x matters less


def test_pods_that_stand_in_the_way_by_affinity(harness: SchedulerHarness) -> None:
    harness.nodes(node("a"))
    harness.running(
        running("x", "a", "1", 1, labels={"app": "x"}),
        running("y", "a", "1", 1, labels={"app": "y"}),
    )
    wanted = pod(
        "p", cpu="1", priority=5, affinity={"podAntiAffinity": required(term({"app": "x"}, HOST))}
    )
    assert preempt(harness, wanted) == ("a", ["x"])


def test_promised_room_is_not_taken_by_equals(harness: SchedulerHarness) -> None:
    harness.nodes(node("a", cpu="2"))
    promised = pod("promised", cpu="2", priority=10)
    harness.scheduler.pods._put("default/promised", promised)
    harness.scheduler.nominator.add_nominated_pod(PodInfo(promised), "a")
    full = "0/1 nodes are available: 1 Insufficient cpu."
    assert harness.decide(pod("p", cpu="1", priority=10)) == full
    assert harness.decide(pod("p", cpu="1", priority=1)) == full
    assert harness.decide(pod("p", cpu="1", priority=11)) == "a"
    assert harness.decide(promised) == "a"


CHOICES: list[tuple[str, Sequence[tuple[Sequence[tuple[int, int]], int]], int]] = [
    # victims as (priority, start) and broken budgets of each node; which node is right
    ("fewest broken budgets", [([(1, 0)], 1), ([(50, 0)], 0)], 1),
    ("lowest highest priority", [([(9, 0), (1, 0)], 0), ([(8, 0), (8, 0), (8, 0)], 0)], 1),
    ("lowest sum", [([(9, 0), (8, 0)], 0), ([(9, 0), (1, 0)], 0)], 1),
    ("fewest", [([(9, 0)], 0), ([(9, 0), (0, 0)], 0)], 0),
    ("latest start of the most important", [([(9, 1)], 0), ([(9, 5)], 0)], 1),
]


@pytest.mark.parametrize(("nodes", "best"), [c[1:] for c in CHOICES], ids=[c[0] for c in CHOICES])
def test_pick_one_node_for_preemption(
    nodes: Sequence[tuple[Sequence[tuple[int, int]], int]], best: int
) -> None:
    candidates = [
        Candidate(
            str(i),
            [PodInfo(running(f"v{i}{j}", "n", "1", p, s)) for j, (p, s) in enumerate(victims)],
            violations,
        )
        for i, (victims, violations) in enumerate(nodes)
    ]
    assert pick_one_node_for_preemption(candidates, 0.0).node_name == str(best)
