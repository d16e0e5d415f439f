"""Nodes with stacks and files, and flannel on them as a cluster sets it up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from transom.kit.clock import VirtualClock
from transom.machines.api import Files
from transom.machines.linux import LinuxHost
from transom.machines.windows.hns import Adapter, HostNetworkService
from transom.machines.windows.host import WindowsHost
from transom.network import winhost
from transom.network.cni import defaults, flannelconf
from transom.network.cni.flanneld import Flanneld
from transom.network.cni.leases import SubnetLeases
from transom.network.cni.plugin import CniCall, CniError, CniNode, Command, Result
from transom.network.cni.podnetwork import CniPodNetwork
from transom.network.cni.runner import in_process
from transom.network.stacks import Fabric, NetworkLink
from transom.windows.builds import BUILDS

CLUSTER, SERVICES, UNDERLAY = "10.244.0.0/16", "10.96.0.0/12", "172.18.0.0/16"


@dataclass
class Cni:
    """A node and its plugins."""

    machine: CniNode
    ip: str

    @property
    def files(self) -> Files:
        return self.machine.files

    @property
    def hns(self) -> HostNetworkService:
        assert self.machine.hns is not None
        return self.machine.hns

    def sandbox(self, name: str) -> str:
        """A stack, and the path of its namespace."""
        self.machine.fabric.add(
            f"{self.machine.stack.name}/{name}", "sandbox", "linux", node=self.machine.stack.name
        )
        path = f"/var/run/netns/{name}"
        self.machine.namespaces[path] = f"{self.machine.stack.name}/{name}"
        return path

    def call(
        self,
        command: Command,
        config: dict[str, Any],
        container: str = "c1",
        netns: str = "",
        **args: str,
    ) -> Any:
        conf = {"cniVersion": "0.4.0", "name": "net", **config}
        call = CniCall(
            command,
            container,
            netns or f"/var/run/netns/{container}",
            "eth0",
            args,
            "/opt/cni/bin",
            conf,
        )
        return in_process(self.machine)(config["type"], call)

    def add(self, config: dict[str, Any], container: str = "c1", **args: str) -> Result:
        result = self.call("ADD", config, container, **args)
        assert isinstance(result, dict)
        return result

    def refused(
        self, command: Command, config: dict[str, Any], container: str = "c1", **args: str
    ) -> str:
        with pytest.raises(CniError) as caught:
            self.call(command, config, container, **args)
        return str(caught.value)


@dataclass
class Cluster:
    fabric: Fabric
    leases: SubnetLeases

    def linux(self, name: str, number: int) -> Cni:
        stack = self.fabric.add(name, "node", "linux")
        ip = f"172.18.0.{number}"
        stack.add_link(NetworkLink("eth0", "ethernet"))
        stack.add_address("eth0", f"{ip}/16")
        stack.replace_route("0.0.0.0/0", "eth0", "172.18.0.1")
        return Cni(
            CniNode(LinuxHost(name, VirtualClock()).files, stack, self.fabric, None, "linux"), ip
        )

    def windows(self, name: str, number: int, build: int = 17763) -> Cni:
        ip = f"172.18.0.{number}"
        hns = HostNetworkService(
            BUILDS[build],
            [Adapter("Ethernet", f"00-15-5D-00-00-{number:02X}", f"{ip}/16", "172.18.0.1")],
            seed=name,
        )
        stack = self.fabric.add(name, "node", "windows", hns=hns)
        winhost.bind_windows_host(stack, hns)
        host = WindowsHost(name, VirtualClock(), build=BUILDS[build])
        return Cni(CniNode(host.files, stack, self.fabric, hns, "windows"), ip)

    def flannel(
        self, node: Cni, cidr: str, backend: dict[str, Any] | None = None, **more: Any
    ) -> Flanneld:
        """Started, with its lease where all see it."""
        conf = flannelconf.parse_flannel_conf(
            defaults.net_conf(CLUSTER, backend or defaults.host_gw_net_conf())
        )
        agent = Flanneld(
            node.machine.stack.name, node.machine, self.leases, conf, public_ip=node.ip, **more
        )
        agent.start([cidr])
        assert agent.lease is not None
        self.leases.put(agent.lease)
        return agent

    def pods(
        self,
        node: Cni,
        cidr: str,
        runtime: Literal["docker", "containerd"] = "containerd",
        mode: Literal["l2bridge", "overlay"] = "l2bridge",
        **more: Any,
    ) -> CniPodNetwork:
        """A node that is ready for pods."""
        self.flannel(
            node,
            cidr,
            defaults.host_gw_net_conf() if mode == "l2bridge" else defaults.vxlan_net_conf(),
        )
        os = node.machine.os
        directory, name = defaults.config_file_place(os, runtime)
        data = (
            defaults.linux_conflist()
            if os == "linux"
            else defaults.windows_conflist(
                mode,
                clusters=[CLUSTER],
                services=[SERVICES],
                management=[UNDERLAY],
                node_ip=node.ip,
                dns=["10.96.0.10"],
                runtime=runtime,
            )
        )
        node.files.mkdir(directory)
        node.files.write(directory + ("\\" if os == "windows" else "/") + name, data)
        network = CniPodNetwork(node.machine, runtime, **more)
        network.cidr = cidr
        return network


@pytest.fixture
def cluster() -> Cluster:
    fabric, leases = Fabric(UNDERLAY), SubnetLeases()
    fabric.before_look.append(leases.look)
    return Cluster(fabric, leases)


@pytest.fixture
def node(cluster: Cluster) -> Cni:
    return cluster.linux("n1", 3)


MakeCluster = Callable[[], Cluster]
