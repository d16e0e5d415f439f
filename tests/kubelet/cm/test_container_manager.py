"""Exclusive CPUs on whole nodes: what pods, their containers and the state file show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.kubelet.test_kubelet import log, phase, shell

from transom.client.api import STRATEGIC_PATCH
from transom.client.resources import NODES, PODS
from transom.kubelet.kubelet import BadConfiguration
from transom.machinery.releases import Release
from transom.machines.api import Hardware

CURRENT = Release(1, 36)
STATIC = {"cpu_manager_policy": "static", "kube_reserved": {"cpu": "500m"}}
SHOW = "grep Cpus_allowed_list /proc/self/status; cat /sys/fs/cgroup/cpuset.cpus; nproc; sleep 1000"


def settings(hardware: Hardware | None = None, **more: Any) -> Any:
    machine = {"hardware": hardware or Hardware(cpus=8)}
    return {"flavour": "containerd", "release": CURRENT, "machine": machine, **STATIC, **more}


def wants(cpu: str, memory: str = "64Mi", **more: Any) -> Any:
    return shell(SHOW, resources={"limits": {"cpu": cpu, "memory": memory}}, **more)


def cpus(node: Any, pod: Any) -> list[str]:
    return log(node, pod).replace("Cpus_allowed_list:\t", "").split("\n")


def state(node: Any) -> Any:
    return json.loads(node.host.files.read("/var/lib/kubelet/cpu_manager_state"))


async def rejected(node: Any, name: str) -> tuple[str, str]:
    status = (await phase(node, name, "Failed"))["status"]
    return status["reason"], status["message"]


async def test_a_guaranteed_pod_gets_cpus_for_itself(node: Any) -> None:
    async with node("linux", **settings()) as node:
        await node.create("shared", containers=[shell(SHOW)])
        assert cpus(node, await phase(node, "shared", "Running")) == ["0-7", "0-7", "8"]
        await node.create("p", containers=[wants("2")])
        pod = await phase(node, "p", "Running")
        assert cpus(node, pod) == ["1-2", "1-2", "2"]
        uid = pod["metadata"]["uid"]
        saved = state(node)
        assert (saved["policyName"], saved["defaultCpuSet"]) == ("static", "0,3-7")
        assert saved["entries"] == {uid: {"c": "1-2"}}
        [container] = node.runtime.containers(uid)
        assert node.runtime.core.containers[container.id].config.linux.resources.cpu_quota == 0
        await node.settle(11)
        [other] = [c for c in node.runtime.containers() if c.id != container.id]
        resources = node.runtime.core.containers[other.id].config.linux.resources
        assert resources.cpuset_cpus == "0,3-7"
        await node.client.delete(PODS, "default", "p", grace=0)
        await node.settle(22)
        assert "entries" not in state(node) and state(node)["defaultCpuSet"] == "0-7"
        resources = node.runtime.core.containers[other.id].config.linux.resources
        assert resources.cpuset_cpus == "0-7"


@pytest.mark.parametrize(
    "container",
    [
        wants("1500m"),
        shell(SHOW, resources={"requests": {"cpu": "2"}, "limits": {"memory": "64Mi"}}),
    ],
)
async def test_other_pods_share_the_rest(node: Any, container: Any) -> None:
    async with node("linux", **settings()) as node:
        await node.create("p", containers=[container])
        assert cpus(node, await phase(node, "p", "Running"))[0] == "0-7"
        assert "entries" not in state(node)


async def test_the_containers_use_the_cpus_of_init_containers(node: Any) -> None:
    async with node("linux", **settings()) as node:
        first = {**wants("3", name="init"), "command": ["true"]}
        await node.create("p", initContainers=[first], containers=[wants("2")])
        pod = await phase(node, "p", "Running")
        found = state(node)["entries"][pod["metadata"]["uid"]]
        assert found == {"init": "1-3", "c": "1-2"}


async def test_a_restarted_kubelet_keeps_the_cpus(node: Any) -> None:
    async with node("linux", **settings()) as node:
        await node.create("p", containers=[wants("2")])
        await phase(node, "p", "Running")
        before = state(node)
        await node.stop_kubelet()
        await node.start_kubelet()
        await node.settle(15)
        assert state(node) == before
        await node.create("q", containers=[wants("2")])
        assert cpus(node, await phase(node, "q", "Running"))[0] == "3-4"


async def test_too_few_cpus_are_left(node: Any) -> None:
    async with node("linux", **settings(Hardware(cpus=4), kube_reserved={"cpu": "1"})) as node:
        await node.create("p", containers=[wants("2")])
        await phase(node, "p", "Running")
        await node.create("q", containers=[wants("2")])
        assert await rejected(node, "q") == (
            "UnexpectedAdmissionError",
            "Pod was rejected: Allocate failed due to not enough cpus available to satisfy request: "
            "requested=2, available=1, which is unexpected",
        )


@pytest.mark.parametrize(
    ("release", "policy"), [(CURRENT, 'policy "static"'), (Release(1, 33), "static policy")]
)
async def test_guaranteed_pods_keep_their_cpus(node: Any, release: Release, policy: str) -> None:
    async with node("linux", **{**settings(), "release": release}) as node:
        await node.create("p", containers=[wants("2")])
        await phase(node, "p", "Running")
        problem = f"Resize is infeasible for Guaranteed Pods alongside CPU Manager {policy}"
        memory_only = "" if release == CURRENT else problem
        assert await resize_problem(node, {"cpu": "2", "memory": "128Mi"}) == memory_only
        assert await resize_problem(node, {"cpu": "3", "memory": "128Mi"}) == problem


async def resize_problem(node: Any, limits: Any) -> str:
    resources = {"requests": limits, "limits": limits}
    body = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
    await node.client.patch(PODS, "default", "p", body, STRATEGIC_PATCH, subresource="resize")
    await node.settle(5)
    conditions = (await node.pod("p"))["status"]["conditions"]
    found = next((c for c in conditions if c["type"] == "PodResizePending"), None)
    assert found is None or found["reason"] == "Infeasible"
    return found["message"] if found is not None else ""


@pytest.mark.parametrize(
    ("cpu", "text"),
    [
        ("1", "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"),
        (
            "8",
            "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, "
            "requested CPUs = 8, CPUs per core = 2",
        ),
    ],
)
async def test_only_whole_cores_are_given(node: Any, cpu: str, text: str) -> None:
    hardware = Hardware(cpus=8, threads_per_core=2)
    options = {"cpu_manager_policy_options": {"full-pcpus-only": "true"}}
    async with node("linux", **settings(hardware, **options)) as node:
        await node.create("good", containers=[wants("2")])
        assert cpus(node, await phase(node, "good", "Running"))[0] == "1,5"
        await node.client.delete(PODS, "default", "good", grace=0)
        await node.settle(12)
        await node.create("p", containers=[wants(cpu)])
        assert await rejected(node, "p") == ("SMTAlignmentError", f"Pod was rejected: {text}")


@pytest.mark.parametrize(
    ("policy", "cpu", "admitted"),
    [
        ("single-numa-node", "4", True),
        ("single-numa-node", "5", False),
        ("restricted", "5", True),
        ("best-effort", "5", True),
    ],
)
async def test_cpus_of_one_numa_node(node: Any, policy: str, cpu: str, admitted: bool) -> None:
    more = {"topology_manager_policy": policy}
    async with node("linux", **settings(Hardware(cpus=8, numa_nodes=2), **more)) as node:
        await node.create("p", containers=[wants(cpu)])
        if admitted:
            found = cpus(node, await phase(node, "p", "Running"))[0]
            assert found == ("4-7" if cpu == "4" else "1,4-7")
        else:
            assert await rejected(node, "p") == (
                "TopologyAffinityError",
                "Pod was rejected: Resources cannot be allocated with Topology locality",
            )


@pytest.mark.parametrize(("scope", "admitted"), [("container", True), ("pod", False)])
async def test_the_scope_is_a_container_or_the_pod(node: Any, scope: str, admitted: bool) -> None:
    more = {"topology_manager_policy": "single-numa-node", "topology_manager_scope": scope}
    async with node("linux", **settings(Hardware(cpus=8, numa_nodes=2), **more)) as node:
        await node.create("p", containers=[wants("3"), wants("3", name="d")])
        await phase(node, "p", "Running" if admitted else "Failed")


async def test_older_kubelets_also_have_a_quota(node: Any) -> None:
    more = {**settings(Hardware(cpus=4)), "release": Release(1, 20)}
    async with node("linux", **more) as node:
        await node.create("p", containers=[wants("2")])
        pod = await phase(node, "p", "Running")
        assert cpus(node, pod)[0] == "1-2"
        [container] = node.runtime.containers(pod["metadata"]["uid"])
        quota = node.runtime.core.containers[container.id].config.linux.resources.cpu_quota
        assert quota == 200_000


async def test_the_default_policy_only_writes_its_file(node: Any) -> None:
    async with node("linux", release=CURRENT, flavour="containerd") as node:
        await node.create("p", containers=[wants("1")])
        assert cpus(node, await phase(node, "p", "Running"))[0] == "0-3"
        data = node.host.files.read("/var/lib/kubelet/cpu_manager_state")
        assert data == b'{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'


async def test_kubelets_without_the_manager_have_no_file(node: Any) -> None:
    async with node("linux", feature_gates={"CPUManager": False}) as linux:
        assert not linux.host.files.exists("/var/lib/kubelet/cpu_manager_state")


@pytest.mark.parametrize(
    ("release", "changes", "problem"),
    [
        (CURRENT, {"cpu_manager_policy": "dynamic"}, 'unknown policy: "dynamic"'),
        (
            CURRENT,
            {"kube_reserved": {}},
            "[cpumanager] unable to determine reserved CPU resources for static policy",
        ),
        (
            CURRENT,
            {"cpu_manager_policy_options": {"full-pcpus": "true"}},
            'new static policy error: unknown CPU Manager Policy option: "full-pcpus"',
        ),
        (
            CURRENT,
            {"cpu_manager_policy_options": {"align-by-socket": "true"}},
            "new static policy error: CPU Manager Policy Alpha-level Options not enabled, "
            'but option "align-by-socket" provided',
        ),
        (
            CURRENT,
            {"cpu_manager_policy_options": {"full-pcpus-only": "yes"}},
            'new static policy error: bad value for option "full-pcpus-only": '
            'strconv.ParseBool: parsing "yes": invalid syntax',
        ),
        (
            Release(1, 22),
            {"cpu_manager_policy_options": {"full-pcpus-only": "true"}},
            "CPU Manager policy options map[full-pcpus-only:true] require feature gates "
            '"CPUManager", "CPUManagerPolicyOptions" enabled',
        ),
        (
            CURRENT,
            {"cpu_manager_policy": "none", "cpu_manager_policy_options": {"full-pcpus-only": "1"}},
            "new none policy error: None policy: received unsupported options="
            "map[full-pcpus-only:1]",
        ),
        (
            CURRENT,
            {"topology_manager_policy": "numa"},
            "invalid configuration: topologyManagerPolicy (--topology-manager-policy) "
            '"numa" must be one of: ["none" "best-effort" "restricted" "single-numa-node"]',
        ),
        (
            Release(1, 20),
            {"topology_manager_policy": "numa"},
            "invalid configuration: topologyManagerPolicy non-allowable value: numa",
        ),
        (
            CURRENT,
            {"topology_manager_scope": "node"},
            "invalid configuration: topologyManagerScope (--topology-manager-scope) "
            '"node" must be one of: "container", or "pod"',
        ),
        (
            Release(1, 32),
            {
                "topology_manager_policy": "restricted",
                "topology_manager_policy_options": {"max-allowable-numa-nodes": "4"},
            },
            'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
        ),
        (
            CURRENT,
            {"reserved_system_cpus": "7-9"},
            "reserved-cpus: 7-9 is not a subset of online-cpus: 0-7",
        ),
        (
            CURRENT,
            {"kube_reserved": {"cpu": "500m"}, "reserved_system_cpus": "x"},
            "invalid configuration: unable to parse reservedSystemCPUs (--reserved-cpus) x, "
            'error: strconv.Atoi: parsing "x": invalid syntax',
        ),
    ],
)
async def test_a_kubelet_refuses_wrong_settings(
    node: Any, release: Release, changes: Mapping[str, Any], problem: str
) -> None:
    with pytest.raises(BadConfiguration) as failure:
        async with node("linux", **{**settings(**changes), "release": release}):
            pass
    assert str(failure.value) == problem


async def test_the_policy_cannot_change_while_the_file_exists(node: Any) -> None:
    async with node("linux", **settings()) as node:
        await node.stop_kubelet()
        path = "/var/lib/kubelet/cpu_manager_state"
        none = b'{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
        node.host.files.write(path, none)
        with pytest.raises(BadConfiguration) as failure:
            await node.start_kubelet()
        assert str(failure.value) == (
            "start cpu manager error: could not restore state from checkpoint: "
            'configured policy "static" differs from state checkpoint policy "none", please drain '
            f'this node and delete the CPU manager checkpoint file "{path}" before restarting Kubelet'
        )
        node.host.files.remove(path)
        await node.start_kubelet()
        assert state(node)["defaultCpuSet"] == "0-7"


async def test_reserved_cpus_are_chosen_by_number(node: Any) -> None:
    async with node("linux", **settings(kube_reserved={}, reserved_system_cpus="0,7")) as node:
        await node.settle(2)
        found = await node.client.get(NODES, "", "node1")
        assert found["status"]["allocatable"]["cpu"] == "6"
        await node.create("p", containers=[wants("6")])
        assert cpus(node, await phase(node, "p", "Running"))[0] == "1-6"
