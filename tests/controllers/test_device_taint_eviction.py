"""Pods leave devices with NoExecute taints, and DeviceTaintRules report it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.client.resources import EVENTS, PODS
from transom.controllers.device_taint_eviction import (
    DEVICE_TAINT_RULES,
    RESOURCE_SLICES,
    Eviction,
    claim_eviction,
)
from transom.controllers.resourceclaim import RESOURCE_CLAIMS
from transom.kit.clock import parse_rfc3339
from transom.machinery.objects import Object

from .conftest import Plane
from .workloads import ACCOUNTS, add_nodes, node, template

CONTROLLER = "device-taint-eviction-controller"
ADDED = "2024-01-01T00:00:00Z"
START = parse_rfc3339(ADDED)


def taint(effect: str = "NoExecute", **fields: str) -> Object:
    return {"key": "broken", "value": "yes", "effect": effect, **fields}


def toleration(**fields: Any) -> Object:
    return {"key": "broken", "operator": "Exists", "effect": "NoExecute", **fields}


def rule(effect: str = "NoExecute", name: str = "drain", **selector: str) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {"deviceSelector": selector, "taint": taint(effect)},
    }


def allocated(*tolerations: Object) -> Object:
    result: Object = {"driver": "gpu.example.com", "pool": "pool", "device": "gpu-0"}
    if tolerations:
        result["tolerations"] = list(tolerations)
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


@pytest.mark.parametrize(
    ("taints", "tolerations", "expected"),
    [
        ([], [], None),
        ([taint("NoSchedule", timeAdded=ADDED)], [], None),
        ([taint(timeAdded=ADDED)], [], 0),
        ([taint(timeAdded=ADDED)], [toleration()], None),
        ([taint(timeAdded=ADDED)], [toleration(effect="NoSchedule")], 0),
        ([taint(timeAdded=ADDED)], [toleration(tolerationSeconds=60)], 60),
        ([taint(timeAdded=ADDED)], [toleration(tolerationSeconds=-5)], 0),
        (
            [taint(timeAdded=ADDED)],
            [toleration(tolerationSeconds=60), toleration(tolerationSeconds=30)],
            30,
        ),
        ([taint(timeAdded=ADDED)], [toleration(key="other")], 0),
        (
            [taint(timeAdded=ADDED), taint(key="worse", timeAdded="2024-01-01T00:00:10Z")],
            [toleration(tolerationSeconds=60)],
            10,
        ),
    ],
)
def test_tolerations_delay_evictions(
    taints: list[Object], tolerations: list[Object], expected: int | None
) -> None:
    devices = {("gpu.example.com", "pool", "gpu-0"): {"name": "gpu-0", "taints": taints}}
    found = claim_eviction(allocated(*tolerations), devices, ())
    assert found == (None if expected is None else Eviction(START + expected, frozenset()))


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({}, True),
        ({"driver": "gpu.example.com", "pool": "pool", "device": "gpu-0"}, True),
        ({"driver": "other.example.com"}, False),
        ({"device": "gpu-1"}, False),
    ],
)
def test_rules_taint_the_devices_that_they_select(selector: dict[str, str], selected: bool) -> None:
    made = rule(**selector)
    made["metadata"]["uid"] = "u"
    made["spec"]["taint"]["timeAdded"] = ADDED
    found = claim_eviction(allocated(), {}, [made])
    assert found == (Eviction(START, frozenset({"u"})) if selected else None)


async def a_pod_with_a_device(plane: Plane, *tolerations: Object) -> None:
    await add_nodes(plane, node("n"))
    await plane.client.create(RESOURCE_SLICES, "", a_slice())
    exactly = {"deviceClassName": "gpu", "tolerations": list(tolerations)}
    requests = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    made = {"metadata": {"name": "gpu"}, "spec": requests}
    claim = await plane.client.create(RESOURCE_CLAIMS, "default", made)
    spec = template()["spec"]
    pod = await plane.client.create(
        PODS,
        "default",
        {
            "metadata": {"name": "p"},
            "spec": {
                **spec,
                "nodeName": "n",
                "terminationGracePeriodSeconds": 30,
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
            },
        },
    )
    result = {**allocated(*tolerations)["status"]["allocation"]["devices"]["results"][0]}
    status = {
        "allocation": {"devices": {"results": [{"request": "gpu", **result}]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}],
    }
    await plane.client.update_status(RESOURCE_CLAIMS, {**claim, "status": status})
    await plane.settle()


def a_slice(*taints: Object) -> Object:
    device: Object = {"name": "gpu-0"}
    if taints:
        device["taints"] = list(taints)
    return {
        "metadata": {"name": "slice"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "n",
            "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
            "devices": [device],
        },
    }


async def replace_taints(plane: Plane, *taints: Object) -> None:
    current = await plane.get(RESOURCE_SLICES, "", "slice")
    await plane.client.update(RESOURCE_SLICES, {**current, "spec": a_slice(*taints)["spec"]})
    await plane.settle()


async def event_texts(plane: Plane) -> list[str]:
    found = (await plane.client.list(EVENTS, "default")).items
    return [event["message"] for event in found if event["reason"] == "DeviceTaintManagerEviction"]


async def is_evicted(plane: Plane) -> bool:
    pod = await plane.get(PODS, "default", "p")
    conditions = {one["type"]: one for one in pod["status"].get("conditions") or ()}
    if "deletionTimestamp" not in pod["metadata"]:
        assert "DisruptionTarget" not in conditions
        return False
    assert conditions["DisruptionTarget"]["reason"] == "DeletionByDeviceTaintManager"
    return True


async def test_a_taint_of_the_driver_evicts_the_pod(control_plane: ContextFactory) -> None:
    async with control_plane(*ACCOUNTS, CONTROLLER, release="1.36") as plane:
        await a_pod_with_a_device(plane)
        await replace_taints(plane, taint("NoSchedule"))
        assert not await is_evicted(plane)
        await replace_taints(plane, taint())
        assert await is_evicted(plane)
        assert await event_texts(plane) == ["Marking for deletion"]


async def test_a_removed_taint_cancels_the_eviction(control_plane: ContextFactory) -> None:
    async with control_plane(*ACCOUNTS, CONTROLLER, release="1.36") as plane:
        await a_pod_with_a_device(plane, toleration(tolerationSeconds=60))
        await replace_taints(plane, taint())
        await replace_taints(plane)
        assert await event_texts(plane) == ["Cancelling deletion"]
        await plane.settle(90)
        assert not await is_evicted(plane)


async def test_an_eviction_waits_for_the_toleration(control_plane: ContextFactory) -> None:
    async with control_plane(*ACCOUNTS, CONTROLLER, release="1.36") as plane:
        await a_pod_with_a_device(plane, toleration(tolerationSeconds=60))
        await replace_taints(plane, taint())
        await plane.settle(50)
        assert not await is_evicted(plane)
        await plane.settle(15)
        assert await is_evicted(plane)


async def test_1_35_has_no_device_taints(control_plane: ContextFactory) -> None:
    async with control_plane(*ACCOUNTS, CONTROLLER, release="1.35") as plane:
        await a_pod_with_a_device(plane)
        await replace_taints(plane, taint())
        assert not await is_evicted(plane)


async def condition(plane: Plane, name: str = "drain") -> tuple[str, str, str]:
    found = (await plane.get(DEVICE_TAINT_RULES, "", name))["status"]["conditions"]
    assert [one["type"] for one in found] == ["EvictionInProgress"]
    return found[0]["status"], found[0]["reason"], found[0]["message"]


async def test_a_rule_evicts_and_reports(control_plane: ContextFactory) -> None:
    async with control_plane(*ACCOUNTS, CONTROLLER, release="1.37") as plane:
        await a_pod_with_a_device(plane, toleration(tolerationSeconds=30))
        await plane.client.create(DEVICE_TAINT_RULES, "", rule(driver="gpu.example.com"))
        await plane.settle()
        pending = "True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace."
        assert await condition(plane) == pending
        await plane.settle(60)
        assert await is_evicted(plane)
        done = "1 pod evicted since starting the controller."
        assert await condition(plane) == ("False", "Completed", done)


async def test_a_rule_without_effect_predicts_the_evictions(control_plane: ContextFactory) -> None:
    async with control_plane(*ACCOUNTS, CONTROLLER, release="1.37") as plane:
        await a_pod_with_a_device(plane)
        await plane.client.create(DEVICE_TAINT_RULES, "", rule("None", pool="pool"))
        await plane.client.create(DEVICE_TAINT_RULES, "", rule("NoSchedule", "soft", pool="pool"))
        await plane.settle(30)
        assert not await is_evicted(plane)
        assert await condition(plane) == (
            "False",
            "NoEffect",
            "1 published device selected. 1 allocated device selected. 1 pod would be evicted in "
            "1 namespace if the effect was NoExecute. This information will not be updated again. "
            "Recreate the DeviceTaintRule to trigger an update.",
        )
        other = "Eviction only happens for the NoExecute effect."
        assert await condition(plane, "soft") == ("False", "OtherEffect", other)
