"""Small clusters with both families, on bridges as Windows has them: node N has the pods' subnet
fd00:244:N::/64.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.network.fabrics import CLUSTER, SERVICES, UNDERLAY, Cluster

from transom.machines.windows.hns import HostNetworkService
from transom.network import winhost
from transom.network.cni import masquerade
from transom.network.cni.windows import setup
from transom.network.stacks import NetworkLink, NetworkStack
from transom.proxy.nftables.proxier import NftablesOptions as LinuxOptions
from transom.proxy.nftables.proxier import NftablesProxier
from transom.proxy.winkernel.dualstack import DualStackProxier
from transom.proxy.winkernel.options import WinkernelOptions

UNDERLAY6, CLUSTER6, SERVICES6 = "fd00:20::/64", "fd00:244::/32", "fd00:96::/112"
GATEWAY6, OUTSIDE6 = "fd00:20::1", "2001:db8::10"
_DEFAULTS = ("0.0.0.0/0", "::/0")


class DualCluster(Cluster):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.fabric.underlay6 = UNDERLAY6
        outside = self.fabric.stacks["external"]
        outside.add_address("eth0", f"{GATEWAY6}/64")
        outside.add_address("eth0", f"{OUTSIDE6}/128")
        outside.replace_route("::/0", "eth0")

    def ip6(self, node: str) -> str:
        return f"fd00:20::{self.number(node) + 1:x}"

    def subnet6(self, node: str) -> str:
        return f"fd00:244:{self.number(node)}::/64"

    def linux(self, name: str) -> NetworkStack:
        stack = super().linux(name)
        self._connect(stack, "eth0")
        stack.add_address("cni0", f"fd00:244:{self.number(name)}::1/64")
        stack.set_table(masquerade.flannel_masquerade_table(6, CLUSTER6, self.subnet6(name)))
        options = LinuxOptions(
            cluster_cidrs=(CLUSTER, CLUSTER6), node_ips=(self.ip(name), self.ip6(name))
        )
        self.proxies[name] = NftablesProxier(self.tracker, name, stack, options)
        return stack

    def windows(self, name: str, build: int = 0) -> NetworkStack:
        stack = super().windows(name, build)
        assert stack.hns is not None
        self._connect(stack, winhost.management_link(stack))
        gates = {"WindowsEndpointSliceProxying": True, "IPv6DualStack": True, "WinDSR": self.dsr}
        options = WinkernelOptions(
            network_name="cbr0",
            enable_dsr=self.dsr,
            gates=gates,
            cluster_cidr=f"{CLUSTER},{CLUSTER6}",
        )
        self.proxies[name] = DualStackProxier(self.tracker, name, stack.hns, options, self.clock)
        return stack

    def _network(self, name: str, hns: HostNetworkService) -> str:
        setup.make_l2bridge_network(hns, "cbr0", [self.subnet(name), self.subnet6(name)])
        return "cbr0"

    def _connect(self, stack: NetworkStack, link: str) -> None:
        stack.add_address(link, f"{self.ip6(stack.name)}/64")
        stack.replace_route("::/0", link, GATEWAY6)
        for other, there in self.nodes.items():
            if there is not stack:
                stack.replace_route(self.subnet6(other), link, self.ip6(other))
                back = winhost.management_link(there) if there.os == "windows" else "eth0"
                there.replace_route(self.subnet6(stack.name), back, self.ip6(stack.name))

    def pod(
        self,
        name: str,
        node: str,
        *,
        port: int = 80,
        labels: Mapping[str, str] | None = None,
        policies: Iterable[dict[str, Any]] = (),
    ) -> str:
        host, number, at = self.nodes[node], self.number(node), self._pods + 10
        six = f"fd00:244:{number}::{at:x}"
        if host.os == "linux":
            address = super().pod(name, node, port=port, labels=labels)
            sandbox = self.stack(name)
            sandbox.add_address("eth0", f"{six}/64")
            sandbox.replace_route("::/0", "eth0", f"fd00:244:{number}::1")
        else:
            self._pods += 1
            address = f"10.244.{number}.{at}"
            self._plug(name, node, (address, six))
            self.objects["pods"].append(
                {
                    "metadata": {
                        "namespace": "default",
                        "name": name,
                        "uid": name,
                        "labels": dict(labels or {}),
                    },
                    "spec": {"nodeName": node, "containers": [{"name": "main"}]},
                    "status": {
                        "phase": "Running",
                        "podIP": address,
                        "hostIP": self.ip(node),
                        "conditions": [{"type": "Ready", "status": "True"}],
                    },
                }
            )
        self.objects["pods"][-1]["status"]["podIPs"] = [{"ip": address}, {"ip": six}]
        return address

    def _plug(self, name: str, node: str, addresses: tuple[str, str]) -> None:
        host, number = self.nodes[node], self.number(node)
        hns = host.hns
        assert hns is not None
        exceptions = [CLUSTER, CLUSTER6, SERVICES, SERVICES6, UNDERLAY, UNDERLAY6]
        loopback = (
            [{"Type": "OutBoundNAT", "Settings": {"Destinations": list(addresses)}}]
            if self.loopback_dsr
            else []
        )
        endpoint = hns.create(
            "endpoint",
            {
                "Name": name,
                "HostComputeNetwork": next(iter(hns.networks)),
                "IpConfigurations": [
                    {"IpAddress": ip, "PrefixLength": 64 if ":" in ip else 24} for ip in addresses
                ],
                "Routes": [
                    {"NextHop": hop, "DestinationPrefix": _DEFAULTS[":" in hop]}
                    for hop in (f"10.244.{number}.2", f"fd00:244:{number}::2")
                ],
                "Policies": [
                    {"Type": "OutBoundNAT", "Settings": {"Exceptions": exceptions}},
                    *loopback,
                ],
            },
        )
        namespace = hns.create("namespace", {"Type": "Host"})
        hns.add_to_namespace(namespace["ID"], endpoint["ID"])
        link, _ = winhost.sandbox_link(hns, endpoint["ID"])
        sandbox = self.fabric.add(f"{node}/{name}", "sandbox", "windows", node=node, sandbox=name)
        sandbox.add_link(
            NetworkLink(link.name, "vnic", mac=link.mac, mtu=link.mtu, endpoint=link.endpoint)
        )
        for held in link.addresses:
            sandbox.add_address(link.name, str(held))
        for gateway in winhost.windows_gateways(hns, endpoint["ID"]):
            sandbox.replace_route(_DEFAULTS[":" in gateway], link.name, gateway)

    def endpoints(
        self, service: str, pods: Iterable[str], *, target: int = 80, protocol: str = "TCP"
    ) -> None:
        """Of both families; the tracker takes what fits the service."""
        pods = list(pods)
        super().endpoints(service, pods, target=target, protocol=protocol)
        made = self.objects["slices"][-1]
        found = {p["metadata"]["name"]: p for p in self.objects["pods"]}
        six = {
            **made,
            "addressType": "IPv6",
            "metadata": {**made["metadata"], "name": f"{service}-6"},
            "endpoints": [
                {**one, "addresses": [found[name]["status"]["podIPs"][1]["ip"]]}
                for one, name in zip(made["endpoints"], pods, strict=True)
            ],
        }
        self.objects["slices"].append(six)
        self.tracker.put_slice(six)

    def source(self, name: str, to: str) -> str:
        if ":" not in to:
            return self.address(name)
        if name in self.nodes:
            return self.ip6(name)
        return OUTSIDE6 if name == "external" else self.stack(name).addresses()[1]
