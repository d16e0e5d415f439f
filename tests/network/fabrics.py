"""Small clusters whose network is built by hand: stacks and switches as plugins leave them,
services by the real proxies.

Nodes are `linux-1`, ..., `windows-1`, ...; node N has the pods' subnet 10.244.N.0/24. `external` is
a host outside.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from transom.kit.clock import VirtualClock
from transom.machines.windows.hns import Adapter, HostNetworkService
from transom.network import winhost
from transom.network.cni import masquerade
from transom.network.cni.windows import setup
from transom.network.model.packet_trip import NetworkState
from transom.network.model.walk import Listening, always_listening, walk_packet
from transom.network.packets import Packet, Walk
from transom.network.stacks import Fabric, NetworkLink, NetworkStack, stable_mac
from transom.proxy.nftables.proxier import NftablesOptions as LinuxOptions
from transom.proxy.nftables.proxier import NftablesProxier
from transom.proxy.tracker import ServiceTracker
from transom.proxy.winkernel.options import WinkernelOptions
from transom.proxy.winkernel.proxier import WinkernelProxier
from transom.windows.builds import BUILDS

UNDERLAY = "172.20.0.0/16"
GATEWAY = "172.20.0.1"
CLUSTER = "10.244.0.0/16"
SERVICES = "10.96.0.0/16"
OUTSIDE = "203.0.113.10"
VNI = 4096
Mode = Literal["l2bridge", "overlay", "l2tunnel", "transparent", "nat"]
EXCEPTIONS = {
    "l2bridge": (CLUSTER, SERVICES, UNDERLAY),
    "overlay": (CLUSTER, SERVICES),
    "l2tunnel": (UNDERLAY, SERVICES),
    "transparent": (CLUSTER, SERVICES),
    "nat": (),
}


@dataclass
class Cluster:
    mode: Mode = "l2bridge"
    build: int = 17763
    dsr: bool = False
    exceptions: tuple[str, ...] | None = None
    loopback_dsr: bool = False
    host_route: bool = True
    flannel_routes: bool = True
    seed: int = 1
    fabric: Fabric = field(default_factory=lambda: Fabric(UNDERLAY))
    clock: VirtualClock = field(default_factory=VirtualClock)
    tracker: ServiceTracker = field(default_factory=ServiceTracker)
    nodes: dict[str, NetworkStack] = field(default_factory=dict)
    objects: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {
            "pods": [],
            "services": [],
            "nodes": [],
            "slices": [],
            "policies": [],
            "namespaces": [],
        }
    )

    def __post_init__(self) -> None:
        self.world = NetworkState(self.fabric, self.clock.monotonic, random.Random(self.seed))
        self.proxies: dict[str, Any] = {}
        self._pods = 0
        outside = self.fabric.add("external", "external", "linux")
        outside.add_link(NetworkLink("eth0", "ethernet", mac=stable_mac("external", "eth0")))
        outside.add_address("eth0", f"{GATEWAY}/16")
        outside.add_address("eth0", f"{OUTSIDE}/32")
        outside.replace_route("0.0.0.0/0", "eth0")
        self.tracker.mark_synced("services")
        self.tracker.mark_synced("endpoints")
        self.fabric.before_look.append(self._sync)

    # ---- nodes ----

    def number(self, node: str) -> int:
        return list(self.nodes).index(node) + 1

    def ip(self, node: str) -> str:
        return f"172.20.0.{self.number(node) + 1}"

    def subnet(self, node: str) -> str:
        return f"10.244.{self.number(node)}.0/24"

    def linux(self, name: str) -> NetworkStack:
        stack = self.nodes[name] = self.fabric.add(name, "node", "linux")
        number = self.number(name)
        stack.add_link(NetworkLink("eth0", "ethernet", mac=stable_mac(name, "eth0")))
        stack.add_address("eth0", f"{self.ip(name)}/16")
        stack.replace_route("0.0.0.0/0", "eth0", GATEWAY)
        stack.add_link(NetworkLink("cni0", "bridge", mac=stable_mac(name, "cni0")))
        stack.add_address("cni0", f"10.244.{number}.1/24")
        stack.set_forwarding(True)
        stack.set_table(masquerade.flannel_masquerade_table(4, CLUSTER, self.subnet(name)))
        if self.mode == "overlay":
            mac = stable_mac(name, "vtep")
            stack.add_link(
                NetworkLink(
                    f"flannel.{VNI}", "vxlan", mac=mac, vni=VNI, port=4789, local=self.ip(name)
                )
            )
            stack.add_address(f"flannel.{VNI}", f"10.244.{number}.0/32")
        options = LinuxOptions(cluster_cidrs=(CLUSTER,), node_ips=(self.ip(name),))
        self.proxies[name] = NftablesProxier(self.tracker, name, stack, options)
        self._node_object(name, "linux")
        self._join(name)
        return stack

    def windows(self, name: str, build: int = 0) -> NetworkStack:
        stack = self.nodes[name] = self.fabric.add(name, "node", "windows")
        number = self.number(name)
        mac = f"00-15-5D-00-00-{number:02X}"
        hns = HostNetworkService(
            BUILDS[build or self.build],
            [Adapter("Ethernet", mac, f"{self.ip(name)}/16", GATEWAY)],
            seed=name,
        )
        winhost.bind_windows_host(stack, hns)
        network = self._network(name, hns)
        stack.set_forwarding(self.mode == "l2bridge")
        gates = {"WinDSR": True} if self.dsr else {}
        options = WinkernelOptions(
            network_name=network,
            source_vip=f"10.244.{number}.254" if self.mode == "overlay" else "",
            enable_dsr=self.dsr,
            gates={**gates, "WindowsEndpointSliceProxying": True},
            node_ip=self.ip(name),
            cluster_cidr=CLUSTER,
        )
        self.proxies[name] = WinkernelProxier(self.tracker, name, hns, options, self.clock)
        self._node_object(name, "windows")
        self._join(name)
        return stack

    def _network(self, name: str, hns: HostNetworkService) -> str:
        subnet, number = self.subnet(name), self.number(name)
        if self.mode == "l2bridge":
            setup.make_l2bridge_network(hns, "cbr0", [subnet])
            return "cbr0"
        if self.mode == "transparent":
            setup.make_transparent_network(hns, "external", subnet)
            return "external"
        if self.mode == "nat":
            setup.make_nat_network(hns, "nat", subnet)
            return "nat"
        default = [{"NextHop": f"10.244.{number}.1", "DestinationPrefix": "0.0.0.0/0"}]
        if self.mode == "overlay":
            policies = [{"Type": "HostRoute"}] if self.host_route else []
            hns.create(
                "network",
                {
                    "Name": "vxlan0",
                    "Type": "Overlay",
                    "Flags": 8,
                    "Policies": policies,
                    "Ipams": [
                        {
                            "Type": "Static",
                            "Subnets": [
                                {
                                    "IpAddressPrefix": subnet,
                                    "Routes": default,
                                    "Policies": [
                                        {"Type": "VSID", "Settings": {"IsolationId": VNI}}
                                    ],
                                }
                            ],
                        }
                    ],
                },
            )
            return "vxlan0"
        default[0]["NextHop"] = GATEWAY
        hns.create(
            "network",
            {
                "Name": "azure",
                "Type": "L2Tunnel",
                "Ipams": [
                    {
                        "Type": "Static",
                        "Subnets": [{"IpAddressPrefix": UNDERLAY, "Routes": default}],
                    }
                ],
            },
        )
        return "azure"

    def _join(self, new: str) -> None:
        """flanneld on every node learns of the others' subnets."""
        if not self.flannel_routes:
            return
        for name in self.nodes:
            if name != new:
                self._lease(name, new)
                self._lease(new, name)

    def _lease(self, node: str, other: str) -> None:
        stack, there = self.nodes[node], self.nodes[other]
        subnet, address = self.subnet(other), self.ip(other)
        if self.mode in ("l2bridge", "transparent"):
            stack.replace_route(
                subnet, winhost.management_link(stack) if stack.os == "windows" else "eth0", address
            )
        elif self.mode == "overlay":
            mac = self._vtep(there)
            if stack.os == "linux":
                device = f"flannel.{VNI}"
                gateway = subnet.removesuffix("/24")
                stack.replace_neighbour(gateway, mac, device)
                stack.links[device].fdb[mac] = address
                stack.replace_route(subnet, device, gateway, onlink=True)
            else:
                assert stack.hns is not None
                policy = {
                    "Type": "RemoteSubnetRoute",
                    "Settings": {
                        "DestinationPrefix": subnet,
                        "IsolationId": VNI,
                        "ProviderAddress": address,
                        "DistributedRouterMacAddress": mac.replace(":", "-"),
                    },
                }
                network = next(iter(stack.hns.networks))
                stack.hns.modify(
                    "network",
                    network,
                    {
                        "ResourceType": "Policy",
                        "RequestType": "Add",
                        "Settings": {"Policies": [policy]},
                    },
                )

    def _vtep(self, stack: NetworkStack) -> str:
        if stack.os == "linux":
            return stack.links[f"flannel.{VNI}"].mac
        assert stack.hns is not None
        network = next(iter(stack.hns.networks.values()))
        mac: str = next(
            p["Settings"]["Address"] for p in network["Policies"] if p["Type"] == "DrMacAddress"
        )
        return mac

    def _sync(self, node: str) -> None:
        proxy = self.proxies.get(node)
        for _ in range(4):
            if proxy is None or not proxy.dirty:
                return
            proxy.sync()
            due = getattr(proxy, "due", 0.0)
            if (
                self.mode == "overlay"
                and getattr(proxy, "_starting", None) is not None
                and due > self.clock.monotonic()
            ):
                self.clock.advance(due - self.clock.monotonic())

    # ---- pods and services ----

    def pod(
        self,
        name: str,
        node: str,
        *,
        port: int = 80,
        labels: Mapping[str, str] | None = None,
        policies: Iterable[dict[str, Any]] = (),
    ) -> str:
        """Its address."""
        self._pods += 1
        host = self.nodes[node]
        number, at = self.number(node), self._pods + 9
        sandbox = self.fabric.add(f"{node}/{name}", "sandbox", host.os, node=node, sandbox=name)
        if host.os == "linux":
            address, bits = f"10.244.{number}.{at}", 24
            port_link, _ = self.fabric.veth(host, f"veth{self._pods}", sandbox, "eth0")
            port_link.master, port_link.hairpin = "cni0", True
            host.changed_link(port_link.name)
            sandbox.add_address("eth0", f"{address}/24")
            sandbox.replace_route("0.0.0.0/0", "eth0", f"10.244.{number}.1")
        else:
            assert host.hns is not None
            network = next(iter(host.hns.networks.values()))
            gateway = {"l2bridge": f"10.244.{number}.2", "l2tunnel": GATEWAY}.get(
                self.mode, f"10.244.{number}.1"
            )
            address, bits = (
                (f"172.20.{number}.{at}", 16)
                if self.mode == "l2tunnel"
                else (f"10.244.{number}.{at}", 24)
            )
            endpoint = host.hns.create(
                "endpoint",
                {
                    "Name": f"{name}_{network['Name']}",
                    "HostComputeNetwork": network["ID"],
                    "IpConfigurations": [{"IpAddress": address, "PrefixLength": bits}],
                    "Routes": [{"NextHop": gateway, "DestinationPrefix": "0.0.0.0/0"}],
                    "Policies": [*self._port_policies(address), *policies],
                },
            )
            namespace = host.hns.create("namespace", {"Type": "Host"})
            host.hns.add_to_namespace(namespace["ID"], endpoint["ID"])
            link, via = winhost.sandbox_link(host.hns, endpoint["ID"])
            sandbox.add_link(
                NetworkLink(link.name, "vnic", mac=link.mac, mtu=link.mtu, endpoint=link.endpoint)
            )
            for held in link.addresses:
                sandbox.add_address(link.name, str(held))
            sandbox.replace_route("0.0.0.0/0", link.name, via)
        self.objects["pods"].append(
            {
                "metadata": {
                    "namespace": "default",
                    "name": name,
                    "uid": name,
                    "labels": dict(labels or {}),
                },
                "spec": {
                    "nodeName": node,
                    "dnsPolicy": "ClusterFirst",
                    "containers": [
                        {"name": "main", "ports": [{"containerPort": port, "protocol": "TCP"}]}
                    ],
                },
                "status": {
                    "phase": "Running",
                    "podIP": address,
                    "podIPs": [{"ip": address}],
                    "hostIP": self.ip(node),
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )
        return address

    def _port_policies(self, address: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        exceptions = EXCEPTIONS[self.mode] if self.exceptions is None else self.exceptions
        if self.mode not in ("nat", "transparent"):
            found.append({"Type": "OutBoundNAT", "Settings": {"Exceptions": list(exceptions)}})
        if self.loopback_dsr:
            found.append({"Type": "OutBoundNAT", "Settings": {"Destinations": [address]}})
        return found

    def service(
        self,
        name: str,
        ip: str,
        pods: Iterable[str],
        *,
        port: int = 80,
        target: int = 80,
        kind: str = "ClusterIP",
        node_port: int = 0,
        ingress: str = "",
        protocol: str = "TCP",
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> str:
        """Its address. `pods` are names."""
        entry: dict[str, Any] = {"port": port, "targetPort": target, "protocol": protocol}
        if node_port:
            entry["nodePort"] = node_port
        service: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "namespace": "default",
                "name": name,
                "annotations": dict(annotations or {}),
            },
            "spec": {
                "type": kind,
                "clusterIP": ip,
                "clusterIPs": [ip],
                "ports": [entry],
                "sessionAffinity": "None",
                **spec,
            },
        }
        if ingress:
            service["status"] = {"loadBalancer": {"ingress": [{"ip": ingress}]}}
            first = self.ip(next(iter(self.nodes)))
            self.fabric.stacks["external"].replace_route(
                f"{ingress}/32", "eth0", spec.pop("announced_by", first)
            )
        self.objects["services"].append(service)
        self.tracker.put_service(service)
        self.endpoints(name, pods, target=target, protocol=protocol)
        return ip

    def endpoints(
        self, service: str, pods: Iterable[str], *, target: int = 80, protocol: str = "TCP"
    ) -> None:
        found = {p["metadata"]["name"]: p for p in self.objects["pods"]}
        made: dict[str, Any] = {
            "apiVersion": "discovery.k8s.io/v1beta1",
            "kind": "EndpointSlice",
            "addressType": "IPv4",
            "metadata": {
                "namespace": "default",
                "name": f"{service}-1",
                "labels": {"kubernetes.io/service-name": service},
            },
            "ports": [{"name": "", "port": target, "protocol": protocol}],
            "endpoints": [
                {
                    "addresses": [found[p]["status"]["podIP"]],
                    "conditions": {"ready": True},
                    "topology": {"kubernetes.io/hostname": found[p]["spec"]["nodeName"]},
                    "targetRef": {"kind": "Pod", "namespace": "default", "name": p},
                }
                for p in pods
            ],
        }
        others = [
            s for s in self.objects["slices"] if s["metadata"]["name"] != made["metadata"]["name"]
        ]
        self.objects["slices"] = [*others, made]
        self.tracker.put_slice(made)

    def _node_object(self, name: str, os: str) -> None:
        self.objects["nodes"].append(
            {
                "metadata": {
                    "name": name,
                    "labels": {"kubernetes.io/os": os, "kubernetes.io/hostname": name},
                },
                "spec": {"podCIDR": self.subnet(name)},
                "status": {"addresses": [{"type": "InternalIP", "address": self.ip(name)}]},
            }
        )

    # ---- packets ----

    def stack(self, name: str) -> NetworkStack:
        """Of a node, a pod by its name, or `external`."""
        return self.fabric.stacks.get(name) or next(
            s for s in self.fabric.stacks.values() if s.sandbox == name
        )

    def address(self, name: str) -> str:
        stack = self.stack(name)
        return (
            self.ip(name)
            if name in self.nodes
            else OUTSIDE
            if name == "external"
            else stack.addresses()[0]
        )

    def source(self, name: str, _to: str) -> str:
        """What a place sends from, to an address."""
        return self.address(name)

    def walk(
        self,
        origin: str,
        to: str,
        port: int = 80,
        protocol: Any = "tcp",
        *,
        listening: Listening = always_listening,
        record: bool = True,
        source_port: int = 0,
        **more: Any,
    ) -> Walk:
        """`to` is a name, or an address."""
        address = to if to[0].isdigit() or ":" in to else self.address(to)
        packet = Packet("", address, protocol, source_port, 0 if protocol == "icmp" else port)
        return walk_packet(
            self.world, packet, self.stack(origin), listening=listening, record=record, **more
        )


def make_cluster(mode: Mode = "l2bridge", linux: int = 1, windows: int = 2, **more: Any) -> Cluster:
    cluster = Cluster(mode, **more)
    for number in range(linux):
        cluster.linux(f"linux-{number + 1}")
    for number in range(windows):
        cluster.windows(f"windows-{number + 1}")
    return cluster


def story(found: Walk) -> str:
    """For messages of failing tests."""
    lines = [
        (
            f"{h.place} | {h.device} | {h.what} | "
            f"{h.packet.source}->{h.packet.destination}:{h.packet.destination_port}"
        )
        for h in (*found.hops, *found.facts.get("reply", ()))
    ]
    return "\n".join([found.outcome + " " + found.reason + " " + found.explanation, *lines])
