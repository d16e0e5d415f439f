"""The nodes in `transom upgrade`: drained within disruption budgets, restarted, uncordoned."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.controllers.conftest import Plane, running_control_plane

from transom.client.resources import (
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    SERVICE_ACCOUNTS,
)
from transom.cluster.ha.rolling import RollingRestart, installed_since, is_drained
from transom.kit.user_errors import UserError
from transom.machinery.objects import Object

NS = "default"
LABELS = {"app": "web"}
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
POD_SPEC = {"containers": [{"name": "c", "image": "i"}]}
STAYING = ["agent", "bare", "done", "static"]


def owned_by(kind: str) -> Object:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "1", "controller": True}
    return {"ownerReferences": [owner]}


class TwoNodes:
    """Two nodes with a scheduler and kubelets as simple as possible. A ReplicaSet has two pods on
    the first, beside pods that stay when it is drained.
    """

    def __init__(self, plane: Plane) -> None:
        self.client = plane.client
        self.clock = plane.clock
        self.settle = plane.settle
        self.restarts: list[tuple[str, bool, list[str]]] = []  # node, whether cordoned, its pods
        self.reports: list[str] = []
        self.fewest_ready = 2

    async def populate(self, min_available: int, *, cordoned: bool) -> None:
        client = self.client
        for name in ("n1", "n2"):
            spec = {"unschedulable": (cordoned and name == "n1") or None}
            await client.create(NODES, "", {"metadata": {"name": name}, "spec": spec})
        account = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
        await client.create(SERVICE_ACCOUNTS, NS, account)
        mirror = {"annotations": {"kubernetes.io/config.mirror": "x"}}
        for name, meta in (
            ("agent", owned_by("DaemonSet")),
            ("bare", {}),
            ("done", owned_by("Job")),
            ("static", mirror),
        ):
            pod = {"metadata": {"name": name, **meta}, "spec": {**POD_SPEC, "nodeName": "n1"}}
            await client.create(PODS, NS, pod)
            status = {"phase": "Succeeded"} if name == "done" else READY
            await client.patch(PODS, NS, name, {"status": status}, subresource="status")
        selector = {"matchLabels": LABELS}
        template = {"metadata": {"labels": LABELS}, "spec": POD_SPEC}
        pods = {"replicas": 2, "selector": selector, "template": template}
        await client.create(REPLICA_SETS, NS, {"metadata": {"name": "web"}, "spec": pods})
        budget = {"selector": selector, "minAvailable": min_available}
        await client.create(
            POD_DISRUPTION_BUDGETS, NS, {"metadata": {"name": "web"}, "spec": budget}
        )
        for _ in range(10):  # until the ReplicaSet's pods run, on the first node
            await self.run_pods("n1")
            await self.settle(0.3)

    async def pods_on(self, node: str) -> list[str]:
        found = await self.client.list(PODS, NS)
        return [p["metadata"]["name"] for p in found.items if p["spec"].get("nodeName") == node]

    async def run_pods(self, place: str = "") -> None:
        ready = 0
        for pod in (await self.client.list(PODS, NS)).items:
            name = pod["metadata"]["name"]
            if "deletionTimestamp" in pod["metadata"]:
                await self.client.delete(PODS, NS, name, grace=0)
            elif not pod["spec"].get("nodeName"):
                node = place or await self._schedulable()
                target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
                await self.client.create_subresource(PODS, NS, name, "binding", target)
                await self.client.patch(PODS, NS, name, {"status": READY}, subresource="status")
            elif pod["metadata"].get("labels") == LABELS:
                ready += 1
        if not place:
            self.fewest_ready = min(self.fewest_ready, ready)

    async def _schedulable(self) -> str:
        nodes = (await self.client.list(NODES)).items
        return next(n["metadata"]["name"] for n in nodes if not n["spec"].get("unschedulable"))

    async def is_cordoned(self, name: str) -> bool:
        node = await self.client.get(NODES, "", name)
        return bool(node["spec"].get("unschedulable"))

    async def restart(self, name: str) -> None:
        cordoned = name.startswith("n") and await self.is_cordoned(name)
        self.restarts.append((name, cordoned, await self.pods_on(name)))

    def restarted(self, drain_seconds: float = 60.0) -> RollingRestart:
        return RollingRestart(
            self.client, self.clock, self.restart, self.reports.append, drain_seconds
        )

    async def while_kubelets_run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        while not task.done():
            await self.run_pods()
            await self.settle(0.3)
        await task


@asynccontextmanager
async def two_nodes(min_available: int, *, cordoned: bool = False) -> AsyncIterator[TwoNodes]:
    async with asyncio.timeout(60), running_control_plane(("disruption", "replicaset")) as plane:
        nodes = TwoNodes(plane)
        await nodes.populate(min_available, cordoned=cordoned)
        assert len(await nodes.pods_on("n1")) == len(STAYING) + 2
        yield nodes


async def test_nodes_are_drained_restarted_and_uncordoned_in_turn() -> None:
    async with two_nodes(min_available=1) as nodes:
        await nodes.while_kubelets_run(nodes.restarted().run(["n1", "n2"]))
        (first, cordoned, pods), (second, cordoned_too, no_pods) = nodes.restarts
        assert (first, cordoned, sorted(pods)) == ("n1", True, STAYING)
        # The pods of the first were on the second, and moved back.
        assert (second, cordoned_too, no_pods) == ("n2", True, [])
        assert len(await nodes.pods_on("n1")) == len(STAYING) + 2
        assert not await nodes.is_cordoned("n1") and not await nodes.is_cordoned("n2")
        assert nodes.fewest_ready >= 1
        assert nodes.reports == [
            f"{name} is drained (2 pods evicted) and restarted" for name in ("n1", "n2")
        ]


async def test_a_budget_that_allows_no_eviction_ends_it() -> None:
    async with two_nodes(min_available=2) as nodes:
        with pytest.raises(UserError) as caught:
            await nodes.while_kubelets_run(nodes.restarted(5).run(["n1", "n2"]))
        assert "node n1 is not drained after 5 s: pod default/web-" in caught.value.message
        assert "violate the pod's disruption budget" in caught.value.message
        assert nodes.restarts == [] and nodes.fewest_ready == 2
        assert not await nodes.is_cordoned("n1")


async def test_an_interrupted_drain_leaves_no_node_cordoned() -> None:
    async with two_nodes(min_available=2) as nodes:
        draining = asyncio.ensure_future(nodes.restarted().run(["n1"]))
        while not await nodes.is_cordoned("n1"):
            await nodes.settle(0.1)
        draining.cancel()
        await asyncio.wait((draining,))
        assert not await nodes.is_cordoned("n1") and nodes.restarts == []


async def test_a_node_that_the_user_cordoned_stays_cordoned() -> None:
    async with two_nodes(min_available=1, cordoned=True) as nodes:
        await nodes.while_kubelets_run(nodes.restarted().run(["n1"]))
        assert nodes.restarts == [("n1", True, STAYING)]
        assert await nodes.is_cordoned("n1")


async def test_a_machine_without_a_node_object_is_restarted() -> None:
    async with two_nodes(min_available=1) as nodes:
        await nodes.restarted().run(["machine"])
        assert nodes.restarts == [("machine", False, [])]
        assert nodes.reports == [
            "machine is restarted; it has no Node object, so it was not drained"
        ]


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "Job", "Operator"])
def test_pods_that_a_controller_replaces_are_drained(kind: str) -> None:
    assert is_drained({"metadata": owned_by(kind)})
    assert not is_drained({"metadata": owned_by(kind), "status": {"phase": "Failed"}})


def test_installed_files_are_found_by_their_time() -> None:
    assert installed_since(0)
    assert not installed_since(time.time() + 60)
