"""Workloads under lost calls, lost answers, conflicts, cut watches and restarts: the end is always
the desired state.
"""

from __future__ import annotations

import pytest

from transom.client.api import STRATEGIC_PATCH
from transom.client.resources import DAEMON_SETS, DEPLOYMENTS, PODS, REPLICA_SETS, STATEFUL_SETS
from transom.machinery.objects import Object

from .workloads import (
    FaultyPlane,
    add_nodes,
    all_ready,
    faulty_plane,
    names,
    node,
    pods,
    run,
    workload,
)

KINDS = ("deployment", "replicaset", "statefulset", "daemonset")
IMAGE = {"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "app:2"}]}}}}


async def restart_sometimes(plane: FaultyPlane) -> None:
    if plane.faults.rng.random() < 0.3:
        await plane.clock.run_for(0.001, turns=plane.faults.rng.randrange(60))
        await plane.stop_controllers()
        plane.start_controllers()


def busy(found: list[Object]) -> list[Object]:
    return [p for p in found if p["metadata"].get("deletionTimestamp") is None]


@pytest.mark.parametrize("seed", range(4))
async def test_everything_ends_well(seed: int) -> None:
    async with run(), faulty_plane(seed, *KINDS) as plane:
        await add_nodes(plane, node("lin1"), node("win1", windows=True))
        plane.faults.rate = 0.15
        await plane.client.create(DEPLOYMENTS, "default", workload("web", replicas=5))
        await plane.client.create(
            STATEFUL_SETS, "default", workload("db", replicas=3, serviceName="x")
        )
        await plane.client.create(DAEMON_SETS, "default", workload("agent"))
        for step in range(12):
            await restart_sometimes(plane)
            await plane.settle(2)
            if step % 3 == 0:
                await all_ready(plane)
            if step == 4:
                for resource, name in (
                    (DEPLOYMENTS, "web"),
                    (STATEFUL_SETS, "db"),
                    (DAEMON_SETS, "agent"),
                ):
                    await plane.client.patch(resource, "default", name, IMAGE, STRATEGIC_PATCH)
            if step == 7:
                victim = plane.faults.rng.choice(await names(plane))
                await plane.client.delete(PODS, "default", victim)
        plane.faults.rate = 0.0
        for _ in range(8):
            await plane.settle(400)  # longer than any expectation lasts
            await all_ready(plane)
        found = {label: await pods(plane, f"app={label}") for label in ("web", "db", "agent")}
        assert {label: len(busy(each)) for label, each in found.items()} == {
            "web": 5,
            "db": 3,
            "agent": 1,
        }
        images = {p["spec"]["containers"][0]["image"] for each in found.values() for p in each}
        assert images == {"app:2"}
        for resource, name, count in (
            (DEPLOYMENTS, "web", "readyReplicas"),
            (STATEFUL_SETS, "db", "readyReplicas"),
            (DAEMON_SETS, "agent", "numberReady"),
        ):
            obj = await plane.get(resource, "default", name)
            assert obj["status"]["observedGeneration"] == obj["metadata"]["generation"]
            assert obj["status"][count] == len(found[name])


async def test_a_cut_watch_makes_no_pod_twice() -> None:
    async with run(), faulty_plane(1, "replicaset") as plane:
        await plane.client.create(REPLICA_SETS, "default", workload("web", replicas=20))
        plane.faults.rate = 1.0  # no watch lives, no write succeeds
        await plane.settle(1)
        plane.faults.rate = 0.0
        await plane.settle(1)
        most = len(await pods(plane))
        await plane.settle(1000)
        assert most <= 20 and len(await pods(plane)) == 20
