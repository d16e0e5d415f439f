"""The underlay: one segment with all nodes and the way out. Also the outside: a host that stands
for the Internet, and the router that is the nodes' gateway. The router knows the segment, its own
configuration, and the Internet, but no pods.
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from functools import lru_cache

from transom.network.model.addresses import is_global, is_within
from transom.network.model.packet_trip import PacketTrip, TripEnd
from transom.network.packets import Packet
from transom.network.stacks import NetworkLink, NetworkStack


@lru_cache(maxsize=64)
def _gateway(underlay: str) -> str:
    """The first address of the segment."""
    return str(next(ipaddress.ip_network(underlay).hosts())) if underlay else ""


def cross_segment(trip: PacketTrip, sender: NetworkStack, packet: Packet, next_hop: str) -> TripEnd:
    """From a machine of the segment to the owner of the next hop."""
    own = _port(sender)
    if not own.up:
        return trip.drop(sender, own.name, packet, "no-link", f"{own.name} is down")
    found = _owner_of(
        trip,
        sender,
        next_hop,
        pods=sender.role != "external" or is_within(packet.source, trip.fabric.underlay),
    )
    if found is None:
        return trip.drop(
            sender,
            "underlay",
            packet,
            "no-neighbour",
            f"no machine on the underlay answers for {next_hop}",
        )
    stack, link = found
    if trip.hops is not None:
        packet = (
            replace(packet, source_mac=_mac(sender), destination_mac=link.mac)
            if packet.outer is None
            else packet
        )
        trip.hop(sender, "underlay", f"to {trip.name(stack)} ({next_hop})", packet)
    return trip.receive(stack, packet, link)


def _mac(sender: NetworkStack) -> str:
    return next((link.mac for link in sender.links.values() if link.kind == "ethernet"), "")


def _owner_of(
    trip: PacketTrip, sender: NetworkStack, address: str, *, pods: bool
) -> tuple[NetworkStack, NetworkLink] | None:
    """`pods`: the segment knows pods with its own addresses, but traffic from the Internet only
    reaches machines.
    """
    fabric = trip.fabric
    for owner in reversed(fabric.owners(address)):
        if owner is sender:
            continue
        if owner.role != "sandbox":
            if not _port(owner).up:
                continue  # its answer does not leave it
            return owner, _port(owner)
        # Their node's switch answers for them.
        node = trip.node_of(owner)
        if (
            pods
            and node is not None
            and node is not sender
            and _port(node).up
            and is_within(address, fabric.underlay)
        ):
            return node, _port(node)
    if address == _gateway(fabric.underlay) and sender.role != "external":
        outside = next(
            (stack for stack in fabric.stacks.values() if stack.role == "external"), None
        )
        if outside is not None:
            return outside, _port(outside)
    return None


def _port(stack: NetworkStack) -> NetworkLink:
    return next(
        (link for link in stack.links.values() if link.kind == "ethernet"), stack.links["lo"]
    )


def receive_from_segment(
    trip: PacketTrip, outside: NetworkStack, packet: Packet, link: NetworkLink
) -> TripEnd:
    if not trip.enter(outside):
        return trip.drop(outside, "route", packet, "loop", "it has been under way for too long")
    destination = packet.destination
    if trip.world.is_local(outside, destination):
        return trip.deliver(outside, packet)
    if is_global(destination):
        trip.hop(outside, "Internet", f"routed to {destination}", packet)
        return TripEnd("delivered", outside, packet)
    route = outside.route(destination)
    segment = trip.fabric.underlay6 if ":" in destination else trip.fabric.underlay
    if route is None or not (route.via or is_within(destination, segment)):
        return trip.drop(
            outside,
            "router",
            packet,
            "no-route",
            f"there is no route outside the cluster to {destination}",
        )
    trip.hop(outside, "router", f"{destination} is reached via {route.via or link.name}", packet)
    return cross_segment(trip, outside, packet, route.via or destination)
