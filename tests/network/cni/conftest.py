"""Nodes with stacks and files, and flannel on them as a cluster sets it up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from transom.hosts.api import Files
from transom.hosts.linux import LinuxHost
from transom.hosts.windows.hns import Adapter, Hns
from transom.hosts.windows.host import WindowsHost
from transom.kit.clock import VirtualClock
from transom.network import winhost
from transom.network.cni import defaults, flannelconf
from transom.network.cni.flanneld import Flanneld
from transom.network.cni.leases import Leases
from transom.network.cni.plugin import Call, CniError, Command, Machine, Result
from transom.network.cni.podnetwork import CniPodNetwork
from transom.network.cni.runner import in_process
from transom.network.stacks import Fabric, Link
from transom.windows.builds import BUILDS

CLUSTER, SERVICES, UNDERLAY = "10.244.0.0/16", "10.96.0.0/12", "172.18.0.0/16"


@dataclass
class Cni:
    """A node and its plugins."""

    machine: Machine
    ip: str

    @property
    def files(self) -> Files:
        return self.machine.files

    @property
    def hns(self) -> Hns:
        assert self.machine.hns is not None
        return self.machine.hns

    def sandbox(self, name: str) -> str:
        """A stack, and the path of its namespace."""
        self.machine.fabric.add(f"{self.machine.stack.name}/{name}", "sandbox", "linux", node=self.machine.stack.name)
        path = f"/var/run/netns/{name}"
        self.machine.namespaces[path] = f"{self.machine.stack.name}/{name}"
        return path

    def call(self, command: Command, config: dict[str, Any], container: str = "c1", netns: str = "", **args: str) -> Any:
        conf = {"cniVersion": "0.4.0", "name": "net", **config}
        call = Call(command, container, netns or f"/var/run/netns/{container}", "eth0", args, "/opt/cni/bin", conf)
        return in_process(self.machine)(config["type"], call)

    def add(self, config: dict[str, Any], container: str = "c1", **args: str) -> Result:
        result = self.call("ADD", config, container, **args)
        assert isinstance(result, dict)
        return result

    def refused(self, command: Command, config: dict[str, Any], container: str = "c1", **args: str) -> str:
        with pytest.raises(CniError) as caught:
            self.call(command, config, container, **args)
        return str(caught.value)


@dataclass
class Cluster:
    fabric: Fabric
    leases: Leases

    def linux(self, name: str, number: int) -> Cni:
        stack = self.fabric.add(name, "node", "linux")
        ip = f"172.18.0.{number}"
        stack.add_link(Link("eth0", "ethernet"))
        stack.add_address("eth0", f"{ip}/16")
        stack.replace_route("0.0.0.0/0", "eth0", "172.18.0.1")
        return Cni(Machine(LinuxHost(name, VirtualClock()).files, stack, self.fabric, None, "linux"), ip)

    def windows(self, name: str, number: int, build: int = 17763) -> Cni:
        ip = f"172.18.0.{number}"
        hns = Hns(BUILDS[build], [Adapter("Ethernet", f"00-15-5D-00-00-{number:02X}", f"{ip}/16", "172.18.0.1")], seed=name)
        stack = self.fabric.add(name, "node", "windows", hns=hns)
        winhost.bind(stack, hns)
        host = WindowsHost(name, VirtualClock(), build=BUILDS[build])
        return Cni(Machine(host.files, stack, self.fabric, hns, "windows"), ip)

    def flannel(self, node: Cni, cidr: str, backend: dict[str, Any] | None = None, **more: Any) -> Flanneld:
        """Started, with its lease where all see it."""
        conf = flannelconf.parse(defaults.net_conf(CLUSTER, backend or defaults.host_gw()))
        agent = Flanneld(node.machine.stack.name, node.machine, self.leases, conf, public_ip=node.ip, **more)
        agent.start([cidr])
        assert agent.lease is not None
        self.leases.put(agent.lease)
        return agent

    def pods(
        self, node: Cni, cidr: str, runtime: Literal["docker", "containerd"] = "containerd",
        mode: Literal["l2bridge", "overlay"] = "l2bridge", **more: Any,
    ) -> CniPodNetwork:  # fmt: skip
        """A node that is ready for pods."""
        self.flannel(node, cidr, defaults.host_gw() if mode == "l2bridge" else defaults.vxlan())
        os = node.machine.os
        directory, name = defaults.place(os, runtime)
        data = defaults.linux() if os == "linux" else defaults.windows(
            mode, clusters=[CLUSTER], services=[SERVICES], management=[UNDERLAY], node_ip=node.ip, dns=["10.96.0.10"],
            runtime=runtime,
        )  # fmt: skip
        node.files.mkdir(directory)
        node.files.write(directory + ("\\" if os == "windows" else "/") + name, data)
        network = CniPodNetwork(node.machine, runtime, **more)
        network.cidr = cidr
        return network


@pytest.fixture
def cluster() -> Cluster:
    fabric, leases = Fabric(UNDERLAY), Leases()
    fabric.before_look.append(leases.look)
    return Cluster(fabric, leases)


@pytest.fixture
def node(cluster: Cluster) -> Cni:
    return cluster.linux("n1", 3)


MakeCluster = Callable[[], Cluster]
