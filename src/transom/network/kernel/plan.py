"""What a namespace shall contain, as data that can be compared: the common form of Linux and Windows stacks.

Pure. `linux` says it for Linux stacks and for sandboxes; `windows.py` says it for a Windows node.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from transom.network import nft
from transom.network.kernel import names
from transom.network.stacks import Fabric, Link, Stack

UNDERLAY = ""
"""The name of the namespace with the bridge that joins the nodes; no stack is called like this."""
UNDERLAY_BRIDGE = "underlay"
BRIDGE_FILTER = ("net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables")
FORWARDING = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")


class Device(NamedTuple):
    kind: Literal["veth", "bridge", "vxlan"]
    mac: str = ""
    mtu: int = 1500
    master: str = ""
    hairpin: bool = False
    peer: tuple[str, str] = ("", "")  # stack and device at the other end
    vni: int = 0
    port: int = 0
    local: str = ""

    @property
    def birth(self) -> tuple[object, ...]:
        """What cannot change while it lives."""
        return (self.kind, self.peer, self.vni, self.port, self.local)


class Way(NamedTuple):
    """A route."""

    device: str
    via: str = ""
    source: str = ""
    onlink: bool = False


@dataclass(slots=True)
class Plan:
    devices: dict[str, Device] = field(default_factory=dict)
    addresses: set[tuple[str, str]] = field(default_factory=set)  # device, address with prefix
    routes: dict[str, Way] = field(default_factory=dict)  # by destination
    special: dict[str, str] = field(default_factory=dict)  # destination -> "local" (ours), "throw" (a route of the others)
    neighbours: dict[tuple[str, str], str] = field(default_factory=dict)  # device, address -> mac
    forwarding: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)  # device, mac -> outer address, VNI
    sysctls: dict[str, str] = field(default_factory=dict)
    tables: dict[str, nft.Table] = field(default_factory=dict)


def base(stack: Stack) -> Plan:
    """What needs no knowledge of the operating system: addresses, routes, neighbours, firewall tables."""
    plan = Plan()
    for link in stack.links.values():
        name = names.device(link.name)
        plan.addresses.update((name, str(a)) for a in link.addresses if not (link.kind == "loopback" and a.ip.is_loopback))
    for route in stack.routes():
        plan.routes[str(route.destination)] = Way(names.device(route.link), route.via, route.source, route.onlink)
    for address, (mac, link_name) in stack.neighbours.items():
        plan.neighbours[names.device(link_name), address] = mac
    for path in FORWARDING:
        plan.sysctls[path] = "1" if stack.forwarding else "0"
    plan.tables = dict(stack.tables)
    return plan


def linux(stack: Stack, fabric: Fabric) -> Plan:
    """Of a Linux stack, and of a sandbox on Windows, which has nothing that Linux has not."""
    plan = base(stack)
    for link in stack.links.values():
        device = of_link(stack, link)
        if device is not None:
            name = names.device(link.name)
            plan.devices[name] = device
            for mac, outer in link.fdb.items():
                plan.forwarding[name, mac] = (outer, 0)
    if stack.role == "sandbox":
        _through_gateway(stack, plan, fabric)
    elif any(link.kind == "ethernet" and link.master for link in stack.links.values()):
        # Pods are bridged to the underlay: the firewall has to see what passes the bridge.
        plan.sysctls.update(dict.fromkeys(BRIDGE_FILTER, "1"))
    return plan


def of_link(stack: Stack, link: Link) -> Device | None:
    """None for what has no device of its own here."""
    if link.kind == "ethernet":
        port = names.underlay_port(stack.name, names.device(link.name))
        return Device("veth", link.mac, link.mtu, names.device(link.master) if link.master else "", peer=(UNDERLAY, port))
    if link.kind == "veth" and link.peer is not None:
        return Device("veth", link.mac, link.mtu, master=names.device(link.master) if link.master else "", hairpin=link.hairpin,
                      peer=(link.peer[0], names.device(link.peer[1])))  # fmt: skip
    if link.kind == "vnic" and link.endpoint and stack.role == "sandbox":
        return Device("veth", link.mac, link.mtu, peer=(stack.node, names.switch_port(link.endpoint)))
    if link.kind == "bridge":
        return Device("bridge", link.mac, link.mtu)
    if link.kind == "vxlan":
        return Device("vxlan", link.mac, link.mtu, vni=link.vni, port=link.port or 4789, local=link.local)
    return None


def _through_gateway(stack: Stack, plan: Plan, fabric: Fabric) -> None:
    """Neighbours of a pod on the same bridge are reached through the node's network layer, where its rules are.

    That is what bridge netfilter does on a real node; but whether that is there is a matter of the machine. Here the pod's
    own routes send everything to its gateway, when that is its node. On Windows it is the port of the switch.
    """
    for version, everything in ((4, "0.0.0.0/0"), (6, "::/0")):
        default = plan.routes.get(everything)
        if default is None or not default.via:
            continue
        endpoint = next((k.endpoint for k in stack.links.values() if k.endpoint and names.device(k.name) == default.device), "")
        owner = fabric.owner(default.via)
        if not endpoint and (owner is None or owner.name != stack.node):
            continue
        gateway = ipaddress.ip_address(default.via)
        for destination, way in list(plan.routes.items()):
            network = ipaddress.ip_network(destination)
            if way.device == default.device and not way.via and network.version == version and gateway in network:
                plan.routes[destination] = Way(way.device, default.via, way.source)
        plan.routes[f"{gateway}/{gateway.max_prefixlen}"] = Way(default.device)
        if endpoint:
            plan.neighbours[default.device, default.via] = names.port_mac(endpoint)
