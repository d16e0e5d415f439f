"""Nodes that fall silent, zones that fail, pods that are moved; ranges and times that nodes get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.client.api import MERGE_PATCH
from transom.client.resources import EVENTS, LEASES, NODES, PODS
from transom.controllers.base import ControllerSettings
from transom.controllers.nodeipam import CidrRangeFull, CidrSet
from transom.controllers.nodelifecycle.taints import tolerated_seconds
from transom.controllers.nodelifecycle.zones import SlowQueue, Zones, ZoneState, zone_state_of
from transom.kit.clock import VirtualClock, rfc3339, rfc3339_micro
from transom.machinery.objects import Object

from .conftest import Plane

Play = Callable[..., None]


async def add_node(plane: Plane, name: str, **spec: Any) -> None:
    await plane.client.create(NODES, "", {"metadata": {"name": name}, "spec": spec})
    await beat(plane, name)


async def beat(plane: Plane, name: str, status: str = "True") -> None:
    now = rfc3339(plane.clock.time())
    ready = {
        "type": "Ready",
        "status": status,
        "reason": "K",
        "message": "m",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    body = {"status": {"conditions": [ready]}}
    await plane.client.patch(NODES, "", name, body, MERGE_PATCH, subresource="status")


async def keep_alive(plane: Plane, seconds: float, *names: str) -> None:
    for _ in range(int(seconds / 10)):
        for name in names:
            await beat(plane, name)
        await plane.settle(10)


async def taints(plane: Plane, name: str) -> list[tuple[str, str]]:
    node = await plane.get(NODES, "", name)
    return [(t["key"].rpartition("/")[2], t["effect"]) for t in node["spec"].get("taints") or ()]


async def conditions(plane: Plane, name: str) -> dict[str, tuple[str, str]]:
    rows = (await plane.get(NODES, "", name))["status"]["conditions"]
    return {row["type"]: (row["status"], row["reason"]) for row in rows}


async def events(plane: Plane, about: str) -> list[tuple[str, str]]:
    listed = (await plane.client.list(EVENTS)).items
    return [(e["reason"], e["message"]) for e in listed if e["involvedObject"]["name"] == about]


async def add_pod(plane: Plane, name: str, node: str, *, running: bool = True, **spec: Any) -> None:
    full = {
        "containers": [{"name": "c", "image": "i"}],
        "nodeName": node,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        **spec,
    }
    await plane.client.create(PODS, "default", {"metadata": {"name": name}, "spec": full})
    body = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    if running:
        await plane.client.patch(PODS, "default", name, body, MERGE_PATCH, subresource="status")


async def test_a_silent_node_is_marked_tainted_and_loses_its_pods(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("nodelifecycle", "serviceaccount") as plane:
        await add_node(plane, "a")
        await add_node(plane, "b")
        await add_pod(plane, "p", "a")
        await plane.settle(6)
        assert await taints(plane, "a") == []
        assert ("RegisteredNode", "Node a event: Registered Node a in Controller") in await events(
            plane, "a"
        )
        await keep_alive(plane, 50, "b")
        assert await conditions(plane, "a") == {
            "Ready": ("Unknown", "NodeStatusUnknown"),
            "MemoryPressure": ("Unknown", "NodeStatusNeverUpdated"),
            "DiskPressure": ("Unknown", "NodeStatusNeverUpdated"),
            "PIDPressure": ("Unknown", "NodeStatusNeverUpdated"),
        }
        assert await taints(plane, "a") == [
            ("unreachable", "NoSchedule"),
            ("unreachable", "NoExecute"),
        ]
        assert await taints(plane, "b") == []
        pod = await plane.get(PODS, "default", "p")
        assert pod["status"]["conditions"][0]["status"] == "False"
        assert ("NodeNotReady", "Node a status is now: NodeNotReady") in await events(plane, "a")
        assert ("NodeNotReady", "Node is not ready") in await events(plane, "p")
        # The pod tolerates that for five minutes, as every pod does.
        await keep_alive(plane, 280, "b")
        assert not await plane.missing(PODS, "default", "p")
        await keep_alive(plane, 30, "b")
        assert await plane.missing(PODS, "default", "p")
        assert ("TaintManagerEviction", "Marking for deletion Pod default/p") in await events(
            plane, "p"
        )


async def test_a_lease_is_a_sign_of_life(control_plane: ContextFactory) -> None:
    async with control_plane("nodelifecycle", "serviceaccount") as plane:
        await add_node(plane, "a")
        lease = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "a"}}
        await plane.client.create(LEASES, "kube-node-lease", lease)
        for _ in range(9):
            renewed = {"spec": {"renewTime": rfc3339_micro(plane.clock.time())}}
            await plane.client.patch(LEASES, "kube-node-lease", "a", renewed, MERGE_PATCH)
            await plane.settle(10)
        assert await conditions(plane, "a") == {"Ready": ("True", "K")}
        await plane.settle(50)
        assert (await conditions(plane, "a"))["Ready"] == ("Unknown", "NodeStatusUnknown")


async def test_a_node_that_comes_back_keeps_its_pods(control_plane: ContextFactory) -> None:
    async with control_plane("nodelifecycle", "serviceaccount") as plane:
        await add_node(plane, "a")
        await add_node(plane, "b")
        await add_pod(plane, "p", "a")
        await plane.settle(6)
        await beat(plane, "a", "False")
        await keep_alive(plane, 20, "b")
        assert await taints(plane, "a") == [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")]
        await keep_alive(plane, 20, "a", "b")
        assert await taints(plane, "a") == []
        assert ("TaintManagerEviction", "Cancelling deletion of Pod default/p") in await events(
            plane, "p"
        )
        await keep_alive(plane, 320, "a", "b")
        assert not await plane.missing(PODS, "default", "p")


async def test_no_pod_is_evicted_when_no_node_is_ready(control_plane: ContextFactory) -> None:
    async with control_plane("nodelifecycle", "serviceaccount") as plane:
        await add_node(plane, "a")
        await add_node(plane, "b")
        await plane.settle(6)
        await plane.settle(60)
        for name in ("a", "b"):
            assert await taints(plane, name) == [("unreachable", "NoSchedule")]
        await keep_alive(plane, 20, "b")
        assert await taints(plane, "b") == []
        await keep_alive(plane, 60, "b")
        assert await taints(plane, "a") == [
            ("unreachable", "NoSchedule"),
            ("unreachable", "NoExecute"),
        ]


async def test_no_execute_taints_of_users_evict_pods(control_plane: ContextFactory) -> None:
    async with control_plane("nodelifecycle", "serviceaccount") as plane:
        await add_node(plane, "a")
        await add_pod(plane, "victim", "a")
        brief = {
            "key": "maint",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 20,
        }
        await add_pod(plane, "brief", "a", tolerations=[brief])
        await add_pod(plane, "firm", "a", tolerations=[{"key": "maint", "operator": "Exists"}])
        await plane.settle(1)
        body = {"spec": {"taints": [{"key": "maint", "value": "now", "effect": "NoExecute"}]}}
        await plane.client.patch(NODES, "", "a", body, MERGE_PATCH)
        await plane.settle(1)
        assert await plane.missing(PODS, "default", "victim") and not await plane.missing(
            PODS, "default", "brief"
        )
        await add_pod(plane, "late", "a", running=False)
        await plane.settle(20)
        assert await plane.missing(PODS, "default", "late") and await plane.missing(
            PODS, "default", "brief"
        )
        assert not await plane.missing(PODS, "default", "firm")


async def test_pods_of_nodes_that_are_gone(control_plane: ContextFactory) -> None:
    async with control_plane("podgc", "serviceaccount") as plane:
        await add_node(plane, "a")
        await add_pod(plane, "p", "a", terminationGracePeriodSeconds=30)
        await plane.settle()
        await plane.client.delete(NODES, "", "a")
        await plane.settle(35)
        assert not await plane.missing(PODS, "default", "p")
        await plane.settle(40)
        assert await plane.missing(PODS, "default", "p")


async def test_too_many_pods_that_have_ended(control_plane: ContextFactory) -> None:
    async with control_plane(
        "podgc", "serviceaccount", settings=ControllerSettings(terminated_pods=2)
    ) as plane:
        await add_node(plane, "a")
        for name in ("p1", "p2", "p3"):
            await add_pod(plane, name, "a")
            body = {"status": {"phase": "Succeeded"}}
            await plane.client.patch(PODS, "default", name, body, MERGE_PATCH, subresource="status")
            await plane.settle(1)
        await plane.settle(25)
        left = [pod["metadata"]["name"] for pod in (await plane.client.list(PODS)).items]
        assert left == ["p2", "p3"]


async def test_nodes_get_ranges_and_give_them_back(control_plane: ContextFactory) -> None:
    async def ranges(plane: Plane, name: str) -> list[str]:
        spec = (await plane.get(NODES, "", name))["spec"]
        assert spec["podCIDR"] == spec["podCIDRs"][0]
        return list(spec["podCIDRs"])

    async with control_plane(
        "nodeipam", settings=ControllerSettings(pod_cidrs=("10.244.0.0/22", "fd00::/48"))
    ) as plane:
        await add_node(plane, "fixed", podCIDR="10.244.1.0/24", podCIDRs=["10.244.1.0/24"])
        await add_node(plane, "a")
        await add_node(plane, "b")
        await plane.settle()
        assert await ranges(plane, "a") == ["10.244.0.0/24", "fd00::/64"]
        assert await ranges(plane, "b") == ["10.244.2.0/24", "fd00:0:0:1::/64"]
        await plane.stop_controllers()
        plane.start_controllers()
        await add_node(plane, "c")
        await plane.settle()
        assert await ranges(plane, "c") == ["10.244.3.0/24", "fd00:0:0:2::/64"]
        await add_node(plane, "d")
        await plane.settle()
        assert "podCIDR" not in (await plane.get(NODES, "", "d"))["spec"]
        assert ("CIDRNotAvailable", "Node d status is now: CIDRNotAvailable") in await events(
            plane, "d"
        )
        await plane.client.delete(NODES, "", "a")
        await plane.settle(60)
        assert (await ranges(plane, "d"))[0] == "10.244.0.0/24"


async def test_a_time_to_live_for_every_node(control_plane: ContextFactory) -> None:
    async with control_plane("ttl") as plane:
        await add_node(plane, "a")
        await plane.settle()
        assert (await plane.get(NODES, "", "a"))["metadata"]["annotations"] == {
            "node.alpha.kubernetes.io/ttl": "0"
        }


# ---- the rules by themselves ----


def test_ranges_are_handed_out_in_turn() -> None:
    from ipaddress import ip_network

    ranges = CidrSet(ip_network("10.0.0.0/22"), 24)
    ranges.occupy(ip_network("10.0.1.0/25"))
    first = ranges.allocate()
    ranges.release(first)
    assert [str(ranges.allocate()) for _ in range(3)] == [
        "10.0.2.0/24",
        "10.0.3.0/24",
        "10.0.0.0/24",
    ]
    with pytest.raises(CidrRangeFull):
        ranges.allocate()


@pytest.mark.parametrize(
    ("ready", "state"),
    [
        ("", ZoneState.NORMAL),
        ("Y", ZoneState.NORMAL),
        ("N", ZoneState.FULL),
        ("NNY", ZoneState.NORMAL),
        ("NNNY", ZoneState.PARTIAL),
        ("NNNYYY", ZoneState.NORMAL),
        ("NNNNYY", ZoneState.PARTIAL),
    ],
)
def test_the_state_of_a_zone(ready: str, state: ZoneState) -> None:
    assert zone_state_of([letter == "Y" for letter in ready]) is state


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0),
        ([{"operator": "Exists"}], None),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": 5}], 5),
        ([{"key": "k", "value": "v"}], None),
        ([{"key": "k", "value": "w"}], 0),
        ([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}], 0),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": -1}], 0),
    ],
)
def test_how_long_a_taint_is_tolerated(tolerations: list[Object], seconds: float | None) -> None:
    assert (
        tolerated_seconds([{"key": "k", "value": "v", "effect": "NoExecute"}], tolerations)
        == seconds
    )


async def _drain(queue: SlowQueue) -> list[str]:
    done: list[str] = []

    async def deal(name: str) -> bool:
        done.append(name)
        return True

    await queue.work(deal)
    return done


async def test_one_node_in_ten_seconds() -> None:

    clock = VirtualClock()
    zones = Zones(clock)
    node = {"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}}}
    queue = zones.queue(node)
    for name in "abcd":
        queue.add(name)
    assert await _drain(queue) == ["a"]
    clock.advance(9)
    assert await _drain(queue) == []
    clock.advance(1)
    assert await _drain(queue) == ["b"]
    # A small zone that is disrupted loses no more nodes; one that fails wholly does, if there
    # are others.
    zone = ":\x00:z"
    zones.update({zone: [False] * 3 + [True], "": [True]})
    clock.advance(100)
    assert await _drain(queue) == []
    zones.update({zone: [False] * 4, "": [True]})
    clock.advance(10)
    assert await _drain(queue) == ["c"]
    assert zones.update({zone: [False] * 4, "": [False]}) == (True, False)
    clock.advance(100)
    assert await _drain(queue) == []
    assert zones.update({zone: [True] * 4, "": [False]}) == (False, True)
