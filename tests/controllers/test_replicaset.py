"""ReplicaSets and ReplicationControllers maintain their replicas, adopt matching pods, and report
their status.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.client.api import STRATEGIC_PATCH
from transom.client.resources import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, RESOURCE_QUOTAS
from transom.controllers.replicaset import _to_delete
from transom.machinery.objects import Object

from .conftest import Plane
from .workloads import (
    ACCOUNTS,
    all_ready,
    events,
    names,
    owners,
    pods,
    report,
    template,
    windows_template,
    workload,
)

Play = Callable[..., None]
SETS = (*ACCOUNTS, "replicaset", "replicationcontroller")


async def status_of(plane: Plane, name: str = "web") -> Object:
    return (await plane.get(REPLICA_SETS, "default", name))["status"]


async def scale(plane: Plane, replicas: int) -> None:
    await plane.client.patch(REPLICA_SETS, "default", "web", {"spec": {"replicas": replicas}})
    await plane.settle()


async def test_pods_are_made_counted_replaced_and_removed(control_plane: ContextFactory) -> None:
    async with control_plane(*SETS) as plane:
        await plane.client.create(REPLICA_SETS, "default", workload(replicas=3))
        await plane.settle()
        made = await pods(plane)
        assert len(made) == 3 and owners(made) == {"web"}
        assert {p["metadata"]["generateName"] for p in made} == {"web-"}
        assert await status_of(plane) == {
            "replicas": 3,
            "fullyLabeledReplicas": 3,
            "observedGeneration": 1,
        }
        await all_ready(plane)
        assert (await status_of(plane))["availableReplicas"] == 3
        await plane.client.delete(PODS, "default", made[0]["metadata"]["name"])
        await report(plane, made[1], "Failed")
        await plane.settle()
        # the failed one stays
        assert len(await pods(plane)) == 4 and (await status_of(plane))["replicas"] == 3
        await scale(plane, 0)
        assert await names(plane) == [made[1]["metadata"]["name"]]
        assert await status_of(plane) == {"replicas": 0, "observedGeneration": 2}
        recorded = await events(plane, "ReplicaSet")
        assert (
            sorted(reason for reason, _ in recorded)
            == ["SuccessfulCreate"] * 5 + ["SuccessfulDelete"] * 3
        )
        assert ("SuccessfulDelete", f"Deleted pod: {made[2]['metadata']['name']}") in recorded


async def test_orphans_are_adopted_and_strangers_released(control_plane: ContextFactory) -> None:
    async with control_plane(*SETS) as plane:
        lone = {**template(), "metadata": {"name": "lone", "labels": {"app": "web"}}}
        await plane.client.create(PODS, "default", lone)
        await plane.client.create(REPLICA_SETS, "default", workload(replicas=2))
        await plane.settle()
        assert len(await pods(plane)) == 2 and owners(await pods(plane)) == {"web"}
        await plane.client.patch(
            PODS, "default", "lone", {"metadata": {"labels": {"app": "debug"}}}
        )
        await plane.settle()
        assert (
            owners(await pods(plane, "app=debug")) == {""}
            and len(await pods(plane, "app=web")) == 2
        )
        # One more orphan makes one too many.
        await plane.client.create(
            PODS, "default", {**lone, "metadata": {"name": "more", "labels": {"app": "web"}}}
        )
        await plane.settle()
        assert len(await pods(plane, "app=web")) == 2


async def test_a_set_that_is_being_deleted_does_nothing(control_plane: ContextFactory) -> None:
    async with control_plane(*SETS) as plane:
        made = workload(replicas=1)
        made["metadata"]["finalizers"] = ["example.com/wait"]
        await plane.client.create(REPLICA_SETS, "default", made)
        await plane.settle()
        await plane.client.delete(REPLICA_SETS, "default", "web", propagation="Background")
        for pod in await pods(plane):
            await plane.client.delete(PODS, "default", pod["metadata"]["name"])
        await plane.settle()
        assert await pods(plane) == [] and (await status_of(plane))["replicas"] == 0


async def test_refusals_become_a_condition_and_go_again(control_plane: ContextFactory) -> None:
    async with control_plane(*SETS, "resourcequota") as plane:
        await plane.client.create(
            RESOURCE_QUOTAS,
            "default",
            {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}},
        )
        await plane.settle()
        await plane.client.create(REPLICA_SETS, "default", workload(replicas=8))
        await plane.settle(0.05)
        (condition,) = (await status_of(plane))["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "ReplicaFailure",
            "True",
            "FailedCreate",
        )
        assert (
            "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1"
            in condition["message"]
        )
        recorded = await events(plane, "ReplicaSet")
        # Batches of 1 and 2; the others are not tried.
        assert any(
            reason == "FailedCreate" and message.startswith('Error creating: pods "web-')
            for reason, message in recorded
        )
        await plane.client.patch(
            RESOURCE_QUOTAS, "default", "few", {"spec": {"hard": {"pods": "20"}}}
        )
        await plane.settle(1100)
        assert "conditions" not in await status_of(plane) and len(await pods(plane)) == 8


async def test_available_is_ready_for_some_time(control_plane: ContextFactory) -> None:
    async with control_plane(*SETS) as plane:
        await plane.client.create(REPLICA_SETS, "default", workload(replicas=1, minReadySeconds=10))
        await plane.settle()
        await all_ready(plane)
        status = await status_of(plane)
        assert status["readyReplicas"] == 1 and "availableReplicas" not in status
        await plane.settle(9)
        assert "availableReplicas" not in await status_of(plane)
        await plane.settle(3)
        assert (await status_of(plane))["availableReplicas"] == 1


async def test_replication_controllers_are_the_same(control_plane: ContextFactory) -> None:
    async with control_plane(*SETS) as plane:
        spec = {"replicas": 2, "template": template(label="old")}
        await plane.client.create(
            REPLICATION_CONTROLLERS, "default", {"metadata": {"name": "old"}, "spec": spec}
        )
        await plane.settle()
        made = await pods(plane)
        assert [ref["apiVersion"] for p in made for ref in p["metadata"]["ownerReferences"]] == [
            "v1",
            "v1",
        ]
        status = (await plane.get(REPLICATION_CONTROLLERS, "default", "old"))["status"]
        assert status == {"replicas": 2, "fullyLabeledReplicas": 2, "observedGeneration": 1}
        assert [reason for reason, _ in await events(plane, "ReplicationController")] == [
            "SuccessfulCreate"
        ] * 2


async def test_labels_of_the_template_count(control_plane: ContextFactory) -> None:
    async with control_plane(*SETS) as plane:
        await plane.client.create(REPLICA_SETS, "default", workload(replicas=1))
        await plane.settle()
        body = {"spec": {"template": {"metadata": {"labels": {"tier": "front"}}}}}
        await plane.client.patch(REPLICA_SETS, "default", "web", body, STRATEGIC_PATCH)
        await plane.settle()
        assert await status_of(plane) == {"replicas": 1, "observedGeneration": 2}


async def test_more_than_a_burst_and_a_restart_in_the_middle(control_plane: ContextFactory) -> None:
    async with control_plane(*SETS) as plane:
        await plane.client.create(REPLICA_SETS, "default", workload(replicas=510))
        await plane.clock.run_for(0.001, turns=40)
        await plane.stop_controllers()
        assert 0 < len(await pods(plane)) < 510
        plane.start_controllers()
        await plane.settle(2)
        assert len(await pods(plane)) == 510
        before = plane.api.storage.store.revision
        await plane.settle(10)
        assert plane.api.storage.store.revision == before


async def test_windows_pods_are_like_others(control_plane: ContextFactory) -> None:
    async with control_plane(*SETS) as plane:
        pod = windows_template("web")
        await plane.client.create(REPLICA_SETS, "default", workload(pod=pod, replicas=2))
        await plane.settle()
        for made in await pods(plane):
            assert made["spec"]["nodeSelector"] == {"kubernetes.io/os": "windows"}
            assert made["spec"]["tolerations"][0] == pod["spec"]["tolerations"][0]


def pod(
    name: str,
    node: str = "a",
    phase: str = "Running",
    ready: str = "",
    restarts: int = 0,
    age: int = 50,
) -> Object:
    conditions = (
        [{"type": "Ready", "status": "True", "lastTransitionTime": f"2020-01-01T00:00:{ready}Z"}]
        if ready
        else []
    )
    return {
        "metadata": {"name": name, "creationTimestamp": f"2020-01-01T00:00:{60 - age:02}Z"},
        "spec": {"nodeName": node},
        "status": {
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": [{"restartCount": restarts}],
        },
    }


@pytest.mark.parametrize(
    ("stays", "goes", "related"),
    [
        ({}, {"node": ""}, []),
        ({}, {"phase": "Pending"}, []),
        ({}, {"phase": "Unknown"}, []),
        ({"phase": "Unknown"}, {"phase": "Pending"}, []),
        ({"ready": "10"}, {}, []),
        ({"node": "b"}, {"node": "a"}, [pod("x", "a"), pod("y", "a"), pod("z", "b")]),
        (
            {"node": "b"},
            {"node": "a", "ready": ""},
            [pod("x", "a"), pod("y", "b", "Failed"), pod("z", "b", "Failed")],
        ),
        ({"ready": "10"}, {"ready": "20"}, []),
        ({"restarts": 1}, {"restarts": 2}, []),
        ({"age": 50}, {"age": 40}, []),
    ],
)
def test_which_pods_are_deleted_first(
    stays: dict[str, Any], goes: dict[str, Any], related: list[Object]
) -> None:
    both = [pod("stays", **stays), pod("goes", **goes)]
    for order in (both, both[::-1]):
        assert [p["metadata"]["name"] for p in _to_delete(order, related, 1)] == ["goes"]
