"""StatefulSets: order, identity, storage, partitions, revisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.client.api import STRATEGIC_PATCH
from transom.client.resources import (
    CONTROLLER_REVISIONS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
)
from transom.controllers.statefulset import update
from transom.controllers.statefulset.identity import parent_and_ordinal
from transom.machinery.objects import Object

from .conftest import Plane
from .workloads import (
    ACCOUNTS,
    add_nodes,
    all_ready,
    events,
    names,
    node,
    pods,
    report,
    template,
    windows_template,
    workload,
)

Play = Callable[..., None]
ALL = (*ACCOUNTS, "statefulset")


async def create(plane: Plane, replicas: int = 3, **spec: Any) -> None:
    spec.setdefault("serviceName", "svc")
    await plane.client.create(STATEFUL_SETS, "default", workload("db", replicas=replicas, **spec))
    await plane.settle()


async def change(plane: Plane, **spec: Any) -> None:
    await plane.client.patch(STATEFUL_SETS, "default", "db", {"spec": spec}, STRATEGIC_PATCH)
    await plane.settle()


async def set_image(plane: Plane, image: str) -> None:
    await change(plane, template={"spec": {"containers": [{"name": "app", "image": image}]}})


async def status_of(plane: Plane) -> Object:
    return (await plane.get(STATEFUL_SETS, "default", "db"))["status"]


async def images(plane: Plane) -> dict[str, str]:
    return {
        p["metadata"]["name"]: p["spec"]["containers"][0]["image"][-1] for p in await pods(plane)
    }


async def test_pods_come_and_go_in_order(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await create(plane, 3)
        for expected in (["db-0"], ["db-0", "db-1"], ["db-0", "db-1", "db-2"]):
            assert await names(plane) == expected
            await plane.settle(30)
            assert await names(plane) == expected  # no pod is ready yet
            await all_ready(plane)
        assert (await status_of(plane))["currentReplicas"] == 3
        # The first pod is not ready: nothing goes until it is.
        await report(plane, await plane.get(PODS, "default", "db-0"), ready=False)
        await change(plane, replicas=1)
        assert await names(plane) == ["db-0", "db-1", "db-2"]
        await report(plane, await plane.get(PODS, "default", "db-0"))
        await plane.settle()
        assert await names(plane) == ["db-0"]
        recorded = [message for _, message in await events(plane, "StatefulSet")]
        assert recorded.count("delete Pod db-2 in StatefulSet db successful") == 1
        assert recorded.count("create Pod db-1 in StatefulSet db successful") == 1


async def test_each_pod_has_an_identity(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await create(plane, 1)
        (pod,) = await pods(plane)
        (revision,) = (await plane.client.list(CONTROLLER_REVISIONS, "default")).items
        assert pod["metadata"]["labels"] == {
            "app": "db",
            "statefulset.kubernetes.io/pod-name": "db-0",
            "controller-revision-hash": revision["metadata"]["name"],
        }
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("db-0", "svc")
        assert (
            revision["data"]["spec"]["template"]["$patch"] == "replace"
            and revision["revision"] == 1
        )
        await report(plane, pod)
        body = {"metadata": {"labels": {"statefulset.kubernetes.io/pod-name": None}}}
        await plane.client.patch(PODS, "default", "db-0", body)
        await plane.settle()
        (again,) = await pods(plane)
        assert again["metadata"]["labels"] == pod["metadata"]["labels"]
        assert again["metadata"]["uid"] == pod["metadata"]["uid"]


async def test_a_failed_pod_is_made_anew(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await create(plane, 1)
        (before,) = await pods(plane)
        await report(plane, before, "Failed")
        await plane.settle()
        (after,) = await pods(plane)
        assert (
            after["metadata"]["name"] == "db-0"
            and after["metadata"]["uid"] != before["metadata"]["uid"]
        )
        recorded = await events(plane, "StatefulSet")
        assert (
            "RecreatingFailedPod",
            "StatefulSet default/db is recreating failed Pod db-0",
        ) in recorded


async def test_claims_are_made_once_and_stay(control_plane: ContextFactory) -> None:
    claim = {
        "metadata": {"name": "data", "labels": {"own": "label"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }

    async def claims(plane: Plane) -> list[str]:
        return [
            c["metadata"]["name"]
            for c in (await plane.client.list(PERSISTENT_VOLUME_CLAIMS, "default")).items
        ]

    async with control_plane(*ALL) as plane:
        volume = {"name": "data", "emptyDir": {}}
        pod = template(label="db", volumes=[volume, {"name": "other", "emptyDir": {}}])
        await create(
            plane, 2, pod=pod, podManagementPolicy="Parallel", volumeClaimTemplates=[claim]
        )
        assert await claims(plane) == ["data-db-0", "data-db-1"]
        made = await plane.get(PODS, "default", "db-1")
        assert [v["name"] for v in made["spec"]["volumes"]][:2] == ["data", "other"]
        assert made["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "data-db-1"}
        await all_ready(plane)
        await change(plane, replicas=0)
        await change(plane, replicas=1)
        assert await claims(plane) == ["data-db-0", "data-db-1"] and await names(plane) == ["db-0"]
        # A terminating claim is not used as storage.
        await plane.client.delete(PODS, "default", "db-0")
        body = {"metadata": {"finalizers": ["example.com/wait"]}}
        await plane.client.patch(PERSISTENT_VOLUME_CLAIMS, "default", "data-db-0", body)
        await plane.client.delete(PERSISTENT_VOLUME_CLAIMS, "default", "data-db-0")
        await plane.client.delete(PODS, "default", "db-0")
        await plane.settle()
        message = "create Pod db-0 in StatefulSet db failed error: pvc data-db-0 is being deleted"
        assert await names(plane) == [] and ("FailedCreate", message) in await events(
            plane, "StatefulSet"
        )


async def test_parallel_sets_do_not_wait(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await create(plane, 3, podManagementPolicy="Parallel")
        assert await names(plane) == ["db-0", "db-1", "db-2"]
        await change(plane, replicas=1)
        assert await names(plane) == ["db-0"]


async def test_an_update_goes_from_the_last_to_the_partition(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        await create(plane, 3, podManagementPolicy="Parallel", updateStrategy=rolling)
        await all_ready(plane)
        await set_image(plane, "app:2")
        assert await images(plane) == {"db-0": "1", "db-1": "1", "db-2": "2"}
        await all_ready(plane)
        assert await images(plane) == {"db-0": "1", "db-1": "2", "db-2": "2"}
        await all_ready(plane)
        status = await status_of(plane)
        assert status["currentRevision"] != status["updateRevision"]
        assert (status["currentReplicas"], status["updatedReplicas"]) == (1, 2)
        # Below the partition a lost pod comes back as it was.
        await plane.client.delete(PODS, "default", "db-0")
        await plane.settle()
        await all_ready(plane)
        assert (await images(plane))["db-0"] == "1"
        await change(plane, updateStrategy={"rollingUpdate": {"partition": 0}})
        await all_ready(plane)
        status = await status_of(plane)
        assert status["currentRevision"] == status["updateRevision"] and set(
            (await images(plane)).values()
        ) == {"2"}


async def test_an_update_waits_for_health(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await create(plane, 2, podManagementPolicy="Parallel")
        await all_ready(plane)
        await set_image(plane, "app:broken-2")
        await plane.settle(60)
        assert await images(plane) == {"db-0": "1", "db-1": "2"}


async def test_on_delete_and_rolling_back(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await create(plane, 1, updateStrategy={"type": "OnDelete"}, revisionHistoryLimit=1)
        await all_ready(plane)
        for image in ("app:2", "app:3", "app:1"):
            await set_image(plane, image)
        assert (await images(plane))["db-0"] == "1"
        revisions = {
            r["data"]["spec"]["template"]["spec"]["containers"][0]["image"]: r["revision"]
            for r in (await plane.client.list(CONTROLLER_REVISIONS, "default")).items
        }
        assert revisions == {
            "app:1": 4,
            "app:3": 3,
        }  # the old revision again, with the highest number
        await set_image(plane, "app:5")
        await plane.client.delete(PODS, "default", "db-0")
        await plane.settle()
        assert (await images(plane))["db-0"] == "5"


async def test_no_second_pod_while_the_first_stops(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await add_nodes(plane, node("win1", windows=True))
        await create(
            plane, 1, pod=windows_template("db", nodeName="win1", terminationGracePeriodSeconds=30)
        )
        await all_ready(plane)
        await plane.client.delete(PODS, "default", "db-0")
        await plane.settle(60)
        (stopping,) = await pods(plane)
        assert "deletionTimestamp" in stopping["metadata"]
        await plane.client.delete(PODS, "default", "db-0", grace=0)
        await plane.settle()
        (after,) = await pods(plane)
        assert after["metadata"]["uid"] != stopping["metadata"]["uid"]
        assert after["spec"]["nodeSelector"] == {"kubernetes.io/os": "windows"}


async def test_only_pods_of_the_name_are_members(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        for name in ("db-0", "other-1", "db"):
            stray = {**template(label="db"), "metadata": {"name": name, "labels": {"app": "db"}}}
            await plane.client.create(PODS, "default", stray)
        await create(plane, 1)
        owners = {
            p["metadata"]["name"]: len(p["metadata"].get("ownerReferences", ()))
            for p in await pods(plane)
        }
        assert owners == {"db-0": 1, "other-1": 0, "db": 0}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("db-0", ("db", 0)),
        ("a-b-12", ("a-b", 12)),
        ("db", ("", -1)),
        ("db-x", ("", -1)),
        ("db-99999999999", ("db", -1)),
    ],
)
def test_names(name: str, expected: tuple[str, int]) -> None:
    assert parent_and_ordinal(name) == expected


async def test_a_restart_changes_nothing(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await create(plane, 2, podManagementPolicy="Parallel")
        await all_ready(plane)
        await plane.settle(5)
        before = plane.api.storage.store.revision
        await plane.stop_controllers()
        plane.start_controllers()
        await plane.settle(60)
        assert plane.api.storage.store.revision == before


async def test_a_set_may_want_more_pods_than_can_exist(control_plane: ContextFactory) -> None:
    """Pods are planned when their turn comes."""

    async with control_plane(*ALL) as plane:
        await create(plane, 2**31 - 1)
        assert await names(plane) == ["db-0"]


async def test_parallel_sets_create_pods_in_bursts(
    control_plane: ContextFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "_MOST_CREATED", 3)

    async with control_plane(*ALL) as plane:
        await create(plane, 7, podManagementPolicy="Parallel")
        assert len(await names(plane)) == 7
