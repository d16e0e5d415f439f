"""CPUs and NUMA nodes of containers on Windows, with the gate WindowsCPUAndMemoryAffinity."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.kubelet.test_kubelet import log, phase

from transom.client.resources import PODS
from transom.kubelet.config import MemoryReservation
from transom.kubelet.kubelet import BadConfiguration
from transom.machinery.releases import Release
from transom.machines.api import Hardware

CURRENT = Release(1, 36)
GATE = {"WindowsCPUAndMemoryAffinity": True}
STATIC = {"cpu_manager_policy": "static", "kube_reserved": {"cpu": "500m"}}
STATE = r"C:\var\lib\kubelet\cpu_manager_state"
IMAGE = "mcr.microsoft.com/windows/nanoserver:1809"
MEMORY = {
    "memory_manager_policy": "BestEffort",
    "reserved_memory": (MemoryReservation(0, {"memory": "500Mi"}),),
}


def settings(release: Release = CURRENT, hardware: Hardware | None = None, **more: Any) -> Any:
    machine = {"hardware": hardware or Hardware(cpus=8)}
    return {
        "flavour": "containerd",
        "release": release,
        "machine": machine,
        "feature_gates": GATE,
        **STATIC,
        **more,
    }


def container(cpu: str = "") -> Any:
    limits = {"limits": {"cpu": cpu, "memory": "256Mi"}} if cpu else {}
    return {
        "name": "c",
        "image": IMAGE,
        "command": ["ping", "-t", "localhost"],
        "resources": limits,
    }


def cpuset(node: Any, pod: Any) -> str:
    [found] = node.runtime.containers(pod["metadata"]["uid"])
    windows = node.runtime.core.containers[found.id].config.windows
    return str(windows.resources.cpuset)


def state(node: Any) -> Any:
    return json.loads(node.host.files.read(STATE))


@pytest.mark.windows("W-RES-19", "SUP-RES-119")
async def test_a_guaranteed_pod_gets_cpus_for_itself(node: Any) -> None:
    async with node("windows", **settings()) as node:
        await node.create("shared", containers=[container()])
        shared = await phase(node, "shared", "Running")
        assert cpuset(node, shared) == "0-7"
        await node.create("p", containers=[container("2")])
        pod = await phase(node, "p", "Running")
        assert cpuset(node, pod) == "1-2"
        assert state(node)["entries"] == {pod["metadata"]["uid"]: {"c": "1-2"}}
        await node.settle(11)
        assert cpuset(node, shared) == "0,3-7"
        [found] = node.runtime.containers(pod["metadata"]["uid"])
        windows = node.runtime.core.containers[found.id].config.windows
        assert windows.resources.memory_limit == 256 << 20  # unlike its CPUs, as it was created
        await node.client.delete(PODS, "default", "p", grace=0)
        await node.settle(22)
        assert cpuset(node, shared) == "0-7"


async def test_programs_see_their_cpus(node: Any) -> None:
    script = "(Get-Process -Id $PID).ProcessorAffinity; Start-Sleep 1000"
    async with node("windows", **settings()) as node:
        image = "mcr.microsoft.com/windows/servercore:ltsc2019"
        made = {**container("2"), "image": image, "command": ["powershell", "-Command", script]}
        await node.create("p", containers=[made])
        assert log(node, await phase(node, "p", "Running")).split() == [str(0b110)]


async def test_too_few_cpus_are_left(node: Any) -> None:
    async with node("windows", **settings(hardware=Hardware(cpus=4))) as node:
        for name in ("p", "q"):
            await node.create(name, containers=[container("2")])
        status = (await phase(node, "q", "Failed"))["status"]
        assert status["reason"] == "UnexpectedAdmissionError"
        assert "not enough cpus available to satisfy request" in status["message"]


@pytest.mark.windows("W-RES-19", "W-GATE-04")
@pytest.mark.parametrize(
    ("release", "gates"), [(CURRENT, {}), (Release(1, 31), {}), (Release(1, 32), {})]
)
async def test_without_the_gate_cpus_are_not_managed(node: Any, release: Any, gates: Any) -> None:
    async with node("windows", **settings(release, feature_gates=gates)) as node:
        await node.create("p", containers=[container("2")])
        assert cpuset(node, await phase(node, "p", "Running")) == ""
        assert not node.host.files.exists(STATE)


@pytest.mark.parametrize(
    ("release", "policy", "expected"),
    [
        (CURRENT, "none", "0-3"),  # those of its NUMA node
        (CURRENT, "static", "1-2"),
        (Release(1, 37), "static", "1-2"),
    ],
)
async def test_memory_of_a_numa_node_is_used_from_its_cpus(
    node: Any, release: Release, policy: str, expected: str
) -> None:
    hardware = Hardware(cpus=8, numa_nodes=2)
    more = {**MEMORY, "cpu_manager_policy": policy}
    async with node("windows", **settings(release, hardware, **more)) as node:
        await node.create("p", containers=[container("2")])
        assert cpuset(node, await phase(node, "p", "Running")) == expected


async def test_the_static_policy_needs_reserved_cpus(node: Any) -> None:
    with pytest.raises(BadConfiguration, match="unable to determine reserved CPU resources"):
        async with node("windows", **settings(kube_reserved={})):
            pass


@pytest.mark.windows("W-RES-22", "SUP-RES-122")
@pytest.mark.parametrize("gates", [GATE, {}])
async def test_cpus_of_two_numa_nodes_do_not_fit_one(node: Any, gates: Any) -> None:
    """The pod needs more CPUs than a NUMA node has."""
    more = {
        "topology_manager_policy": "single-numa-node",
        "feature_gates": gates,
    }
    async with node("windows", **settings(CURRENT, Hardware(cpus=8, numa_nodes=2), **more)) as node:
        await node.create("p", containers=[container("6")])
        status = (await phase(node, "p", "Failed" if gates else "Running"))["status"]
        assert status.get("reason") == ("TopologyAffinityError" if gates else None)


@pytest.mark.windows("W-POD-16", "WIN-POD-116", "W-GATE-19")
async def test_resources_of_pods_give_no_cpus_on_windows(node: Any) -> None:
    """The kubelet rejects the pod, and its managers assign nothing to it."""
    gates = {**GATE, "PodLevelResources": True, "PodLevelResourceManagers": True}
    more = {"topology_manager_scope": "pod", "feature_gates": gates}
    async with node("windows", **settings(CURRENT, **more)) as node:
        limits = {"limits": {"cpu": "2", "memory": "256Mi"}}
        await node.create("p", resources=limits, containers=[container()])
        status = (await phase(node, "p", "Failed"))["status"]
        assert status["reason"] == "PodLevelResourcesNotSupported"
        assert state(node).get("entries") in (None, {})
