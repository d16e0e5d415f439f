"""A Windows node with its host networking service, and calls of its network plugins as a runtime
makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from transom.kit.clock import VirtualClock
from transom.machines.windows.hns import Adapter, HostNetworkService
from transom.machines.windows.host import WindowsHost
from transom.network import winhost
from transom.network.cni.hostlocal import host_local
from transom.network.cni.plugin import CniCall, CniError, CniNode, Command, Plugin, Result
from transom.network.cni.windows import setup, windows_plugins
from transom.network.cni.windows.netconf import Release
from transom.network.stacks import Fabric
from transom.windows.builds import BUILDS

ADDRESS = "172.20.0.4"
SUBNET = "10.244.3.0/24"
LOCAL = {"type": "host-local", "ranges": [[{"subnet": SUBNET, "rangeStart": "10.244.3.5"}]]}


@dataclass
class Node:
    host: WindowsHost
    machine: CniNode
    hns: HostNetworkService
    plugins: dict[str, Plugin]
    clock: VirtualClock
    calls: list[tuple[str, str]] = field(default_factory=list)  # of delegates: type and command

    def run(
        self,
        command: Command,
        config: dict[str, Any],
        container: str = "sandbox1",
        netns: str = "none",
        **args: str,
    ) -> Any:
        call = CniCall(
            command, container, netns, "eth0", args, r"C:\k\cni", {"cniVersion": "0.3.0", **config}
        )
        return self.plugins[config["type"]](call, self.machine, self._delegate)

    def add(
        self, config: dict[str, Any], container: str = "sandbox1", netns: str = "none", **args: str
    ) -> Result:
        result = self.run("ADD", config, container, netns, **args)
        assert isinstance(result, dict)
        return result

    def delete(
        self, config: dict[str, Any], container: str = "sandbox1", netns: str = "none", **args: str
    ) -> None:
        assert self.run("DEL", config, container, netns, **args) is None

    def refused(
        self, config: dict[str, Any], container: str = "sandbox1", netns: str = "none", **args: str
    ) -> CniError:
        with pytest.raises(CniError) as caught:
            self.run("ADD", config, container, netns, **args)
        return caught.value

    def endpoint(self, name: str) -> dict[str, Any]:
        (found,) = self.hns.list("endpoint", Name=name)
        return found

    def policies(self, name: str) -> list[dict[str, Any]]:
        return list(self.endpoint(name).get("Policies", []))

    def _delegate(self, kind: str, call: CniCall) -> Result | None:
        self.calls.append((kind, call.command))
        if kind not in self.plugins:
            raise CniError(999, f'failed to find plugin "{kind}" in path [{call.path}]')
        return self.plugins[kind](call, self.machine, self._delegate)


MakeNode = Callable[..., Node]


@pytest.fixture
def make_node() -> MakeNode:
    def make(build: int = 17763, release: Release = "0.9.1", **more: Plugin) -> Node:
        clock = VirtualClock()
        host = WindowsHost("windows-1", clock, build=BUILDS[build])
        hns = HostNetworkService(
            BUILDS[build],
            [Adapter("Ethernet", "00-15-5D-01-02-03", f"{ADDRESS}/16", "172.20.0.1")],
            seed="windows-1",
        )
        fabric = Fabric("172.20.0.0/16")
        stack = fabric.add("windows-1", "node", "windows", hns=hns)
        winhost.bind_windows_host(stack, hns)
        machine = CniNode(host.files, stack, fabric, hns, "windows", booted=lambda: host.boot_time)
        return Node(
            host,
            machine,
            hns,
            {**windows_plugins(release), "host-local": host_local, **more},
            clock,
        )

    return make


@pytest.fixture
def node(make_node: MakeNode) -> Node:
    """With the bridge that flanneld's host gateway makes."""
    made = make_node()
    setup.make_l2bridge_network(made.hns, "cbr0", [SUBNET], "Ethernet")
    return made


def overlay(
    node: Node, name: str = "vxlan0", subnet: str = SUBNET, vni: int = 4096
) -> dict[str, Any]:
    """As flanneld makes it."""
    gateway = subnet.replace(".0/24", ".1")
    return node.hns.create(
        "network",
        {
            "Name": name,
            "Type": "Overlay",
            "Flags": 8,
            "SchemaVersion": {"Major": 2, "Minor": 0},
            "Ipams": [
                {
                    "Type": "Static",
                    "Subnets": [
                        {
                            "IpAddressPrefix": subnet,
                            "Routes": [{"NextHop": gateway, "DestinationPrefix": "0.0.0.0/0"}],
                            "Policies": [{"Type": "VSID", "Settings": {"IsolationId": vni}}],
                        }
                    ],
                }
            ],
        },
    )
