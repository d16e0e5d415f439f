"""The underlay: one segment with all nodes and the way out. And what is outside: a host that stands for the Internet, and the
router that nodes have as their gateway. The router knows the segment, what it has been told, and the Internet; no pods."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from functools import lru_cache

from transom.network.model.addresses import is_global, within
from transom.network.model.trip import End, Trip
from transom.network.packets import Packet
from transom.network.stacks import Link, Stack


@lru_cache(maxsize=64)
def _gateway(underlay: str) -> str:
    """The first address of the segment."""
    return str(next(ipaddress.ip_network(underlay).hosts())) if underlay else ""


def cross(trip: Trip, sender: Stack, packet: Packet, next_hop: str) -> End:
    """From a machine of the segment to the one that answers for the next hop."""
    found = _who(trip, sender, next_hop, pods=sender.role != "external" or within(packet.source, trip.fabric.underlay))
    if found is None:
        return trip.drop(sender, "underlay", packet, "no-neighbour", f"nobody on the underlay answers for {next_hop}")
    stack, link = found
    if trip.hops is not None:
        packet = replace(packet, source_mac=_mac(sender), destination_mac=link.mac) if packet.outer is None else packet
        trip.hop(sender, "underlay", f"to {trip.name(stack)} ({next_hop})", packet)
    return trip.receive(stack, packet, link)


def _mac(sender: Stack) -> str:
    return next((link.mac for link in sender.links.values() if link.kind == "ethernet"), "")


def _who(trip: Trip, sender: Stack, address: str, *, pods: bool) -> tuple[Stack, Link] | None:
    """`pods`: those with addresses of the segment are known to it, but the way in from the Internet leads to machines."""
    fabric = trip.fabric
    for owner in reversed(fabric.owners(address)):
        if owner is sender:
            continue
        if owner.role != "sandbox":
            return owner, _port(owner)
        # Their node's switch answers for them.
        node = trip.node_of(owner)
        if pods and node is not None and node is not sender and within(address, fabric.underlay):
            return node, _port(node)
    if address == _gateway(fabric.underlay) and sender.role != "external":
        outside = next((stack for stack in fabric.stacks.values() if stack.role == "external"), None)
        if outside is not None:
            return outside, _port(outside)
    return None


def _port(stack: Stack) -> Link:
    return next((link for link in stack.links.values() if link.kind == "ethernet"), stack.links["lo"])


def receive(trip: Trip, outside: Stack, packet: Packet, link: Link) -> End:
    if not trip.enter(outside):
        return trip.drop(outside, "route", packet, "loop", "it has been under way for too long")
    destination = packet.destination
    if trip.world.is_local(outside, destination):
        trip.hop(outside, "socket", "arrived", packet)
        return End("delivered", outside, packet)
    if is_global(destination):
        trip.hop(outside, "Internet", f"routed to {destination}", packet)
        return End("delivered", outside, packet)
    route = outside.route(destination)
    segment = trip.fabric.underlay6 if ":" in destination else trip.fabric.underlay
    if route is None or not (route.via or within(destination, segment)):
        return trip.drop(outside, "router", packet, "no-route", f"outside the cluster nobody has a route to {destination}")
    trip.hop(outside, "router", f"{destination} is reached via {route.via or link.name}", packet)
    return cross(trip, outside, packet, route.via or destination)
