"""The stacks of Windows: a node's own, and those of containers. Neither has a firewall table: rules are on the switch.

What the node's own programs send goes by its route table to a card; only packets of the card of a switch pass its rules.
"""

from __future__ import annotations

from dataclasses import replace

from transom.network.model import vfp
from transom.network.model.addresses import family
from transom.network.model.crossing import node_address
from transom.network.model.linux import choose_source
from transom.network.model.trip import End, Trip
from transom.network.packets import Packet
from transom.network.stacks import Link, Stack


def send(trip: Trip, stack: Stack, packet: Packet) -> End:
    if not trip.enter(stack):
        return trip.drop(stack, "route", packet, "loop", "it has been under way for too long")
    if trip.world.is_local(stack, packet.destination):
        return deliver(trip, stack, packet if packet.source else replace(packet, source=packet.destination))
    near = vfp.way_of_host(trip, stack, packet.destination) if stack.role == "node" else None
    if near is not None:
        net, port = near
        packet = packet if packet.source else replace(packet, source=node_address(stack, family(packet.destination)))
        trip.hop(stack, "route", f"{packet.destination} is a port of network {net.name}", packet)
        return vfp.from_host(trip, stack, net, port, packet)
    route = stack.route(packet.destination)
    if route is None:
        return trip.drop(stack, "route", packet, "no-route", f"{stack.name} has no route to {packet.destination}")
    if not packet.source:
        packet = replace(packet, source=choose_source(stack, route, packet.destination))
    if trip.hops is not None:
        way = f"by {route.link}" + (f" via {route.via}" if route.via else "")
        trip.hop(stack, "route", f"{packet.destination} is reached {way} ({route.destination})", packet)
    return transmit(trip, stack, packet, stack.links[route.link], route.via or packet.destination)


def transmit(trip: Trip, stack: Stack, packet: Packet, link: Link, next_hop: str) -> End:
    if link.kind == "ethernet":
        near = vfp.neighbour_of_host(trip, stack, next_hop) if stack.role == "node" else None
        return vfp.from_host(trip, stack, *near, packet) if near is not None else trip.underlay(stack, packet, next_hop)
    if link.kind not in ("vnic", "bridge"):
        return trip.drop(stack, link.name, packet, "no-neighbour", f"nobody is behind {link.name}")
    if stack.role == "sandbox":
        return vfp.egress(trip, stack, link, packet, next_hop)
    return vfp.out_of_host(trip, stack, link, packet, next_hop)


def deliver(trip: Trip, stack: Stack, packet: Packet, socket: tuple[str, int] | None = None) -> End:
    trip.hop(stack, "socket", "arrived", packet)
    return End("delivered", stack, packet, socket=socket)


def receive(trip: Trip, stack: Stack, packet: Packet, link: Link) -> End:
    """From the underlay, by the card that is the switch's if there is one."""
    if not trip.enter(stack):
        return trip.drop(stack, "route", packet, "loop", "it has been under way for too long")
    if packet.outer is None and trip.world.is_local(stack, packet.source):
        why = f"it comes from outside with {packet.source}, {stack.name}'s own address"
        return trip.drop(stack, link.name, packet, "martian", why)
    if stack.hns is not None and stack.role == "node":
        return vfp.inbound(trip, stack, packet)
    return to_host(trip, stack, packet)


def to_host(trip: Trip, stack: Stack, packet: Packet) -> End:
    """Past the switch's rules: the node's own stack."""
    if trip.world.is_local(stack, packet.destination):
        return deliver(trip, stack, packet)
    if not stack.forwarding:
        return trip.drop(stack, "route", packet, "no-forwarding", f"{stack.name} does not forward for others")
    route = stack.route(packet.destination)
    if route is None:
        return trip.drop(stack, "route", packet, "no-route", f"{stack.name} has no route to {packet.destination}")
    trip.hop(stack, "route", f"forwarded by {route.link}" + (f" via {route.via}" if route.via else ""), packet)
    return transmit(trip, stack, packet, stack.links[route.link], route.via or packet.destination)
