"""DaemonSets on mixed clusters: which nodes, updates, failed pods, revisions, status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.client.api import STRATEGIC_PATCH
from transom.client.resources import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS
from transom.controllers.daemonset.placement import Placement
from transom.controllers.daemonset.template import target_node, with_default_tolerations
from transom.machinery.objects import Object

from .conftest import Plane
from .workloads import (
    ACCOUNTS,
    WINDOWS_TOLERATION,
    add_nodes,
    all_ready,
    events,
    node,
    pods,
    report,
    template,
    windows_template,
    workload,
)

Play = Callable[..., None]
ALL = (*ACCOUNTS, "daemonset")


async def create(plane: Plane, pod: Object | None = None, **spec: Any) -> None:
    await plane.client.create(DAEMON_SETS, "default", workload("agent", pod, **spec))
    await plane.settle()


async def change(plane: Plane, **spec: Any) -> None:
    await plane.client.patch(DAEMON_SETS, "default", "agent", {"spec": spec}, STRATEGIC_PATCH)
    await plane.settle()


async def set_image(plane: Plane, image: str) -> None:
    await change(plane, template={"spec": {"containers": [{"name": "app", "image": image}]}})


async def places(plane: Plane) -> dict[str, str]:
    """The image on each node."""
    found = {target_node(p): p["spec"]["containers"][0]["image"] for p in await pods(plane)}
    assert len(found) == len(await pods(plane))
    return found


async def status_of(plane: Plane) -> Object:
    return (await plane.get(DAEMON_SETS, "default", "agent"))["status"]


async def test_one_pod_on_every_node_that_it_tolerates(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await add_nodes(plane, node("lin1"), node("lin2"), node("win1", windows=True))
        await create(plane)
        assert set(await places(plane)) == {"lin1", "lin2"}
        assert await status_of(plane) == {
            "currentNumberScheduled": 2,
            "numberMisscheduled": 0,
            "desiredNumberScheduled": 2,
            "numberReady": 0,
            "observedGeneration": 1,
            "updatedNumberScheduled": 2,
            "numberUnavailable": 2,
        }
        await change(plane, template={"spec": {"tolerations": [WINDOWS_TOLERATION]}})
        assert set(await places(plane)) == {"lin1", "lin2", "win1"}
        await all_ready(plane)
        await add_nodes(plane, node("lin3"))
        await plane.settle()
        assert len(await pods(plane)) == 4 and (await status_of(plane))["numberAvailable"] == 3


async def test_windows_only_and_labels_that_change(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await add_nodes(plane, node("lin1"), node("win1", windows=True), node("win2", windows=True))
        await create(plane, windows_template("agent", hostNetwork=True))
        assert set(await places(plane)) == {"win1", "win2"}
        await plane.client.patch(NODES, "", "win2", {"spec": {"unschedulable": True}})
        await plane.client.patch(
            NODES, "", "win1", {"metadata": {"labels": {"kubernetes.io/os": "linux"}}}
        )
        await plane.settle()
        assert set(await places(plane)) == {"win2"}
        recorded = await events(plane, "DaemonSet")
        assert [reason for reason, _ in recorded] == [
            "SuccessfulCreate",
            "SuccessfulCreate",
            "SuccessfulDelete",
        ]


async def test_a_new_taint_keeps_what_is_there_unless_it_drives_out(
    control_plane: ContextFactory,
) -> None:
    async def taint(plane: Plane, effect: str) -> None:
        body = {"spec": {"taints": [{"key": "maintenance", "effect": effect}]}}
        await plane.client.patch(NODES, "", "lin1", body)
        await plane.settle()

    async with control_plane(*ALL) as plane:
        await add_nodes(plane, node("lin1"))
        await create(plane)
        await taint(plane, "NoSchedule")
        status = await status_of(plane)
        assert set(await places(plane)) == {"lin1"}
        assert (status["desiredNumberScheduled"], status["numberMisscheduled"]) == (0, 1)
        await taint(plane, "NoExecute")
        assert await places(plane) == {}


async def test_a_rolling_update_replaces_so_many_at_a_time(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await add_nodes(plane, *(node(f"lin{i}") for i in range(4)))
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "30%"}}
        await create(plane, updateStrategy=rolling)
        await all_ready(plane)
        await set_image(plane, "app:2")
        assert sorted((await places(plane)).values()) == ["app:1", "app:1", "app:2", "app:2"]
        assert (await status_of(plane))["updatedNumberScheduled"] == 2
        await plane.settle(60)
        assert sorted((await places(plane)).values()) == ["app:1", "app:1", "app:2", "app:2"]
        await all_ready(plane)
        await all_ready(plane)
        assert (
            set((await places(plane)).values()) == {"app:2"}
            and (await status_of(plane))["numberAvailable"] == 4
        )


async def test_old_pods_that_do_not_work_go_at_once(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await add_nodes(plane, *(node(f"lin{i}") for i in range(4)))
        await create(plane)
        await set_image(plane, "app:2")
        assert set((await places(plane)).values()) == {"app:2"}


async def test_on_delete(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await add_nodes(plane, node("lin1"), node("lin2"))
        await create(plane, updateStrategy={"type": "OnDelete"})
        await all_ready(plane)
        await set_image(plane, "app:2")
        assert set((await places(plane)).values()) == {"app:1"}
        await plane.client.delete(PODS, "default", (await pods(plane))[0]["metadata"]["name"])
        await plane.settle()
        assert sorted((await places(plane)).values()) == ["app:1", "app:2"]


async def test_failed_pods_are_replaced_ever_more_slowly(control_plane: ContextFactory) -> None:
    async def fail(plane: Plane) -> str:
        (pod,) = await pods(plane)
        await report(plane, pod, "Failed")
        await plane.settle(0.1)
        (after,) = await pods(plane)
        return "waits" if after["metadata"]["uid"] == pod["metadata"]["uid"] else "replaced"

    async with control_plane(*ALL) as plane:
        await add_nodes(plane, node("lin1"))
        await create(plane)
        assert await fail(plane) == "replaced"
        assert await fail(plane) == "waits"
        await plane.settle(1)
        assert await fail(plane) == "waits"
        await plane.settle(2)
        (pod,) = await pods(plane)
        assert pod["status"]["phase"] == "Pending"
        recorded = [
            message
            for reason, message in await events(plane, "DaemonSet")
            if reason == "FailedDaemonPod"
        ]
        assert len(recorded) == 3 and recorded[0].endswith(" on node lin1, will try to kill it")


async def test_available_after_some_seconds(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await add_nodes(plane, node("lin1"))
        await create(plane, minReadySeconds=10)
        await all_ready(plane)
        assert "numberAvailable" not in await status_of(plane)
        await plane.settle(12)
        assert (await status_of(plane))["numberAvailable"] == 1


async def test_history_and_its_limit(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await add_nodes(plane, node("lin1"))
        await create(plane, revisionHistoryLimit=1)
        for number in (2, 3, 2):
            await all_ready(plane)
            await set_image(plane, f"app:{number}")
        found = (await plane.client.list(CONTROLLER_REVISIONS, "default")).items
        revisions = {
            r["data"]["spec"]["template"]["spec"]["containers"][0]["image"]: r["revision"]
            for r in found
        }
        assert revisions == {"app:3": 3, "app:2": 4}
        hashes = {r["metadata"]["labels"]["controller-revision-hash"] for r in found}
        assert {
            p["metadata"]["labels"]["controller-revision-hash"] for p in await pods(plane)
        } < hashes
        assert {p["metadata"]["labels"]["pod-template-generation"] for p in await pods(plane)} == {
            "4"
        }


async def test_duplicates_and_pods_for_nodes_that_are_gone(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await add_nodes(plane, node("lin1"), node("lin2"))
        await create(plane)
        (one, _) = await pods(plane)
        twin = {
            "metadata": {"name": "twin", "labels": one["metadata"]["labels"]},
            "spec": one["spec"],
        }
        await plane.client.create(PODS, "default", twin)
        await plane.settle()
        assert set(await places(plane)) == {"lin1", "lin2"}
        await plane.client.delete(NODES, "", "lin2")
        await change(plane, minReadySeconds=1)
        assert set(await places(plane)) == {"lin1"}


async def test_affinity_is_replaced_by_the_node(control_plane: ContextFactory) -> None:
    wanted = {"key": "disk", "operator": "In", "values": ["ssd"]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [wanted]}}]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [wanted]}]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        }
    }

    async with control_plane(*ALL) as plane:
        await add_nodes(plane, node("lin1", disk="ssd"), node("lin2"))
        await create(plane, template(label="agent", affinity=affinity))
        (pod,) = await pods(plane)
        found = pod["spec"]["affinity"]["nodeAffinity"]
        field = {"key": "metadata.name", "operator": "In", "values": ["lin1"]}
        terms = found["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert terms == [{"matchFields": [field]}]
        assert found["preferredDuringSchedulingIgnoredDuringExecution"] == preferred


async def test_a_restart_changes_nothing(control_plane: ContextFactory) -> None:
    async with control_plane(*ALL) as plane:
        await add_nodes(plane, node("lin1"), node("lin2"))
        await create(plane)
        await all_ready(plane)
        await plane.settle(5)
        before = plane.api.storage.store.revision
        await plane.stop_controllers()
        plane.start_controllers()
        await plane.settle(60)
        assert plane.api.storage.store.revision == before


def required(*terms: Object) -> Object:
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}
        }
    }


def expression(operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": "cores", "operator": operator, "values": [*values]}]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, True),
        ({"nodeName": "n"}, True),
        ({"nodeName": "other"}, False),
        ({"nodeSelector": {"cores": "4"}}, True),
        ({"nodeSelector": {"cores": "8"}}, False),
        ({"affinity": required()}, False),
        ({"affinity": required({})}, False),
        ({"affinity": required(expression("Gt", "3"))}, True),
        ({"affinity": required(expression("Lt", "3"))}, False),
        ({"affinity": required(expression("Lt", "3"), expression("Exists"))}, True),
        ({"affinity": required(expression("NotIn", "4"))}, False),
        ({"affinity": required(expression("Unheard"))}, False),
        (
            {
                "affinity": required(
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
                )
            },
            True,
        ),
        (
            {
                "affinity": required(
                    {
                        "matchFields": [
                            {"key": "metadata.name", "operator": "NotIn", "values": ["n"]}
                        ]
                    }
                )
            },
            False,
        ),
        ({"affinity": {"podAffinity": {}}}, True),
    ],
)
def test_where_daemons_belong(spec: Object, expected: bool) -> None:
    there = {"metadata": {"name": "n", "labels": {"cores": "4"}}, "spec": {}}
    assert Placement({"spec": {"template": {"spec": spec}}}).node_should_run(there) == (
        expected,
        expected,
    )


def test_tolerations_of_the_user_come_first_and_give_way() -> None:
    short = {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 5,
    }
    found = with_default_tolerations(
        {"tolerations": [WINDOWS_TOLERATION, short], "hostNetwork": True}
    )["tolerations"]
    assert found[0] == WINDOWS_TOLERATION and "tolerationSeconds" not in found[1]
    assert [t["key"].rpartition("/")[2] for t in found[1:]] == [
        "not-ready",
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
        "network-unavailable",
    ]
