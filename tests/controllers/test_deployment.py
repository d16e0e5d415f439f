"""Deployments: rollouts by both strategies, pause, rollback, deadlines, scaling in the middle,
history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conftest import ContextFactory

from transom.client.api import STRATEGIC_PATCH
from transom.client.resources import DEPLOYMENTS, NODES, PODS, REPLICA_SETS
from transom.machinery.objects import Object

from .conftest import Plane
from .workloads import (
    ACCOUNTS,
    add_nodes,
    all_ready,
    events,
    node,
    owned_sets,
    pods,
    report,
    template,
    windows_template,
    workload,
)

Play = Callable[..., None]
ALL = (*ACCOUNTS, "deployment", "replicaset")
REVISION = "deployment.kubernetes.io/revision"


async def create(plane: Plane, replicas: int = 4, **spec: Any) -> None:
    await plane.client.create(DEPLOYMENTS, "default", workload(replicas=replicas, **spec))
    await plane.settle()


async def change(plane: Plane, **spec: Any) -> Object:
    changed = await plane.client.patch(
        DEPLOYMENTS, "default", "web", {"spec": spec}, STRATEGIC_PATCH
    )
    await plane.settle()
    return changed


async def set_image(plane: Plane, image: str) -> None:
    await change(plane, template={"spec": {"containers": [{"name": "app", "image": image}]}})


async def current(plane: Plane) -> Object:
    return await plane.get(DEPLOYMENTS, "default", "web")


async def condition(plane: Plane, kind: str = "Progressing") -> tuple[str, str, str]:
    (found,) = [c for c in (await current(plane))["status"]["conditions"] if c["type"] == kind]
    return found["status"], found["reason"], found["message"]


async def sizes(plane: Plane) -> list[tuple[int, int]]:
    """Of each revision: wanted and actual replicas."""
    return [(s["spec"]["replicas"], s["status"]["replicas"]) for s in await owned_sets(plane)]


def limits(surge: int | str, unavailable: int | str) -> Object:
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
    }


async def test_a_rollout_keeps_its_limits_until_it_is_done(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await create(plane, 4, strategy=limits(1, 1))
        assert await condition(plane) == (
            "True",
            "ReplicaSetUpdated",
            'ReplicaSet "web-54cdfd79f8" is progressing.',
        )
        await all_ready(plane)
        reason = "NewReplicaSetAvailable"
        assert await condition(plane) == (
            "True",
            reason,
            'ReplicaSet "web-54cdfd79f8" has successfully progressed.',
        )
        await set_image(plane, "app:2")
        assert await sizes(plane) == [(3, 3), (2, 2)]
        for _ in range(10):
            found = await pods(plane)
            working = [p for p in found if p["status"]["phase"] == "Running"]
            assert len(found) <= 5 and len(working) >= 3
            waiting = [p for p in found if p["status"]["phase"] == "Pending"]
            if not waiting:
                break
            await report(plane, waiting[0])
            await plane.settle()
        assert await sizes(plane) == [(0, 0), (4, 4)]
        deployment = await current(plane)
        assert deployment["metadata"]["annotations"] == {REVISION: "2"}
        status = {k: v for k, v in deployment["status"].items() if k != "conditions"}
        assert status == {
            "observedGeneration": 2,
            "replicas": 4,
            "updatedReplicas": 4,
            "readyReplicas": 4,
            "availableReplicas": 4,
        }
        recorded = await events(plane, "Deployment")
        assert ("ScalingReplicaSet", "Scaled down replica set web-54cdfd79f8 to 0") in recorded


async def test_recreate_waits_for_the_last_old_pod(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await add_nodes(plane, node("lin1"))
        await create(
            plane,
            2,
            pod=template(nodeName="lin1", terminationGracePeriodSeconds=30),
            strategy={"type": "Recreate"},
        )
        await all_ready(plane)
        await set_image(plane, "app:2")
        # Their kubelet still has to stop them.
        assert await sizes(plane) == [(0, 0)] and len(await pods(plane)) == 2
        first, second = await pods(plane)
        await plane.client.delete(PODS, "default", first["metadata"]["name"], grace=0)
        await plane.settle()
        assert len(await owned_sets(plane)) == 1
        await plane.client.delete(PODS, "default", second["metadata"]["name"], grace=0)
        await plane.settle()
        assert await sizes(plane) == [(0, 0), (2, 2)]


async def test_a_paused_deployment_scales_but_does_not_roll(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await create(plane, 2)
        await all_ready(plane)
        await change(plane, paused=True)
        assert await condition(plane) == ("Unknown", "DeploymentPaused", "Deployment is paused")
        await change(plane, replicas=3)
        await set_image(plane, "app:2")
        assert await sizes(plane) == [(3, 3)]
        assert "updatedReplicas" not in (await current(plane))["status"]
        await plane.settle(700)  # longer than the deadline
        assert (await condition(plane))[1] == "DeploymentPaused"
        await plane.client.patch(DEPLOYMENTS, "default", "web", {"spec": {"paused": None}})
        await plane.settle(0.001)
        assert (await condition(plane))[1] in (
            "DeploymentResumed",
            "NewReplicaSetCreated",
            "ReplicaSetUpdated",
        )
        await plane.settle()
        assert await sizes(plane) == [(3, 3), (1, 1)]


async def test_undo_takes_the_old_set_again_and_keeps_its_history(
    control_plane: ContextFactory,
) -> None:
    async with control_plane(*ALL) as plane:
        await create(plane, 1)
        before = (await owned_sets(plane))[0]["metadata"]["name"]
        for image in ("app:2", "app:1", "app:2", "app:1"):
            await all_ready(plane)
            await set_image(plane, image)
        await all_ready(plane)
        old, new = await owned_sets(plane)
        notes = new["metadata"]["annotations"]
        assert new["metadata"]["name"] == before and old["spec"]["replicas"] == 0
        assert (notes[REVISION], notes["deployment.kubernetes.io/revision-history"]) == ("5", "1,3")
        assert (await current(plane))["metadata"]["annotations"][REVISION] == "5"


async def test_the_old_rollback_annotation_works(control_plane: ContextFactory) -> None:
    async def undo(plane: Plane, revision: str) -> None:
        body = {"metadata": {"annotations": {"deprecated.deployment.rollback.to": revision}}}
        await plane.client.patch(DEPLOYMENTS, "default", "web", body)
        await plane.settle()

    async with control_plane(*ALL) as plane:
        await create(plane, 1)
        cause = {"metadata": {"annotations": {"kubernetes.io/change-cause": "two"}}}
        await plane.client.patch(DEPLOYMENTS, "default", "web", cause)
        await set_image(plane, "app:2")
        await undo(plane, "0")
        deployment = await current(plane)
        assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "app:1"
        assert deployment["metadata"]["annotations"] == {
            REVISION: "3",
            "kubernetes.io/change-cause": "two",
        }
        await undo(plane, "3")
        await undo(plane, "9")
        recorded = await events(plane, "Deployment")
        assert ("DeploymentRollback", 'Rolled back deployment "web" to revision 1') in recorded
        assert (
            "DeploymentRollbackRevisionNotFound",
            "Unable to find the revision to rollback to.",
        ) in recorded
        message = 'The rollback revision contains the same template as current deployment "web"'
        assert ("DeploymentRollbackTemplateUnchanged", message) in recorded


async def test_a_rollout_without_progress_fails_and_recovers(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await create(plane, 1, progressDeadlineSeconds=60)
        await plane.settle(50)
        assert (await condition(plane))[1] == "ReplicaSetUpdated"
        await plane.settle(15)
        status, reason, message = await condition(plane)
        assert (status, reason) == ("False", "ProgressDeadlineExceeded") and message.endswith(
            "has timed out progressing."
        )
        assert (await condition(plane, "Available"))[:2] == ("False", "MinimumReplicasUnavailable")
        await all_ready(plane)
        assert (await condition(plane))[:2] == ("True", "NewReplicaSetAvailable")
        assert (await condition(plane, "Available"))[:2] == ("True", "MinimumReplicasAvailable")
        # Once complete, a pod that fails later is not a failed rollout.
        for pod in await pods(plane):
            await report(plane, pod, "Running", ready=False)
        await plane.settle(120)
        assert (await condition(plane))[1] == "NewReplicaSetAvailable"


async def test_scaling_in_the_middle_gives_every_set_its_share(
    control_plane: ContextFactory,
) -> None:
    async with control_plane(*ALL) as plane:
        await create(plane, 10, strategy=limits(3, 2))
        await all_ready(plane)
        await set_image(plane, "app:2")
        assert await sizes(plane) == [(8, 8), (5, 5)]
        await change(plane, replicas=15)
        assert await sizes(plane) == [(11, 11), (7, 7)]
        await change(plane, replicas=0)
        assert await sizes(plane) == [(0, 0), (0, 0)]


async def test_only_so_many_old_sets_are_kept(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await create(plane, 0, revisionHistoryLimit=2)
        for number in range(2, 6):
            await plane.settle(1)
            await set_image(plane, f"app:{number}")
        images = [
            s["spec"]["template"]["spec"]["containers"][0]["image"] for s in await owned_sets(plane)
        ]
        assert images == ["app:3", "app:4", "app:5"]


async def test_a_name_that_is_taken_counts_as_a_collision(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        taken = workload("web-54cdfd79f8", template(label="other"), replicas=0)
        taken["spec"]["selector"] = {"matchLabels": {"app": "other"}}
        await plane.client.create(REPLICA_SETS, "default", taken)
        await create(plane, 1)
        await plane.settle(1)
        deployment = await current(plane)
        assert deployment["status"]["collisionCount"] == 1 and deployment["status"]["replicas"] == 1


async def test_a_set_with_the_same_template_is_adopted(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await create(plane, 2)
        (made,) = await owned_sets(plane)
        await plane.client.delete(DEPLOYMENTS, "default", "web", propagation="Orphan")
        bare = {"metadata": {"ownerReferences": None}}
        await plane.client.patch(REPLICA_SETS, "default", made["metadata"]["name"], bare)
        body = {"metadata": {"finalizers": None}}
        await plane.client.patch(DEPLOYMENTS, "default", "web", body)
        await plane.settle()
        await create(plane, 2)
        (again,) = await owned_sets(plane)
        assert again["metadata"]["uid"] == made["metadata"]["uid"]
        assert again["metadata"]["ownerReferences"][0]["kind"] == "Deployment"
        assert (await condition(plane))[1] in ("FoundNewReplicaSet", "ReplicaSetUpdated")


async def test_failures_of_sets_show(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        # No pod of this service account can be made.
        await create(plane, 1, pod=template(serviceAccountName="nobody"))
        status, reason, message = await condition(plane, "ReplicaFailure")
        assert (status, reason) == (
            "True",
            "FailedCreate",
        ) and "error looking up service account default/nobody" in message


async def test_windows_deployments_roll_like_others(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await add_nodes(plane, node("win1", windows=True), node("lin1"))
        await create(plane, 2, pod=windows_template("web"))
        await all_ready(plane)
        await set_image(plane, "app:2")
        while await all_ready(plane):
            pass
        found = await pods(plane)
        assert [p["spec"]["containers"][0]["image"] for p in found] == ["app:2"] * 2
        assert all(p["spec"]["nodeSelector"] == {"kubernetes.io/os": "windows"} for p in found)
        assert len((await plane.client.list(NODES)).items) == 2


async def test_a_restart_changes_nothing(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await create(plane, 3)
        await all_ready(plane)
        await plane.settle(5)
        before = plane.api.storage.store.revision
        await plane.stop_controllers()
        plane.start_controllers()
        await plane.settle(60)
        assert plane.api.storage.store.revision == before
