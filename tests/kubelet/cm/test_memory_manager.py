"""Memory of chosen NUMA nodes: what pods, their containers and the state file show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.kubelet.test_kubelet import log, phase, shell

from transom.client.resources import PODS
from transom.kit.prometheus import render_metrics
from transom.kubelet.config import MemoryReservation
from transom.kubelet.kubelet import BadConfiguration
from transom.machinery.releases import Release
from transom.machines.api import Hardware

CURRENT = Release(1, 36)
GI = 1 << 30
TWO = Hardware(cpus=8, memory=8 * GI, numa_nodes=2)
RESERVED = (
    MemoryReservation(0, {"memory": "612Mi"}),
    MemoryReservation(1, {"memory": "512Mi"}),
)
STATIC = {
    "memory_manager_policy": "Static",
    "kube_reserved": {"memory": "1Gi"},  # and 100Mi of the eviction threshold
    "reserved_memory": RESERVED,
}
SHOW = (
    "cat /sys/fs/cgroup/cpuset.mems; grep Mems_allowed_list /proc/self/status; "
    "cat /sys/fs/cgroup/cpuset.mems.effective; sleep 1000"
)
PATH = "/var/lib/kubelet/memory_manager_state"


def settings(hardware: Hardware = TWO, **more: Any) -> Any:
    machine = {"hardware": hardware}
    return {"flavour": "containerd", "release": CURRENT, "machine": machine, **STATIC, **more}


def wants(memory: str, cpu: str = "500m", **more: Any) -> Any:
    return shell(SHOW, resources={"limits": {"cpu": cpu, "memory": memory}}, **more)


def state(node: Any) -> Any:
    return json.loads(node.host.files.read(PATH))


def free(node: Any) -> list[int]:
    nodes = state(node)["machineState"]
    return [nodes[number]["memoryMap"]["memory"]["free"] for number in sorted(nodes)]


async def rejected(node: Any, name: str) -> tuple[str, str]:
    status = (await phase(node, name, "Failed"))["status"]
    return status["reason"], status["message"]


def metrics(node: Any, manager: str) -> list[str]:
    text = render_metrics(node.kubelet.server.metrics.collect())
    return [line for line in text.split("\n") if line.startswith(f"kubelet_{manager}_manager_")]


async def test_a_guaranteed_pod_gets_memory_of_one_numa_node(node: Any) -> None:
    async with node("linux", **settings()) as node:
        empty = [4 * GI - 612 * (1 << 20), 4 * GI - 512 * (1 << 20)]
        assert free(node) == empty
        await node.create("p", containers=[wants("1Gi")])
        pod = await phase(node, "p", "Running")
        assert log(node, pod).split("\n") == ["0", "Mems_allowed_list:\t0", "0"]
        saved, uid = state(node), pod["metadata"]["uid"]
        assert saved["policyName"] == "Static"
        block = {"numaAffinity": [0], "type": "memory", "size": GI}
        assert saved["entries"] == {uid: {"c": [block]}}
        first = saved["machineState"]["0"]
        assert (first["numberOfAssignments"], first["cells"]) == (1, [0])
        assert first["memoryMap"]["memory"] == {
            "total": 4 * GI,
            "systemReserved": 612 * (1 << 20),
            "allocatable": empty[0],
            "reserved": GI,
            "free": empty[0] - GI,
        }
        assert sorted(first["memoryMap"]) == ["hugepages-1Gi", "hugepages-2Mi", "memory"]
        await node.client.delete(PODS, "default", "p", grace=0)
        await node.settle(5)
        await node.create("q", containers=[shell(SHOW)])
        pod = await phase(node, "q", "Running")
        assert log(node, pod).split("\n") == ["", "Mems_allowed_list:\t0-1", "0-1"]
        assert "entries" not in state(node) and free(node) == empty


async def test_a_large_container_uses_several_numa_nodes_alone(node: Any) -> None:
    async with node("linux", **settings()) as node:
        await node.create("large", containers=[wants("5Gi")])
        pod = await phase(node, "large", "Running")
        assert log(node, pod).split("\n")[0] == "0,1"
        assert [n["cells"] for n in state(node)["machineState"].values()] == [[0, 1], [0, 1]]
        await node.create("small", containers=[wants("64Mi")])
        # One NUMA node would be enough, but both are used together.
        pod = await phase(node, "small", "Running")
        assert log(node, pod).split("\n")[0] == "0,1"


async def test_too_little_memory_of_a_numa_node_is_left(node: Any) -> None:
    async with node("linux", **settings()) as node:
        for name in ("a", "b"):
            await node.create(name, containers=[wants("3Gi")])
            await phase(node, name, "Running")
        await node.create("c", containers=[wants("800Mi")])
        assert await rejected(node, "c") == (
            "UnexpectedAdmissionError",
            "Pod was rejected: Allocate failed due to [memorymanager] failed to get the default "
            "NUMA affinity, no NUMA nodes with enough memory is available, which is unexpected",
        )
        assert metrics(node, "memory") == [
            "kubelet_memory_manager_pinning_errors_total 1",
            "kubelet_memory_manager_pinning_requests_total 3",
        ]
        assert metrics(node, "topology") == [
            "kubelet_topology_manager_admission_errors_total 0",
            "kubelet_topology_manager_admission_requests_total 3",
        ]


@pytest.mark.parametrize(
    ("policy", "memory", "admitted"),
    [
        ("single-numa-node", "3Gi", True),
        ("single-numa-node", "5Gi", False),
        ("restricted", "5Gi", True),
        ("best-effort", "5Gi", True),
    ],
)
async def test_the_topology_manager_decides(
    node: Any, policy: str, memory: str, admitted: bool
) -> None:
    async with node("linux", **settings(topology_manager_policy=policy)) as node:
        await node.create("p", containers=[wants(memory)])
        if admitted:
            found = log(node, await phase(node, "p", "Running")).split("\n")[0]
            assert found == ("0" if memory == "3Gi" else "0,1")
        else:
            assert await rejected(node, "p") == (
                "TopologyAffinityError",
                "Pod was rejected: Resources cannot be allocated with Topology locality",
            )
            assert "kubelet_topology_manager_admission_errors_total 1" in metrics(node, "topology")


async def test_cpus_and_memory_are_of_the_same_numa_node(node: Any) -> None:
    more = {
        "topology_manager_policy": "single-numa-node",
        "cpu_manager_policy": "static",
        "kube_reserved": {"memory": "1Gi", "cpu": "1"},
    }
    async with node("linux", **settings(**more)) as node:
        await node.create("p", containers=[wants("1Gi", "4")])
        # The first NUMA node has only three CPUs that are not reserved.
        pod = await phase(node, "p", "Running")
        assert log(node, pod).split("\n")[0] == "1"
        assert "kubelet_cpu_manager_pinning_requests_total 1" in metrics(node, "cpu")


async def test_the_memory_of_init_containers_is_used_again(node: Any) -> None:
    async with node("linux", **settings()) as node:
        before = free(node)
        first = {**wants("2Gi", name="init"), "command": ["true"]}
        await node.create("p", initContainers=[first], containers=[wants("1Gi")])
        pod = await phase(node, "p", "Running")
        assert list(state(node)["entries"][pod["metadata"]["uid"]]) == ["c"]
        assert free(node) == [before[0] - GI, before[1]]


async def test_a_restarted_kubelet_keeps_the_memory(node: Any) -> None:
    async with node("linux", **settings()) as node:
        await node.create("p", containers=[wants("1Gi")])
        await phase(node, "p", "Running")
        before = state(node)
        await node.stop_kubelet()
        await node.start_kubelet()
        await node.settle(15)
        assert state(node) == before


async def test_the_default_policy_only_writes_its_file(node: Any) -> None:
    async with node("linux", release=CURRENT, flavour="containerd") as node:
        assert state(node)["policyName"] == "None" and state(node)["machineState"] == {}


async def test_older_kubelets_have_no_memory_manager(node: Any) -> None:
    for release in (Release(1, 20), Release(1, 21)):
        async with node("linux", release=release) as linux:
            assert not linux.host.files.exists(PATH)
            assert metrics(linux, "memory") == []


@pytest.mark.windows("W-RES-20", "W-RES-21")
async def test_windows_nodes_have_the_best_effort_policy(node: Any) -> None:
    gate = {"WindowsCPUAndMemoryAffinity": True}
    reserved = (MemoryReservation(0, {"memory": "500Mi"}),)
    more = {"feature_gates": gate, "memory_manager_policy": "BestEffort"}
    async with node(
        "windows", release=CURRENT, flavour="containerd", reserved_memory=reserved, **more
    ) as node:
        files = node.host.files
        [path] = [p for p in (r"C:\var\lib\kubelet\memory_manager_state",) if files.exists(p)]
        assert json.loads(files.read(path))["policyName"] == "BestEffort"


@pytest.mark.parametrize(
    ("os", "changes", "problem"),
    [
        ("linux", {"memory_manager_policy": "static"}, 'unknown policy: "static"'),
        (
            "linux",
            {"memory_manager_policy": "BestEffort"},
            'policy "BestEffort" is not available for platform "linux"',
        ),
        (
            "windows",
            {"feature_gates": {"WindowsCPUAndMemoryAffinity": True}},
            'policy "Static" is not available on Windows',
        ),
        (
            "linux",
            {"reserved_memory": RESERVED[:1]},
            'the total amount "612Mi" of type "memory" is not equal to the value "1124Mi" '
            "determined by Node Allocatable feature",
        ),
        (
            "linux",
            {"reserved_memory": (MemoryReservation(2, {"memory": "1124Mi"}),)},
            "the reserved memory configuration references a NUMA node 2 that does not exist on "
            "this machine",
        ),
        (
            "linux",
            {"reserved_memory": (), "kube_reserved": {}, "eviction_hard": {}},
            "[memorymanager] you should specify the system reserved memory",
        ),
        (
            "linux",
            {"reserved_memory": (MemoryReservation(0, {"cpu": "1"}),)},
            'invalid configuration: the limit type "cpu" for NUMA node 0 is not supported, only '
            "[memory hugepages-<HugePageSize>] is accepted",
        ),
        (
            "linux",
            {"reserved_memory": (MemoryReservation(0, {"memory": "0"}),)},
            "invalid configuration: reserved memory may not be zero for NUMA node 0 and resource "
            '"memory"',
        ),
        (
            "linux",
            {"reserved_memory": (RESERVED[0], RESERVED[0])},
            "invalid configuration: the reserved memory has a duplicate value for NUMA node 0 and "
            'resource "memory"',
        ),
    ],
)
async def test_a_kubelet_refuses_wrong_settings(
    node: Any, os: str, changes: Mapping[str, Any], problem: str
) -> None:
    with pytest.raises(BadConfiguration) as failure:
        async with node(os, **settings(**changes)):
            pass
    assert str(failure.value) == problem


async def test_the_state_must_fit_the_policy_and_the_machine(node: Any) -> None:
    async with node("linux", **settings()) as node:
        await node.stop_kubelet()
        saved = node.host.files.read(PATH)
        node.host.files.write(PATH, saved.replace(b'"Static"', b'"None"'))
        with pytest.raises(BadConfiguration) as failure:
            await node.start_kubelet()
        assert str(failure.value) == (
            "start memory manager error: could not restore state from checkpoint: checkpoint is "
            "corrupted, please drain this node and delete the memory manager checkpoint file "
            f'"{PATH}" before restarting Kubelet'
        )
        node.host.files.remove(PATH)
        await node.start_kubelet()
