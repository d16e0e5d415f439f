"""The scheduler in a cluster on virtual time: what it writes, what it waits for, and how it
recovers from failures.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.client.api import ApiUnreachable
from transom.client.resources import NODES, PODS, PRIORITY_CLASSES
from transom.machinery import errors
from transom.machinery.errors import GroupResource
from transom.scheduler.explain import explain_pod
from transom.scheduler.scheduler import Scheduler

from .objects import node, pod

Play = Callable[..., None]


def condition(found: dict[str, Any]) -> dict[str, Any]:
    return next(c for c in found["status"]["conditions"] if c["type"] == "PodScheduled")


async def test_a_pod_gets_its_node_and_says_so(running_cluster: ContextFactory) -> None:
    async with running_cluster() as cluster:
        await cluster.add_node(node("a"))
        await cluster.add_pod(pod("p"))
        await cluster.settle()
        found = await cluster.pod("p")
        assert found["spec"]["nodeName"] == "a" and condition(found)["status"] == "True"
        (event,) = await cluster.events("p")
        assert {
            k: event.get(k)
            for k in ("type", "reason", "message", "action", "reportingComponent", "source")
        } == {
            "type": "Normal",
            "reason": "Scheduled",
            "message": "Successfully assigned default/p to a",
            "action": "Binding",
            "reportingComponent": "default-scheduler",
            "source": {},
        }


async def test_a_pod_that_fits_nowhere_says_why_and_comes_when_it_can(
    running_cluster: ContextFactory,
) -> None:
    async with running_cluster() as cluster:
        await cluster.add_pod(pod("p", cpu="2"))
        await cluster.settle()
        found = condition(await cluster.pod("p"))
        assert (found["status"], found["reason"], found["message"]) == (
            "False",
            "Unschedulable",
            "no nodes available to schedule pods",
        )
        await cluster.add_node(node("a", cpu="1"))
        await cluster.settle(2)
        found = condition(await cluster.pod("p"))
        assert found["message"] == "0/1 nodes are available: 1 Insufficient cpu."
        event = (await cluster.events("p"))[0]
        assert (event["type"], event["reason"], event["action"]) == (
            "Warning",
            "FailedScheduling",
            "Scheduling",
        )
        await cluster.client.patch(
            NODES, "", "a", {"status": {"allocatable": {"cpu": "4"}}}, subresource="status"
        )
        await cluster.settle(11)
        assert await cluster.node_of("p") == "a"


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"unschedulable": None}},
        {"spec": {"taints": None}},
        {"metadata": {"labels": {"disk": "ssd"}}},
    ],
)
async def test_what_changes_on_a_node_helps_waiting_pods(
    running_cluster: ContextFactory, change: dict[str, Any]
) -> None:
    async with running_cluster() as cluster:
        await cluster.add_node(
            node("a", taints=[{"key": "t", "effect": "NoSchedule"}], unschedulable=True)
        )
        await cluster.add_pod(pod("p", nodeSelector={"disk": "ssd"}))
        await cluster.settle()
        changes = [
            {"spec": {"unschedulable": None}},
            {"spec": {"taints": None}},
            {"metadata": {"labels": {"disk": "ssd"}}},
        ]
        for patch in [c for c in changes if c != change]:
            await cluster.client.patch(NODES, "", "a", patch)
        await cluster.settle(12)
        assert await cluster.node_of("p") == ""
        await cluster.client.patch(NODES, "", "a", change)
        await cluster.settle(11)
        assert await cluster.node_of("p") == "a"


async def test_other_schedulers_pods_are_left_alone(running_cluster: ContextFactory) -> None:
    async with running_cluster() as cluster:
        await cluster.add_node(node("a", cpu="1"))
        await cluster.add_pod(pod("p", schedulerName="mine"))
        await cluster.settle()
        assert await cluster.node_of("p") == "" and not (await cluster.pod("p"))["status"].get(
            "conditions"
        )


async def test_preemption_promises_the_room(running_cluster: ContextFactory) -> None:
    async with running_cluster() as cluster:
        await cluster.client.create(
            PRIORITY_CLASSES, "", {"metadata": {"name": "high"}, "value": 1000}
        )
        await cluster.add_node(node("a", cpu="1"))
        await cluster.add_pod(pod("victim", cpu="1", terminationGracePeriodSeconds=30))
        await cluster.settle()
        await cluster.add_pod(pod("boss", cpu="1", priorityClassName="high"))
        await cluster.settle()
        found = await cluster.pod("boss")
        assert found["status"]["nominatedNodeName"] == "a"
        assert condition(found)["message"] == "0/1 nodes are available: 1 Insufficient cpu."
        assert (await cluster.pod("victim"))["metadata"]["deletionGracePeriodSeconds"] == 30
        recorded = next(e for e in await cluster.events("victim") if e["reason"] == "Preempted")
        assert (recorded["type"], recorded["action"]) == ("Normal", "Preempting")
        assert recorded["message"] == "Preempted by default/boss on node a"
        assert recorded["related"]["name"] == "boss"
        # No pod of lower priority gets in while the room becomes free.
        await cluster.add_pod(pod("late", cpu="1"))
        await cluster.client.delete(PODS, "default", "victim", grace=0)
        await cluster.settle(12)
        assert await cluster.node_of("boss") == "a" and await cluster.node_of("late") == ""
        assert (await cluster.pod("boss"))["status"]["nominatedNodeName"] == "a"


class Troubled:
    """A client whose bindings fail for a while: refused, or not answered after they were written."""

    def __init__(self, inner: Any, rng: random.Random, failures: int) -> None:
        self._inner = inner
        self._rng = rng
        self.left = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def create_subresource(self, *args: Any) -> Any:
        if self.left > 0 and self._rng.random() < 0.5:
            self.left -= 1
            if self._rng.random() < 0.5:
                raise errors.conflict(GroupResource("", "pods/binding"), args[2], "try again")
            if self._rng.random() < 0.5:
                await self._inner.create_subresource(*args)
            raise ApiUnreachable("the connection is lost")
        return await self._inner.create_subresource(*args)


@pytest.mark.parametrize("seed", range(6))
async def test_bindings_that_fail_are_tried_again(
    running_cluster: ContextFactory, seed: int
) -> None:
    async with running_cluster(started=False, seed=seed) as cluster:
        cluster.start(Troubled(cluster.own_client(), random.Random(seed), 15))
        for i in range(3):
            await cluster.add_node(node(f"n{i}", cpu="2"))
        for i in range(12):
            await cluster.add_pod(pod(f"p{i}", cpu="500m"))
        # A pod whose binding failed waits like one that fits nowhere: for news, or for a minute and a bit.
        await cluster.settle(600)
        used = Counter([await cluster.node_of(f"p{i}") for i in range(12)])
        assert used == {"n0": 4, "n1": 4, "n2": 4}


@pytest.mark.parametrize("seed", range(8))
async def test_a_crash_at_any_moment_loses_no_pod_and_fills_no_node_twice(
    running_cluster: ContextFactory, seed: int
) -> None:
    async with running_cluster(started=False, seed=seed) as cluster:
        rng = random.Random(seed)
        for i in range(4):
            await cluster.add_node(node(f"n{i}", cpu="2", pods="4"))
        made = 0
        while made < 14:
            cluster.start()
            for _ in range(rng.randint(1, 4)):
                await cluster.add_pod(pod(f"p{made}", cpu="500m"))
                made += 1
            for _ in range(rng.randrange(60)):
                await asyncio.sleep(0)
            await cluster.stop()
        cluster.start()
        await cluster.settle(5)
        used = Counter([await cluster.node_of(f"p{i}") for i in range(made)])
        assert used.pop("", 0) == max(0, made - 16) and max(used.values()) <= 4


async def test_a_pod_deleted_between_decision_and_binding_frees_its_place(
    running_cluster: ContextFactory,
) -> None:
    async with running_cluster(started=False) as cluster:
        gate = asyncio.Event()

        class Slow(Troubled):
            async def create_subresource(self, *args: Any) -> Any:
                if args[2] == "first":
                    await gate.wait()
                return await self._inner.create_subresource(*args)

        cluster.start(Slow(cluster.own_client(), random.Random(1), 0))
        await cluster.add_node(node("a", cpu="1"))
        await cluster.add_pod(pod("first", cpu="1"))
        await cluster.settle()
        await cluster.add_pod(pod("second", cpu="1"))
        await cluster.settle()
        assert await cluster.node_of("second") == ""
        await cluster.client.delete(PODS, "default", "first", grace=0)
        await cluster.settle(3)
        assert await cluster.node_of("second") == "a"
        gate.set()
        await cluster.settle()
        assert cluster.scheduler is not None and cluster.scheduler.snapshot.used_cpu.sum() == 1000


async def test_an_assumed_pod_that_never_shows_up_expires(running_cluster: ContextFactory) -> None:
    async with running_cluster(started=False) as cluster:

        class Liar(Troubled):
            async def create_subresource(self, *_args: Any) -> Any:
                return {}  # says it has written the binding

        cluster.start(Liar(cluster.own_client(), random.Random(1), 0))
        await cluster.add_node(node("a", cpu="1"))
        await cluster.add_pod(pod("p", cpu="1"))
        await cluster.settle()
        assert cluster.scheduler is not None and cluster.scheduler.snapshot.used_cpu.sum() == 1000
        await cluster.settle(122)
        assert cluster.scheduler.snapshot.used_cpu.sum() == 0


async def test_repeated_failures_are_one_series(running_cluster: ContextFactory) -> None:
    async with running_cluster() as cluster:
        await cluster.add_node(node("a", cpu="1"))
        await cluster.add_pod(pod("p", cpu="2"))
        await cluster.settle(400)
        found = [e for e in await cluster.events("p") if e["reason"] == "FailedScheduling"]
        # One about the pod as it was made, one about the pod that says it is unschedulable; repeats are counted.
        assert len(found) == 2 and found[1]["series"]["count"] >= 1


async def test_an_explanation_is_what_the_scheduler_would_do(
    running_cluster: ContextFactory,
) -> None:
    async with running_cluster() as cluster:
        await cluster.add_node(node("a"))
        await cluster.add_node(node("b", cpu="1"))
        await cluster.add_node(node("c", cpu="1", unschedulable=True))
        await cluster.add_pod(pod("p", cpu="2"))
        await cluster.add_pod(pod("q", cpu="8"))
        await cluster.settle()
        onlooker = Scheduler(cluster.own_client(), cluster.clock, cluster.rng)
        found = await explain_pod(onlooker, cluster.client, "default", "p")
        assert found.node == "a" and [n.name for n in found.best()] == ["a"]
        refused = {n.name: n.reasons for n in found.nodes if n.reasons}
        assert refused == {
            "b": {"NodeResourcesFit": ["Insufficient cpu"]},
            "c": {
                "NodeUnschedulable": ["node(s) were unschedulable"],
                "NodeResourcesFit": ["Insufficient cpu"],
            },
        }
        assert found.best()[0].scores["NodePreferAvoidPods"] == (100, 10000)
        onlooker = Scheduler(cluster.own_client(), cluster.clock, cluster.rng)
        found = await explain_pod(onlooker, cluster.client, "default", "q")
        assert found.message == condition(await cluster.pod("q"))["message"] and not found.best()
