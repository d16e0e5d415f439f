"""The path of a packet through a Linux stack: firewall hooks, routing, bridges, veth pairs, VXLAN
devices.

Traffic inside a bridge passes the firewall too, as Kubernetes requires of its nodes
(bridge-nf-call-iptables).
"""

from __future__ import annotations

from dataclasses import replace

from transom.network.model.addresses import address_family, is_global, is_loopback, is_within
from transom.network.model.conntrack import Conntrack, ConntrackEntry
from transom.network.model.nft_eval import HookTraversal, Point
from transom.network.model.packet_trip import NetworkState, PacketTrip, TripEnd
from transom.network.ovn.database import GENEVE_PORT
from transom.network.packets import Outer, Packet
from transom.network.stacks import NetworkLink, NetworkRoute, NetworkStack

_HOOKS = {
    "prerouting": "before routing",
    "input": "on the way in",
    "forward": "on the way through",
    "output": "on the way out",
    "postrouting": "after routing",
}


class _Filter:
    """The firewall of one stack for one packet."""

    __slots__ = ("entry", "iif", "oif", "packet", "passed", "reply", "stack", "tracked", "trip")

    def __init__(self, trip: PacketTrip, stack: NetworkStack, packet: Packet, iif: str) -> None:
        self.trip, self.stack, self.packet, self.iif, self.oif = trip, stack, packet, iif, ""
        self.tracked: Conntrack | None = None
        self.entry: ConntrackEntry | None = None
        self.reply = False
        if stack.tables:
            self.tracked = trip.tracks.of(stack.name)
            found = self.tracked.find(packet)
            if found is None:
                self.entry = self.tracked.start(packet)
            else:
                self.entry, self.reply = found
                if self.reply:
                    self.entry.answered = True

    def run(self, point: Point) -> TripEnd | None:
        """None: the packet may continue."""
        if self.tracked is None or self.entry is None:
            return None
        trip, stack = self.trip, self.stack
        traversal = HookTraversal(
            stack,
            self.packet,
            self.iif,
            self.oif,
            self.tracked,
            self.entry,
            self.reply,
            lambda address: trip.world.is_local(stack, address),
            lambda link, to: _leave_with(stack, link, to),
            trip.world.dynamic,
            trip.rng,
        )
        decision = trip.world.firewall(stack).run(traversal, point)
        changed, self.packet = traversal.packet is not self.packet, traversal.packet
        if decision == "accept":
            if changed and trip.hops is not None:
                _tell(trip, stack, point, traversal, self.reply)
            return None
        because = traversal.notes[-1] if traversal.notes else "a firewall rule"
        trip.facts["rule"] = {"node": stack.name, "table": traversal.table, "comment": because}
        done = "rejected" if decision == "reject" else "dropped"
        trip.hop(stack, "nftables", f"{done} {_HOOKS[point]}: {because}", self.packet)
        if decision == "reject":
            return TripEnd("refused", stack, self.packet, "rejected", because)
        return TripEnd("dropped", stack, self.packet, "policy", because)


def _tell(
    trip: PacketTrip, stack: NetworkStack, point: Point, traversal: HookTraversal, reply: bool
) -> None:
    if traversal.notes:
        trip.hop(stack, "nftables", "; ".join(traversal.notes), traversal.packet)
    elif reply:
        trip.hop(
            stack,
            "connection tracking",
            "an answer: addresses become what the client used",
            traversal.packet,
        )


def _leave_with(stack: NetworkStack, link: str, to: str) -> str:
    """Masquerading: the link's address of the destination's family, preferably in its subnet."""
    found = stack.links.get(link)
    wanted = address_family(to)
    mine = [a for a in found.addresses if a.version == wanted] if found is not None else []
    route = stack.route(to)
    near = route.via if route is not None and route.via else to
    for address in mine:
        if is_within(near, str(address.network)):
            return str(address.ip)
    return str(mine[0].ip) if mine else ""


def choose_source(stack: NetworkStack, route: NetworkRoute, destination: str) -> str:
    """The source address of a program's packets, unless it sets one."""
    if route.source:
        return route.source
    wanted = address_family(destination)
    return next((str(a.ip) for a in stack.links[route.link].addresses if a.version == wanted), "")


# ---- from a program ----


def send_from_linux(trip: PacketTrip, stack: NetworkStack, packet: Packet) -> TripEnd:
    if not trip.enter(stack):
        return trip.drop(stack, "route", packet, "loop", "it has been under way for too long")
    world = trip.world
    local = _is_own(world, stack, packet.destination)
    route = None if local else stack.route(packet.destination)
    if not local and route is None:
        return _unrouted(trip, stack, packet)
    if not packet.source:
        source = (
            packet.destination if route is None else choose_source(stack, route, packet.destination)
        )
        packet = replace(packet, source=source)
    passing = _Filter(trip, stack, packet, "")
    passing.oif = "lo" if route is None else route.link
    ended = passing.run("output")
    if ended is not None:
        return ended
    if passing.packet.destination != packet.destination:
        local = _is_own(world, stack, passing.packet.destination)
        route = None if local else stack.route(passing.packet.destination)
        if not local and route is None:
            return _unrouted(trip, stack, passing.packet)
    if route is None:
        passing.oif = passing.iif = "lo"
        ended = passing.run("postrouting") or passing.run("input")
        return ended or _deliver(trip, stack, passing.packet)
    return _leave(trip, passing, route)


def _is_own(world: NetworkState, stack: NetworkStack, address: str) -> bool:
    """The external host is the whole Internet: it has every public address that is not routed to
    the cluster.
    """
    if world.is_local(stack, address):
        return True
    if stack.role != "external" or not is_global(address):
        return False
    route = stack.route(address)
    return route is None or not route.via or not route.destination.prefixlen


def _leave(trip: PacketTrip, passing: _Filter, route: NetworkRoute, in_port: str = "") -> TripEnd:
    passing.oif = route.link
    ended = passing.run("postrouting")
    if ended is not None:
        return ended
    packet, stack = passing.packet, passing.stack
    next_hop = route.via or packet.destination
    if trip.hops is not None:
        way = f"by {route.link}" + (f" via {route.via}" if route.via else "")
        trip.hop(
            stack, "route", f"{packet.destination} is reached {way} ({route.destination})", packet
        )
    return transmit_from_linux(trip, stack, packet, route.link, next_hop, in_port)


def _unrouted(trip: PacketTrip, stack: NetworkStack, packet: Packet) -> TripEnd:
    return trip.drop(
        stack, "route", packet, "no-route", f"{stack.name} has no route to {packet.destination}"
    )


def _unanswered(
    trip: PacketTrip, stack: NetworkStack, packet: Packet, device: str, why: str
) -> TripEnd:
    return trip.drop(stack, device, packet, "no-neighbour", why)


def _deliver(trip: PacketTrip, stack: NetworkStack, packet: Packet) -> TripEnd:
    trip.hop(stack, "socket", "arrived", packet)
    return TripEnd("delivered", stack, packet)


# ---- from a link ----


def receive_on_linux(
    trip: PacketTrip, stack: NetworkStack, packet: Packet, link: NetworkLink, in_port: str = ""
) -> TripEnd:
    if not trip.enter(stack):
        return trip.drop(stack, "route", packet, "loop", "it has been under way for too long")
    if packet.outer is not None:
        return _decapsulate(trip, stack, packet)
    if trip.world.is_local(stack, packet.source):
        why = f"it comes from outside with {packet.source}, {stack.name}'s own address"
        return trip.drop(stack, link.name, packet, "martian", why)
    passing = _Filter(trip, stack, packet, link.name)
    ended = passing.run("prerouting")
    if ended is not None:
        return ended
    return _route(trip, passing, in_port)


def _route(trip: PacketTrip, passing: _Filter, in_port: str) -> TripEnd:
    """Continues after prerouting: delivers to a local program, or forwards."""
    stack, packet = passing.stack, passing.packet
    if trip.world.is_local(stack, packet.destination):
        ended = passing.run("input")
        return ended or _deliver(trip, stack, passing.packet)
    if not stack.forwarding:
        return trip.drop(
            stack, "route", packet, "no-forwarding", f"{stack.name} does not forward for others"
        )
    route = stack.route(packet.destination)
    if route is None:
        return _unrouted(trip, stack, packet)
    passing.oif = route.link
    ended = passing.run("forward")
    return ended or _leave(trip, passing, route, in_port)


def _decapsulate(trip: PacketTrip, stack: NetworkStack, packet: Packet) -> TripEnd:
    outer = packet.outer
    assert outer is not None
    if outer.port == GENEVE_PORT:
        return _from_geneve(trip, stack, packet)
    device = next(
        (
            link
            for link in stack.links.values()
            if link.kind == "vxlan"
            and link.vni == outer.vni
            and (link.port or 4789) == outer.port
            and link.local in ("", outer.destination)
        ),
        None,
    )
    if device is None:
        why = f"{stack.name} has no VXLAN device for VNI {outer.vni} at port {outer.port}"
        return trip.drop(stack, "VXLAN", packet, "no-vxlan", why)
    inner = replace(packet, outer=None)
    trip.hop(stack, f"VXLAN {device.name}", f"unpacked (VNI {outer.vni})", inner)
    return receive_on_linux(trip, stack, inner, device)


# ---- out by a link ----


def transmit_from_linux(
    trip: PacketTrip,
    stack: NetworkStack,
    packet: Packet,
    name: str,
    next_hop: str,
    in_port: str = "",
) -> TripEnd:
    link = stack.links.get(name)
    if link is None:
        return trip.drop(stack, "route", packet, "no-link", f"{stack.name} has no link {name}")
    if not link.up:
        return trip.drop(stack, name, packet, "no-link", f"{name} is down")
    if link.kind == "veth":
        return _cross_pair(trip, stack, packet, link, next_hop)
    if link.kind == "bridge":
        return _out_of_bridge(trip, stack, packet, link, next_hop, in_port)
    if link.kind == "vxlan":
        return _encapsulate(trip, stack, packet, link, next_hop)
    if link.kind == "geneve":
        return _by_geneve(trip, stack, packet, link)
    if link.kind == "ethernet":
        return trip.underlay(stack, packet, next_hop)
    return trip.drop(stack, name, packet, "no-neighbour", f"nothing is connected to {name}")


def _cross_pair(
    trip: PacketTrip, stack: NetworkStack, packet: Packet, link: NetworkLink, next_hop: str
) -> TripEnd:
    there = trip.fabric.stacks.get(link.peer[0]) if link.peer is not None else None
    end = there.links.get(link.peer[1]) if there is not None and link.peer is not None else None
    if there is None or end is None:
        return trip.drop(
            stack, link.name, packet, "no-link", f"the other end of {link.name} is gone"
        )
    if not end.up:
        return trip.drop(there, end.name, packet, "no-link", f"{end.name} is down")
    if not end.master:
        known = stack.neighbours.get(next_hop)
        if trip.world.is_local(there, next_hop) or (known is not None and known[0] == end.mac):
            return trip.receive(there, packet, end)
        return trip.drop(
            stack, link.name, packet, "no-neighbour", f"no neighbour answers for {next_hop}"
        )
    bridge = there.links.get(end.master)
    if bridge is None:
        return trip.drop(there, end.name, packet, "no-link", f"there is no bridge {end.master}")
    if not bridge.up:
        return trip.drop(there, bridge.name, packet, "no-link", f"{bridge.name} is down")
    if trip.world.is_local(there, next_hop):
        return receive_on_linux(trip, there, packet, bridge, end.name)
    return _bridged(trip, there, packet, bridge, end, next_hop)


def _bridged(
    trip: PacketTrip,
    node: NetworkStack,
    packet: Packet,
    bridge: NetworkLink,
    in_port: NetworkLink,
    next_hop: str,
) -> TripEnd:
    """From one port of a bridge to another."""
    if not trip.enter(node):
        return trip.drop(node, bridge.name, packet, "loop", "it has been under way for too long")
    target = _port_of(trip, node, bridge, next_hop)
    if target is None and not _uplink(node, bridge):
        return _unanswered(
            trip,
            node,
            packet,
            f"bridge {bridge.name}",
            f"no port of {bridge.name} answers for {next_hop}",
        )
    passing = _Filter(trip, node, packet, bridge.name)
    ended = passing.run("prerouting")
    if ended is not None:
        return ended
    if passing.packet.destination != packet.destination:
        return _route(trip, passing, in_port.name)
    passing.oif = bridge.name
    ended = passing.run("forward") or passing.run("postrouting")
    if ended is not None:
        return ended
    trip.hop(node, f"bridge {bridge.name}", f"switched from port {in_port.name}", passing.packet)
    if target is None:
        return trip.underlay(node, passing.packet, next_hop)
    sandbox, link, _ = target
    return trip.receive(sandbox, passing.packet, link)


def _out_of_bridge(
    trip: PacketTrip,
    stack: NetworkStack,
    packet: Packet,
    bridge: NetworkLink,
    next_hop: str,
    in_port: str,
) -> TripEnd:
    target = _port_of(trip, stack, bridge, next_hop)
    if target is None:
        if _uplink(stack, bridge):
            return trip.underlay(stack, packet, next_hop)
        return _unanswered(
            trip,
            stack,
            packet,
            f"bridge {bridge.name}",
            f"no port of {bridge.name} answers for {next_hop}",
        )
    sandbox, link, port = target
    if port.name == in_port and not port.hairpin:
        return trip.drop(
            stack,
            f"bridge {bridge.name}",
            packet,
            "no-hairpin",
            f"port {port.name} does not send back what came in by it (hairpin mode is off)",
        )
    trip.hop(stack, f"bridge {bridge.name}", f"to port {port.name}", packet)
    return trip.receive(sandbox, packet, link)


def _port_of(
    trip: PacketTrip, node: NetworkStack, bridge: NetworkLink, address: str
) -> tuple[NetworkStack, NetworkLink, NetworkLink] | None:
    """The owner of the address on the bridge: its stack, its end of the veth pair, and the bridge
    port.
    """
    for owner in reversed(trip.fabric.owners(address)):
        for link in owner.links.values():
            if link.peer is not None and link.peer[0] == node.name:
                port = node.links.get(link.peer[1])
                up = link.up and port is not None and port.up
                if port is not None and up and port.master == bridge.name:
                    return owner, link, port
    return None


def _uplink(node: NetworkStack, bridge: NetworkLink) -> bool:
    return any(
        link.kind == "ethernet" and link.master == bridge.name for link in node.links.values()
    )


def _encapsulate(
    trip: PacketTrip, stack: NetworkStack, packet: Packet, device: NetworkLink, next_hop: str
) -> TripEnd:
    known = stack.neighbours.get(next_hop)
    if known is None:
        return _unanswered(
            trip,
            stack,
            packet,
            f"VXLAN {device.name}",
            f"{device.name} does not know who has {next_hop}",
        )
    remote = device.fdb.get(known[0])
    if remote is None:
        return _unanswered(
            trip,
            stack,
            packet,
            f"VXLAN {device.name}",
            f"{device.name} does not know where {known[0]} is",
        )
    outer = Outer(device.local, remote, device.vni, device.port or 4789)
    wrapped = replace(packet, outer=outer, destination_mac=known[0], source_mac=device.mac)
    trip.hop(
        stack,
        f"VXLAN {device.name}",
        f"packed for {remote} (VNI {device.vni}, port {outer.port})",
        wrapped,
    )
    route = stack.route(remote)
    if route is None or is_loopback(remote):
        return trip.drop(
            stack, "route", wrapped, "no-route", f"{stack.name} has no route to {remote}"
        )
    return transmit_from_linux(trip, stack, wrapped, route.link, route.via or remote)


def _by_geneve(
    trip: PacketTrip, stack: NetworkStack, packet: Packet, device: NetworkLink
) -> TripEnd:
    """OVN knows on which chassis each logical port is."""
    there = stack.ovn.switch_of(packet.destination) if stack.ovn is not None else None
    if there is None or there.node == stack.name:
        why = f"no logical switch has {packet.destination}"
        return _unanswered(trip, stack, packet, f"GENEVE {device.name}", why)
    outer = Outer(device.local, there.chassis, there.key, GENEVE_PORT)
    wrapped = replace(packet, outer=outer, source_mac=device.mac)
    action = f"packed for {there.chassis} (VNI {there.key}, port {GENEVE_PORT})"
    trip.hop(stack, f"GENEVE {device.name}", action, wrapped)
    route = stack.route(there.chassis)
    if route is None:
        why = f"{stack.name} has no route to {there.chassis}"
        return trip.drop(stack, "route", wrapped, "no-route", why)
    return transmit_from_linux(trip, stack, wrapped, route.link, route.via or there.chassis)


def _from_geneve(trip: PacketTrip, stack: NetworkStack, packet: Packet) -> TripEnd:
    assert packet.outer is not None
    device = next((link for link in stack.links.values() if link.kind == "geneve"), None)
    own = stack.ovn.switches.get(stack.name) if stack.ovn is not None else None
    if device is None or own is None or own.key != packet.outer.vni:
        why = f"{stack.name} has no logical switch with VNI {packet.outer.vni}"
        return trip.drop(stack, "GENEVE", packet, "no-geneve", why)
    inner = replace(packet, outer=None)
    trip.hop(stack, f"GENEVE {device.name}", f"unpacked (VNI {own.key})", inner)
    return receive_on_linux(trip, stack, inner, device)
