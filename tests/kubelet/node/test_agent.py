from __future__ import annotations

import pytest
from tests.conftest import ContextFactory

from transom.client.api import MERGE_PATCH
from transom.client.resources import CSI_NODES, LEASES, NODES
from transom.kit.clock import parse_rfc3339
from transom.kubelet.node.status import NodeStatus
from transom.machinery.objects import Object
from transom.machines.api import Hardware
from transom.runtime.api import Image, RuntimeStatus

NO_NETWORK = RuntimeStatus(
    "", "", "NetworkPluginNotReady", "docker: network plugin is not ready: cni config uninitialized"
)


async def test_a_linux_node(control_plane: ContextFactory) -> None:
    async with control_plane() as plane:
        plane.agent(
            node_labels={"disk": "ssd"},
            register_with_taints=({"key": "a", "value": "b", "effect": "NoSchedule"},),
            provider_id="sim://n1",
        )
        await plane.settle()
        node = await plane.node()
        meta, spec, status = node["metadata"], node["spec"], node["status"]
        assert meta["labels"] == {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": "n1",
            "kubernetes.io/os": "linux",
            "disk": "ssd",
        }
        assert meta["annotations"] == {
            "volumes.kubernetes.io/controller-managed-attach-detach": "true"
        }
        assert {"key": "a", "value": "b", "effect": "NoSchedule"} in spec["taints"]
        assert spec["providerID"] == "sim://n1"
        assert status["capacity"] == {
            "cpu": "4",
            "ephemeral-storage": "101430960Ki",
            "hugepages-1Gi": "0",
            "hugepages-2Mi": "0",
            "memory": "8Gi",
            "pods": "110",
        }
        # The last digits are those of a real node with such a disk: a tenth is a 32-bit float.
        assert status["allocatable"] == {
            **status["capacity"],
            "ephemeral-storage": "93478772582",
            "memory": "8092Mi",
        }
        assert status["addresses"] == [
            {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "Hostname", "address": "n1"},
        ]
        assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
        assert status["nodeInfo"] == {
            "machineID": "m-id",
            "systemUUID": "s-uuid",
            "bootID": "boot-1",
            "kernelVersion": "5.4.0-42-generic",
            "osImage": "Ubuntu 20.04.1 LTS",
            "containerRuntimeVersion": "docker://19.3.14-sim",
            "kubeletVersion": "v1.20.15",
            "kubeProxyVersion": "v1.20.15",
            "operatingSystem": "linux",
            "architecture": "amd64",
        }
        now = "2020-01-02T03:04:05Z"
        assert status["conditions"] == [
            {
                "type": kind,
                "status": value,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind, value, reason, message in (
                (
                    "MemoryPressure",
                    "False",
                    "KubeletHasSufficientMemory",
                    "kubelet has sufficient memory available",
                ),
                (
                    "DiskPressure",
                    "False",
                    "KubeletHasNoDiskPressure",
                    "kubelet has no disk pressure",
                ),
                (
                    "PIDPressure",
                    "False",
                    "KubeletHasSufficientPID",
                    "kubelet has sufficient PID available",
                ),
                (
                    "Ready",
                    "True",
                    "KubeletReady",
                    "kubelet is posting ready status. AppArmor enabled",
                ),
            )
        ]
        assert await plane.events() == [
            ("Starting", "Starting kubelet."),
            ("NodeHasSufficientMemory", "Node n1 status is now: NodeHasSufficientMemory"),
            ("NodeHasNoDiskPressure", "Node n1 status is now: NodeHasNoDiskPressure"),
            ("NodeHasSufficientPID", "Node n1 status is now: NodeHasSufficientPID"),
            ("NodeAllocatableEnforced", "Updated Node Allocatable limit across pods"),
        ]
        owner = [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": meta["uid"]}]
        csi = await plane.client.get(CSI_NODES, "", "n1")
        assert (csi["metadata"]["ownerReferences"], csi["spec"]["drivers"]) == (owner, None)
        lease = await plane.client.get(LEASES, "kube-node-lease", "n1")
        assert lease["metadata"]["ownerReferences"] == owner
        assert lease["spec"] == {
            "holderIdentity": "n1",
            "leaseDurationSeconds": 40,
            "renewTime": "2020-01-02T03:04:05.000000Z",
        }


async def test_a_windows_node(control_plane: ContextFactory) -> None:
    async with control_plane() as plane:
        from .conftest import WINDOWS, FakeHost

        plane.host = FakeHost(WINDOWS, Hardware(cpus=2, memory=4 << 30, disk=40 << 30))
        plane.agent(kube_reserved={"memory": "1Gi", "cpu": "500m"}, pods_per_core=10)
        await plane.settle()
        node = await plane.node()
        assert node["metadata"]["labels"] == {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "windows",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": "n1",
            "kubernetes.io/os": "windows",
            "node.kubernetes.io/windows-build": "10.0.17763",
        }
        status = node["status"]
        assert status["capacity"] == {
            "cpu": "2",
            "ephemeral-storage": "40Gi",
            "memory": "4Gi",
            "pods": "20",
        }
        assert status["allocatable"] == {
            "cpu": "1500m",
            "ephemeral-storage": "38654705600",
            "memory": "2972Mi",
            "pods": "20",
        }
        info = status["nodeInfo"]
        assert (info["machineID"], info["bootID"], info["kernelVersion"]) == (
            "WIN1",
            "",
            "10.0.17763.1697",
        )
        assert (info["osImage"], info["operatingSystem"]) == (
            "Windows Server 2019 Datacenter",
            "windows",
        )
        ready = await plane.condition("Ready")
        assert ready["message"] == "kubelet is posting ready status"
        assert "NodeAllocatableEnforced" not in dict(await plane.events())


async def test_the_status_is_written_when_it_changes_and_every_five_minutes(
    control_plane: ContextFactory,
) -> None:
    async with control_plane() as plane:
        plane.agent()
        await plane.settle()
        version = (await plane.node())["metadata"]["resourceVersion"]
        await plane.settle(290)
        assert (await plane.node())["metadata"]["resourceVersion"] == version
        renewed = (await plane.client.get(LEASES, "kube-node-lease", "n1"))["spec"]["renewTime"]
        assert plane.clock.time() - parse_rfc3339(renewed) < 11
        await plane.settle(21)
        ready = await plane.condition("Ready")
        assert ready["lastTransitionTime"] == "2020-01-02T03:04:05Z" != ready["lastHeartbeatTime"]
        plane.runtime.present = [
            Image("sha256:a", ("a:1",), ("a@sha256:1",), 5),
            Image("sha256:b", ("b:1", "b:2", "b:3", "b:4", "b:5"), ("b@x",), 9),
        ]
        await plane.settle(11)
        assert (await plane.node())["status"]["images"] == [
            {"names": ["b@x", "b:1", "b:2", "b:3", "b:4"], "sizeBytes": 9},
            {"names": ["a@sha256:1", "a:1"], "sizeBytes": 5},
        ]


async def test_quantities_in_another_notation_are_not_a_change(
    control_plane: ContextFactory,
) -> None:
    async with control_plane() as plane:
        plane.host.hardware = Hardware(disk=100 << 30)
        plane.agent()
        await plane.settle()
        node = await plane.node()
        # of 96636764000, a tenth as a float
        assert node["status"]["allocatable"]["ephemeral-storage"] == "96636764k"
        await plane.settle(60)
        assert (await plane.node())["metadata"]["resourceVersion"] == node["metadata"][
            "resourceVersion"
        ]


async def test_a_network_that_comes_later(control_plane: ContextFactory) -> None:
    async with control_plane() as plane:
        plane.runtime.problem = NO_NETWORK
        plane.agent()
        await plane.settle()
        ready = await plane.condition("Ready")
        assert (ready["status"], ready["reason"]) == ("False", "KubeletNotReady")
        assert ready["message"] == (
            "runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
            "message:docker: network plugin is not ready: cni config uninitialized"
        )
        plane.runtime.problem = RuntimeStatus()
        given = {"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}}
        await plane.client.patch(NODES, "", "n1", given, MERGE_PATCH)
        await plane.settle(0.01)
        assert (await plane.condition("Ready"))["status"] == "True"
        await plane.settle()
        assert (await plane.events())[-1] == ("NodeReady", "Node n1 status is now: NodeReady")


async def test_a_network_that_comes_without_a_change_of_the_node(
    control_plane: ContextFactory,
) -> None:
    async with control_plane() as plane:
        plane.runtime.problem = NO_NETWORK
        plane.agent()
        await plane.settle(30)
        assert (await plane.condition("Ready"))["status"] == "False"
        plane.runtime.problem = RuntimeStatus()
        await plane.settle(2)
        assert (await plane.condition("Ready"))["status"] == "True"


async def test_a_node_that_waits_for_its_network_computes_its_status_at_heartbeats_only(
    control_plane: ContextFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = 0
    compute = NodeStatus.compute

    def count(status: NodeStatus, node: Object) -> Object:
        nonlocal computed
        computed += 1
        return compute(status, node)

    async with control_plane() as plane:
        plane.runtime.problem = NO_NETWORK
        plane.agent()
        await plane.settle()
        monkeypatch.setattr(NodeStatus, "compute", count)
        await plane.settle(100)
        assert 9 <= computed <= 11


async def test_a_heartbeat_reads_the_status_of_the_runtime_once(
    control_plane: ContextFactory,
) -> None:
    async with control_plane() as plane:
        plane.agent()
        await plane.settle()
        before = plane.runtime.reads
        await plane.settle(100)
        assert 9 <= plane.runtime.reads - before <= 11


async def test_a_runtime_that_is_down(control_plane: ContextFactory) -> None:
    async with control_plane() as plane:
        plane.agent()
        await plane.settle()
        plane.runtime.problem = NO_NETWORK._replace(
            runtime_reason="DockerDaemonNotReady", runtime_message="no answer"
        )
        await plane.settle(45)
        message = (await plane.condition("Ready"))["message"]
        assert message.startswith(
            "[container runtime is down, Container runtime not ready: RuntimeReady=false "
            "reason:DockerDaemonNotReady message:no answer, runtime network not ready: "
        )
        assert "NodeNotReady" in dict(await plane.events())


async def test_pressure(control_plane: ContextFactory) -> None:
    class Short:
        def memory(self) -> bool:
            return True

        def disk(self) -> bool:
            return False

        def pid(self) -> bool:
            return False

    async with control_plane() as plane:
        agent = plane.agent()
        await plane.settle()
        agent.set_pressures(Short())
        await plane.settle(11)
        condition = await plane.condition("MemoryPressure")
        assert (condition["status"], condition["reason"]) == (
            "True",
            "KubeletHasInsufficientMemory",
        )
        assert dict(await plane.events())["NodeHasInsufficientMemory"]


async def test_a_kubelet_that_comes_back_puts_its_own_labels_right_and_leaves_the_others(
    control_plane: ContextFactory,
) -> None:
    async with control_plane() as plane:
        plane.agent()
        await plane.settle()
        await plane.stop()
        changes = {
            "metadata": {"labels": {"kubernetes.io/os": "other", "mine": "1"}},
            "spec": {"unschedulable": True},
            "status": {"capacity": {"example.com/dongle": "4"}},
        }
        await plane.client.patch(NODES, "", "n1", changes, MERGE_PATCH)
        await plane.client.patch(NODES, "", "n1", changes, MERGE_PATCH, subresource="status")
        plane.host.identity = plane.host.identity._replace(boot_id="boot-2")
        plane.agent(
            node_labels={"late": "1"},
            register_with_taints=({"key": "late", "effect": "NoSchedule"},),
        )
        await plane.settle()
        node = await plane.node()
        labels = node["metadata"]["labels"]
        assert (labels["kubernetes.io/os"], labels["mine"], "late" in labels) == (
            "linux",
            "1",
            False,
        )
        assert not any(taint["key"] == "late" for taint in node["spec"]["taints"])
        assert (
            node["status"]["capacity"]["example.com/dongle"]
            == "4"
            == node["status"]["allocatable"]["example.com/dongle"]
        )
        assert node["status"]["nodeInfo"]["bootID"] == "boot-2"
        recorded = dict(await plane.events())
        assert recorded["Rebooted"] == "Node n1 has been rebooted, boot id: boot-2"
        assert recorded["NodeNotSchedulable"] == "Node n1 status is now: NodeNotSchedulable"


async def test_a_deleted_node_does_not_come_back(control_plane: ContextFactory) -> None:
    async with control_plane() as plane:
        agent = plane.agent()
        await plane.settle()
        await plane.client.delete(NODES, "", "n1")
        await plane.client.delete(LEASES, "kube-node-lease", "n1")
        await plane.settle(30)
        assert agent.node() is None
        assert (await plane.client.list(NODES)).items == []
        assert (await plane.client.list(LEASES, "kube-node-lease")).items == []
