"""The planned content of a namespace, as comparable data: the common form of Linux and Windows
stacks.

Pure. `linux_stack_plan` plans Linux stacks and sandboxes; `windows.py` plans a Windows node.
"""

from __future__ import annotations

import ipaddress
from dataclasses import field
from typing import Literal, NamedTuple

from transom.kit.lazy_dataclass import dataclass
from transom.network import nft
from transom.network.kernel import names
from transom.network.stacks import Fabric, NetworkLink, NetworkStack

UNDERLAY = ""
"""The namespace of the bridge that joins the nodes; no stack has this name."""
UNDERLAY_BRIDGE = "underlay"
BRIDGE_FILTER = ("net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables")
ROUTE_LOCALNET = "net/ipv4/conf/all/route_localnet"
FORWARDING = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")


class PlannedDevice(NamedTuple):
    kind: Literal["veth", "bridge", "vxlan"]
    mac: str = ""
    mtu: int = 1500
    master: str = ""
    hairpin: bool = False
    peer: tuple[str, str] = ("", "")  # stack and device at the other end
    vni: int = 0
    port: int = 0
    local: str = ""
    up: bool = True

    @property
    def creation_key(self) -> tuple[object, ...]:
        """The properties that cannot change during its lifetime."""
        return (self.kind, self.peer, self.vni, self.port, self.local)


class PlannedRoute(NamedTuple):
    """A route."""

    device: str
    via: str = ""
    source: str = ""
    onlink: bool = False


@dataclass(slots=True)
class StackPlan:
    devices: dict[str, PlannedDevice] = field(default_factory=dict)
    addresses: set[tuple[str, str]] = field(default_factory=set)  # device, address with prefix
    routes: dict[str, PlannedRoute] = field(default_factory=dict)  # by destination
    # destination -> "local" (this host), "throw" (continue with the other tables)
    special: dict[str, str] = field(default_factory=dict)
    neighbours: dict[tuple[str, str], str] = field(default_factory=dict)  # device, address -> mac
    # device, mac -> outer address, VNI
    forwarding: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    sysctls: dict[str, str] = field(default_factory=dict)
    tables: dict[str, nft.NftTable] = field(default_factory=dict)


def base_stack_plan(stack: NetworkStack) -> StackPlan:
    """The parts that do not depend on the operating system: addresses, routes, neighbours, firewall
    tables.
    """
    plan = StackPlan()
    for link in stack.links.values():
        name = names.kernel_device_name(link.name)
        plan.addresses.update(
            (name, str(a))
            for a in link.addresses
            if not (link.kind == "loopback" and a.ip.is_loopback)
        )
    for route in stack.routes():
        plan.routes[str(route.destination)] = PlannedRoute(
            names.kernel_device_name(route.link), route.via, route.source, route.onlink
        )
    for address, (mac, link_name) in stack.neighbours.items():
        plan.neighbours[names.kernel_device_name(link_name), address] = mac
    for path in FORWARDING:
        plan.sysctls[path] = "1" if stack.forwarding else "0"
    plan.tables = dict(stack.tables)
    if stack.role == "node" and stack.os == "linux":
        # kube-proxy turns it on: node ports work on 127.0.0.1, too.
        plan.sysctls[ROUTE_LOCALNET] = "1"
    return plan


def linux_stack_plan(stack: NetworkStack, fabric: Fabric) -> StackPlan:
    """For a Linux stack, or a sandbox on Windows, which has nothing beyond it."""
    plan = base_stack_plan(stack)
    for link in stack.links.values():
        device = link_device(stack, link)
        if device is not None:
            name = names.kernel_device_name(link.name)
            plan.devices[name] = device
            for mac, outer in link.fdb.items():
                plan.forwarding[name, mac] = (outer, 0)
    if stack.ovn is not None:
        to_logical_switches(stack, plan)
    if stack.role == "sandbox":
        _through_gateway(stack, plan, fabric)
    elif any(link.kind == "ethernet" and link.master for link in stack.links.values()):
        # Pods are bridged to the underlay: the firewall must see packets that pass the bridge.
        plan.sysctls.update(dict.fromkeys(BRIDGE_FILTER, "1"))
    return plan


def to_logical_switches(stack: NetworkStack, plan: StackPlan, source: str = "") -> None:
    """Between OVN nodes packets are routed here, without a GENEVE header. The node's own packets
    have the given source.
    """
    assert stack.ovn is not None
    links = {names.kernel_device_name(link.name): link for link in stack.links.values()}
    for destination, way in list(plan.routes.items()):
        if way.device in links and links[way.device].kind == "geneve":
            del plan.routes[destination]
    plan.addresses = {
        (device, address)
        for device, address in plan.addresses
        if device not in links or links[device].kind != "geneve"
    }
    for switch in stack.ovn.switches.values():
        route = stack.route(switch.chassis)
        if switch.node != stack.name and route is not None:
            plan.routes[switch.subnet] = PlannedRoute(
                names.kernel_device_name(route.link), switch.chassis, source
            )


def link_device(stack: NetworkStack, link: NetworkLink) -> PlannedDevice | None:
    """None for links without a device of their own here."""
    found = _link_device(stack, link)
    return found if found is None or link.up else found._replace(up=False)


def _link_device(stack: NetworkStack, link: NetworkLink) -> PlannedDevice | None:
    if link.kind == "ethernet":
        port = names.underlay_port_name(stack.name, names.kernel_device_name(link.name))
        return PlannedDevice(
            "veth",
            link.mac,
            link.mtu,
            names.kernel_device_name(link.master) if link.master else "",
            peer=(UNDERLAY, port),
        )
    if link.kind == "veth" and link.peer is not None:
        return PlannedDevice(
            "veth",
            link.mac,
            link.mtu,
            master=names.kernel_device_name(link.master) if link.master else "",
            hairpin=link.hairpin,
            peer=(link.peer[0], names.kernel_device_name(link.peer[1])),
        )
    if link.kind == "vnic" and link.endpoint and stack.role == "sandbox":
        return PlannedDevice(
            "veth", link.mac, link.mtu, peer=(stack.node, names.switch_port_name(link.endpoint))
        )
    if link.kind == "bridge":
        return PlannedDevice("bridge", link.mac, link.mtu)
    if link.kind == "vxlan":
        return PlannedDevice(
            "vxlan", link.mac, link.mtu, vni=link.vni, port=link.port or 4789, local=link.local
        )
    return None


def _through_gateway(stack: NetworkStack, plan: StackPlan, fabric: Fabric) -> None:
    """Neighbours of a pod on the same bridge are reached through the node's network layer, where
    its rules apply.

    On a real node, bridge netfilter does this, but it is not available on every machine. Here the
    pod's own routes send everything to its gateway if that is its node. On Windows it is the port
    of the switch.
    """
    for version, everything in ((4, "0.0.0.0/0"), (6, "::/0")):
        default = plan.routes.get(everything)
        if default is None or not default.via:
            continue
        endpoint = next(
            (
                k.endpoint
                for k in stack.links.values()
                if k.endpoint and names.kernel_device_name(k.name) == default.device
            ),
            "",
        )
        owner = fabric.owner(default.via)
        if not endpoint and (owner is None or owner.name != stack.node):
            continue
        gateway = ipaddress.ip_address(default.via)
        for destination, way in list(plan.routes.items()):
            network = ipaddress.ip_network(destination)
            if (
                way.device == default.device
                and not way.via
                and network.version == version
                and gateway in network
            ):
                plan.routes[destination] = PlannedRoute(way.device, default.via, way.source)
        plan.routes[f"{gateway}/{gateway.max_prefixlen}"] = PlannedRoute(default.device)
        if endpoint:
            plan.neighbours[default.device, default.via] = names.port_mac(endpoint)
