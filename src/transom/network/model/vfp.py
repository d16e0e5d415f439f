"""The switch of a Windows node: where packets enter it, and how it forwards by network type.

Packets of containers and from outside pass its rules (`crossing`). Those of the node's own stack
pass only ACLs: no load balancing, no translation.
"""

from __future__ import annotations

from dataclasses import replace

from transom.network.model.addresses import address_family, is_within
from transom.network.model.crossing import Crossing, ethernet_address
from transom.network.model.packet_trip import PacketTrip, TripEnd
from transom.network.model.switch import SwitchNetwork, SwitchPort, VirtualSwitch
from transom.network.ovn.database import GENEVE_PORT
from transom.network.packets import Outer, Packet
from transom.network.stacks import NetworkLink, NetworkStack

# network types whose ports are part of the underlay
_BRIDGED = ("L2Bridge", "L2Tunnel", "Transparent")
_ROUTED = ("Overlay", "Transparent")  # network types to whose ports the node needs its own route


# ---- entry points ----


def egress(
    trip: PacketTrip, sandbox: NetworkStack, link: NetworkLink, packet: Packet, next_hop: str
) -> TripEnd:
    """From a container."""
    node = trip.node_of(sandbox)
    switch = trip.world.switch(node) if node is not None else None
    port = switch.port(link.endpoint) if switch is not None else None
    net = switch.net(port.network) if switch is not None and port is not None else None
    if node is None or switch is None or port is None or net is None:
        return trip.drop(
            sandbox,
            "vNIC",
            packet,
            "no-port",
            "its switch port is gone (there is no such HNS endpoint)",
        )
    if not trip.enter(node):
        return trip.drop(node, "vSwitch", packet, "loop", "it has been under way for too long")
    crossing = Crossing(trip, node, switch, packet)
    ended = crossing.from_pod(net, port) if not crossing.known else None
    return ended or _forward(crossing, net, next_hop, origin=port)


def inbound(trip: PacketTrip, node: NetworkStack, packet: Packet) -> TripEnd:
    """From the underlay."""
    switch = trip.world.switch(node)
    assert switch is not None
    net: SwitchNetwork | None = None
    if packet.outer is not None:
        net = _unwrapped(switch, node, packet.outer)
        if net is None:
            why = (
                f"{node.name} has no network with VNI {packet.outer.vni} at port "
                f"{packet.outer.port}"
            )
            return trip.drop(node, "VXLAN", packet, "no-vxlan", why)
        packet = replace(packet, outer=None)
        trip.hop(
            node,
            "GENEVE" if net.type == "Transparent" else "VXLAN",
            f"unpacked for network {net.name}",
            packet,
        )
    crossing = Crossing(trip, node, switch, packet)
    if not crossing.known and net is None:
        ended = crossing.from_outside()
        if ended is not None:
            return ended
    elif (
        not crossing.known
        and net is not None
        and _local(switch, net, packet.destination) is None
        and not (node.ovn is not None and crossing.is_local(packet.destination))
    ):
        return crossing.drop(
            f"network {net.name}",
            "no-port",
            f"network {net.name} has no port with {packet.destination}",
        )
    net = net or _network_of(crossing)
    return trip.to_windows_host(node, crossing.packet) if net is None else _forward(crossing, net)


def from_host(
    trip: PacketTrip, node: NetworkStack, net: SwitchNetwork, port: SwitchPort, packet: Packet
) -> TripEnd:
    """Packets of the node itself to a port of its switch."""
    switch = trip.world.switch(node)
    assert switch is not None
    return _into(Crossing(trip, node, switch, packet), net, port)


def out_of_host(
    trip: PacketTrip, node: NetworkStack, link: NetworkLink, packet: Packet, next_hop: str
) -> TripEnd:
    """Through a network card of the node that belongs to a switch."""
    switch = trip.world.switch(node)
    net = _network_behind(switch, link) if switch is not None else None
    if switch is None or net is None:
        return trip.drop(
            node, link.name, packet, "no-port", f"the switch has no port for {link.name}"
        )
    if node.ovn is not None and net.type == "Transparent":
        return _from_management_port(trip, node, switch, net, packet)
    port = _local(switch, net, next_hop)
    if port is None:
        return trip.drop(
            node, link.name, packet, "no-neighbour", f"no port of network {net.name} has {next_hop}"
        )
    return from_host(trip, node, net, port, packet)


def _from_management_port(
    trip: PacketTrip, node: NetworkStack, switch: VirtualSwitch, net: SwitchNetwork, packet: Packet
) -> TripEnd:
    """The node's own port on its logical switch: load balancers serve it like pods."""
    crossing = Crossing(trip, node, switch, packet)
    if not crossing.known:
        ended = crossing.balance_by_ovn(net)
        if ended is not None:
            return ended
    return _forward(crossing, net)


def find_direct_port(
    trip: PacketTrip, node: NetworkStack, address: str
) -> tuple[SwitchNetwork, SwitchPort] | None:
    """A port of the node's switch that the node reaches without its route table: on an overlay with
    the policy HostRoute, and on a transparent network without OVN.
    """
    switch = trip.world.switch(node)
    for net in switch.nets() if switch is not None else ():
        if (
            net.type in _ROUTED
            and (net.host_route or (net.type == "Transparent" and node.ovn is None))
            and net.contains(address)
        ):
            port = _local(switch, net, address) if switch is not None else None
            if port is not None:
                return net, port
    return None


def neighbour_of_host(
    trip: PacketTrip, node: NetworkStack, address: str
) -> tuple[SwitchNetwork, SwitchPort] | None:
    """A port of the node's switch that is on-link in the underlay."""
    switch = trip.world.switch(node)
    found = switch.anywhere(address) if switch is not None else None
    return found if found is not None and found[0].type in _BRIDGED else None


def _network_behind(switch: VirtualSwitch, link: NetworkLink) -> SwitchNetwork | None:
    if link.endpoint:
        own = switch.port(link.endpoint)
        return switch.net(own.network) if own is not None else None
    if link.logical:
        return next((net for net in switch.nets() if net.type == "Transparent"), None)
    adapter = switch.hns.adapters.get(link.name)  # of an internal network
    return switch.net(adapter.network) if adapter is not None and adapter.network else None


def _unwrapped(switch: VirtualSwitch, node: NetworkStack, outer: Outer) -> SwitchNetwork | None:
    for net in switch.nets():
        if outer.port == GENEVE_PORT and net.type == "Transparent":
            own = node.ovn.switches.get(node.name) if node.ovn is not None else None
            return net if own is None or own.key == outer.vni else None
        if net.type == "Overlay" and (net.vni, net.port) == (outer.vni, outer.port):
            return net
    return None


def _network_of(crossing: Crossing) -> SwitchNetwork | None:
    """The network that a packet from the underlay continues in; None: it is for the node's own
    stack.

    Bridged networks are part of the underlay. Others are entered only by a decision of the switch.
    """
    switch, address = crossing.switch, crossing.packet.destination
    decided = crossing.known or bool(crossing.entry.status)
    if crossing.preserved is not None:
        return switch.net(crossing.preserved.network)
    local = switch.anywhere(address)
    if local is not None and (decided or local[0].type in _BRIDGED):
        return local[0]
    if not decided or crossing.is_local(address):
        return None
    nets = list(switch.nets())
    for net in nets:
        if switch.at(net, address) is not None or any(
            is_within(address, remote.prefix) for remote in net.remotes
        ):
            return net
    return nets[0] if nets else None


def _local(switch: VirtualSwitch, net: SwitchNetwork, address: str) -> SwitchPort | None:
    port = switch.at(net, address)
    return None if port is None or port.remote else port


# ---- forwarding ----


def _forward(
    crossing: Crossing, net: SwitchNetwork, gateway: str = "", origin: SwitchPort | None = None
) -> TripEnd:
    """From the switch to the destination."""
    switch, node, packet = crossing.switch, crossing.node, crossing.packet
    destination = packet.destination
    if crossing.preserved is not None:
        if crossing.preserved.remote:
            return crossing.drop(
                "load balancer",
                "no-backend",
                "the backend is on another node, and the destination stays",
            )
        return _into(crossing, net, crossing.preserved)
    port = switch.at(net, destination)
    if port is not None and not port.remote:
        if net.type == "L2Tunnel" and origin is not None:
            crossing.hop(
                "virtualization host",
                "an L2Tunnel sends everything to the virtualization host and back",
            )
        return _into(crossing, net, port)
    if crossing.is_local(destination):
        crossing.hop("host vNIC", "to the node's own stack")
        return crossing.trip.to_windows_host(node, packet)
    if origin is not None and not switch.hns.mac_spoofing:
        return crossing.drop(
            "network adapter",
            "mac-spoofing",
            f"{node.name} is a virtual machine whose network adapter sends "
            f"nothing from the pod's MAC address {origin.mac}: MAC spoofing is off",
        )
    if net.type == "Overlay":
        wrapped = _wrap(net, node, port, packet)
        if wrapped is not None:
            return _tunnelled(crossing, wrapped, "VXLAN")
        if net.contains(packet.source):
            return crossing.drop(
                f"network {net.name}",
                "no-route",
                f"the overlay network has no route to {destination}",
            )
    elif net.type == "Transparent":
        wrapped = _logical(crossing, packet)
        if wrapped is not None:
            return _tunnelled(crossing, wrapped, "GENEVE")
        if node.ovn is not None and net.contains(destination):
            why = f"logical switch {node.name} has no port with {destination}"
            return crossing.drop(f"logical switch {node.name}", "no-port", why)
    elif net.type == "L2Tunnel":
        crossing.hop(
            "virtualization host", "an L2Tunnel sends everything to the virtualization host"
        )
    elif (
        net.type == "L2Bridge"
        and not node.forwarding
        and net.contains(packet.source)
        and _is_hosts(switch, net, gateway)
    ):
        return crossing.drop("route", "no-forwarding", f"{node.name} does not forward for its pods")
    return _leave(crossing, packet, destination)


def _is_hosts(switch: VirtualSwitch, net: SwitchNetwork, address: str) -> bool:
    port = switch.at(net, address) if address else None
    return port is not None and switch.is_host(port)


def _wrap(
    net: SwitchNetwork, node: NetworkStack, remote: SwitchPort | None, packet: Packet
) -> Packet | None:
    """The packet in a tunnel to the node of its destination. None for what is not in the overlay:
    kube-proxy also makes remote endpoints for addresses of nodes, which are their own providers.
    """
    mine = ethernet_address(node, 4)
    if remote is not None and remote.provider not in ("", mine, packet.destination):
        return replace(
            packet,
            outer=Outer(mine, remote.provider, net.vni, net.port),
            destination_mac=remote.mac,
        )
    for subnet in net.remotes:
        if is_within(packet.destination, subnet.prefix):
            return replace(
                packet,
                outer=Outer(mine, subnet.provider, subnet.vni, net.port),
                destination_mac=subnet.mac,
            )
    return None


def _logical(crossing: Crossing, packet: Packet) -> Packet | None:
    """OVN knows every logical port; those of other nodes are reached through tunnels."""
    trip, node = crossing.trip, crossing.node
    mine = ethernet_address(node, 4)
    if node.ovn is not None:
        there = node.ovn.switch_of(packet.destination)
        if there is None or there.node == node.name:
            return None
        return replace(packet, outer=Outer(mine, there.chassis, there.key, GENEVE_PORT))
    for owner in reversed(trip.fabric.owners(packet.destination)):
        other = trip.node_of(owner)
        switch = (
            trip.world.switch(other)
            if owner.role == "sandbox" and other is not None and other is not node
            else None
        )
        if (
            other is not None
            and switch is not None
            and any(net.type == "Transparent" for net in switch.nets())
        ):
            return replace(packet, outer=Outer(mine, ethernet_address(other, 4), 0, GENEVE_PORT))
    return None


def _tunnelled(crossing: Crossing, wrapped: Packet, how: str) -> TripEnd:
    outer = wrapped.outer
    assert outer is not None
    text = f"packed for {outer.destination} (VNI {outer.vni}, port {outer.port})"
    crossing.trip.hop(crossing.node, how, text, wrapped)
    return _leave(crossing, wrapped, outer.destination)


def _leave(crossing: Crossing, packet: Packet, destination: str) -> TripEnd:
    """Out through the network card, with the node's MAC address, according to the node's route
    table.
    """
    trip, node = crossing.trip, crossing.node
    route = node.route(destination)
    if route is None:
        return crossing.drop("route", "no-route", f"{node.name} has no route to {destination}")
    link = node.links[route.link]
    if link.kind != "ethernet":
        return crossing.drop(link.name, "no-neighbour", f"no port of {link.name} has {destination}")
    if trip.hops is not None and packet.outer is None:
        packet = replace(packet, source_mac=link.mac)
        via = f"; next hop {route.via}" if route.via else ""
        trip.hop(
            node, "external switch port", f"source MAC becomes {link.mac}, the node's{via}", packet
        )
    return trip.underlay(node, packet, route.via or destination)


def _into(crossing: Crossing, net: SwitchNetwork, port: SwitchPort) -> TripEnd:
    """Through a local port to its owner."""
    ended = crossing.admit(net, port, inward=True)
    if ended is not None:
        return ended
    trip, node, packet, switch = crossing.trip, crossing.node, crossing.packet, crossing.switch
    if switch.is_host(port):
        return trip.to_windows_host(node, packet)
    address = port.address(address_family(packet.destination))
    for owner in reversed(trip.fabric.owners(address)):
        if owner.node == node.name and any(
            link.endpoint.upper() == port.id for link in owner.links.values()
        ):
            crossing.hop("vSwitch port", f"into the port of {address} on network {net.name}")
            if trip.world.is_local(owner, packet.source):
                why = f"it comes from outside with {packet.source}, the pod's own address"
                return trip.drop(owner, "vNIC", packet, "martian", why)
            taken = (address, packet.destination_port) if address != packet.destination else None
            return trip.deliver(owner, packet, taken)
    return crossing.drop(
        "vSwitch port", "no-pod", f"the port with {address} belongs to no running pod"
    )
