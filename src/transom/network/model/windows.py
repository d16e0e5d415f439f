"""The stacks of Windows: a node's own, and those of containers. Packets of pods and services pass
the rules of the switch; a node's own stack has the Windows firewall.

Packets of the node's own programs pass the firewall and follow the route table to a network card;
only packets on a card of a switch pass its rules. The switch is below the node's stack: what it
balances or forwards never reaches the firewall, except the outer packets of tunnels.
"""

from __future__ import annotations

from dataclasses import replace

from transom.machines.windows.firewall import FirewallConnection
from transom.network.model import vfp
from transom.network.model.addresses import address_family
from transom.network.model.crossing import ethernet_address
from transom.network.model.linux import choose_source
from transom.network.model.packet_trip import PacketTrip, TripEnd
from transom.network.packets import Packet
from transom.network.stacks import NetworkLink, NetworkStack


def send_from_windows(trip: PacketTrip, stack: NetworkStack, packet: Packet) -> TripEnd:
    if not trip.enter(stack):
        return trip.drop(stack, "route", packet, "loop", "it has been under way for too long")
    if trip.world.is_local(stack, packet.destination):
        return trip.deliver(
            stack, packet if packet.source else replace(packet, source=packet.destination)
        )
    near = vfp.find_direct_port(trip, stack, packet.destination) if stack.role == "node" else None
    if near is not None:
        net, port = near
        packet = (
            packet
            if packet.source
            else replace(packet, source=ethernet_address(stack, address_family(packet.destination)))
        )
        trip.hop(stack, "route", f"{packet.destination} is a port of network {net.name}", packet)
        blocked = pass_windows_firewall(trip, stack, packet, inbound=False)
        if blocked is not None:
            return blocked
        return vfp.from_host(trip, stack, net, port, packet)
    route = stack.route(packet.destination)
    if route is None:
        return trip.drop(
            stack, "route", packet, "no-route", f"{stack.name} has no route to {packet.destination}"
        )
    if not packet.source:
        packet = replace(packet, source=choose_source(stack, route, packet.destination))
    if trip.hops is not None:
        way = f"by {route.link}" + (f" via {route.via}" if route.via else "")
        trip.hop(
            stack, "route", f"{packet.destination} is reached {way} ({route.destination})", packet
        )
    blocked = pass_windows_firewall(trip, stack, packet, inbound=False)
    if blocked is not None:
        return blocked
    return transmit_from_windows(
        trip, stack, packet, stack.links[route.link], route.via or packet.destination
    )


def pass_windows_firewall(
    trip: PacketTrip, stack: NetworkStack, packet: Packet, *, inbound: bool
) -> TripEnd | None:
    """How a packet ends that the firewall of a node drops; None if it passes. Packets of known
    connections pass.
    """
    if stack.firewall is None:
        return None
    outer = packet.outer
    seen = (
        packet
        if outer is None
        else Packet(outer.source, outer.destination, "udp", outer.port, outer.port)
    )
    flows = trip.tracks.of(stack.name + " firewall")
    if flows.find(seen) is not None:
        return None
    near = (seen.destination, seen.destination_port), (seen.source, seen.source_port)
    local, remote = near if inbound else near[::-1]
    decision = stack.firewall.decide(FirewallConnection(inbound, seen.protocol, *local, *remote))
    if not decision.allowed:
        return trip.drop(
            stack, "Windows firewall", packet, "firewall", f"{stack.name}: {decision.explanation}"
        )
    flows.start(seen)
    return None


def transmit_from_windows(
    trip: PacketTrip, stack: NetworkStack, packet: Packet, link: NetworkLink, next_hop: str
) -> TripEnd:
    if link.kind == "ethernet":
        near = vfp.neighbour_of_host(trip, stack, next_hop) if stack.role == "node" else None
        return (
            vfp.from_host(trip, stack, *near, packet)
            if near is not None
            else trip.underlay(stack, packet, next_hop)
        )
    if link.kind not in ("vnic", "bridge"):
        return trip.drop(
            stack, link.name, packet, "no-neighbour", f"nothing is connected to {link.name}"
        )
    if stack.role == "sandbox":
        return vfp.egress(trip, stack, link, packet, next_hop)
    return vfp.out_of_host(trip, stack, link, packet, next_hop)


def receive_on_windows(
    trip: PacketTrip, stack: NetworkStack, packet: Packet, link: NetworkLink
) -> TripEnd:
    """From the underlay, on the network card, which belongs to the switch if there is one."""
    if not trip.enter(stack):
        return trip.drop(stack, "route", packet, "loop", "it has been under way for too long")
    if packet.outer is None and trip.world.is_local(stack, packet.source):
        why = f"it comes from outside with {packet.source}, {stack.name}'s own address"
        return trip.drop(stack, link.name, packet, "martian", why)
    if packet.outer is not None:
        blocked = pass_windows_firewall(trip, stack, packet, inbound=True)
        if blocked is not None:
            return blocked
    if stack.hns is not None and stack.role == "node":
        return vfp.inbound(trip, stack, packet)
    return deliver_to_host(trip, stack, packet)


def deliver_to_host(trip: PacketTrip, stack: NetworkStack, packet: Packet) -> TripEnd:
    """Delivers to the node's own stack, without the switch's rules."""
    if trip.world.is_local(stack, packet.destination):
        return pass_windows_firewall(trip, stack, packet, inbound=True) or trip.deliver(
            stack, packet
        )
    if not stack.forwarding:
        return trip.drop(
            stack, "route", packet, "no-forwarding", f"{stack.name} does not forward for others"
        )
    route = stack.route(packet.destination)
    if route is None:
        return trip.drop(
            stack, "route", packet, "no-route", f"{stack.name} has no route to {packet.destination}"
        )
    trip.hop(
        stack,
        "route",
        f"forwarded by {route.link}" + (f" via {route.via}" if route.via else ""),
        packet,
    )
    return transmit_from_windows(
        trip, stack, packet, stack.links[route.link], route.via or packet.destination
    )
