"""The way of a packet through a Linux stack: firewall hooks, routing, bridges, veth pairs, VXLAN devices.

Traffic inside a bridge passes the firewall too, as Kubernetes asks of its nodes (bridge-nf-call-iptables).
"""

from __future__ import annotations

from dataclasses import replace

from transom.network.model.addresses import family, is_loopback, within
from transom.network.model.conntrack import Conntrack, Entry
from transom.network.model.nft_eval import Passage, Point
from transom.network.model.trip import End, Trip
from transom.network.packets import Outer, Packet
from transom.network.stacks import Link, Route, Stack

_HOOKS = {"prerouting": "before routing", "input": "on the way in", "forward": "on the way through",
          "output": "on the way out", "postrouting": "after routing"}  # fmt: skip


class _Filter:
    """The firewall of one stack for one packet on its way through."""

    __slots__ = ("entry", "iif", "oif", "packet", "passed", "reply", "stack", "tracked", "trip")

    def __init__(self, trip: Trip, stack: Stack, packet: Packet, iif: str) -> None:
        self.trip, self.stack, self.packet, self.iif, self.oif = trip, stack, packet, iif, ""
        self.tracked: Conntrack | None = None
        self.entry: Entry | None = None
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

    def run(self, point: Point) -> End | None:
        """None: the packet may go on."""
        if self.tracked is None or self.entry is None:
            return None
        trip, stack = self.trip, self.stack
        passage = Passage(
            stack, self.packet, self.iif, self.oif, self.tracked, self.entry, self.reply,
            lambda address: trip.world.is_local(stack, address), lambda link, to: _leave_with(stack, link, to),
            trip.world.dynamic, trip.rng,
        )  # fmt: skip
        decision = trip.world.firewall(stack).run(passage, point)
        changed, self.packet = passage.packet is not self.packet, passage.packet
        if decision == "accept":
            if changed and trip.hops is not None:
                _tell(trip, stack, point, passage, self.reply)
            return None
        because = passage.notes[-1] if passage.notes else "a firewall rule"
        trip.facts["rule"] = {"node": stack.name, "table": passage.table, "comment": because}
        done = "rejected" if decision == "reject" else "dropped"
        trip.hop(stack, "nftables", f"{done} {_HOOKS[point]}: {because}", self.packet)
        if decision == "reject":
            return End("refused", stack, self.packet, "rejected", because)
        return End("dropped", stack, self.packet, "policy", because)


def _tell(trip: Trip, stack: Stack, point: Point, passage: Passage, reply: bool) -> None:
    if passage.notes:
        trip.hop(stack, "nftables", "; ".join(passage.notes), passage.packet)
    elif reply:
        trip.hop(stack, "connection tracking", "an answer: addresses become what the client used", passage.packet)


def _leave_with(stack: Stack, link: str, to: str) -> str:
    """Masquerading: the link's address, of the destination's family, in its subnet if there is one."""
    found = stack.links.get(link)
    wanted = family(to)
    mine = [a for a in found.addresses if a.version == wanted] if found is not None else []
    route = stack.route(to)
    near = route.via if route is not None and route.via else to
    for address in mine:
        if within(near, str(address.network)):
            return str(address.ip)
    return str(mine[0].ip) if mine else ""


def choose_source(stack: Stack, route: Route, destination: str) -> str:
    """What a program's packets leave with, when it does not say."""
    if route.source:
        return route.source
    wanted = family(destination)
    return next((str(a.ip) for a in stack.links[route.link].addresses if a.version == wanted), "")


# ---- from a program ----------------------------------------------------------------------------------------------------


def send(trip: Trip, stack: Stack, packet: Packet) -> End:
    if not trip.enter(stack):
        return trip.drop(stack, "route", packet, "loop", "it has been under way for too long")
    world = trip.world
    local = world.is_local(stack, packet.destination)
    route = None if local else stack.route(packet.destination)
    if not local and route is None:
        return _unrouted(trip, stack, packet)
    if not packet.source:
        source = packet.destination if route is None else choose_source(stack, route, packet.destination)
        packet = replace(packet, source=source)
    passing = _Filter(trip, stack, packet, "")
    passing.oif = "lo" if route is None else route.link
    ended = passing.run("output")
    if ended is not None:
        return ended
    if passing.packet.destination != packet.destination:
        local = world.is_local(stack, passing.packet.destination)
        route = None if local else stack.route(passing.packet.destination)
        if not local and route is None:
            return _unrouted(trip, stack, passing.packet)
    if route is None:
        passing.oif = passing.iif = "lo"
        ended = passing.run("postrouting") or passing.run("input")
        return ended or _deliver(trip, stack, passing.packet)
    return _leave(trip, passing, route)


def _leave(trip: Trip, passing: _Filter, route: Route, in_port: str = "") -> End:
    passing.oif = route.link
    ended = passing.run("postrouting")
    if ended is not None:
        return ended
    packet, stack = passing.packet, passing.stack
    next_hop = route.via or packet.destination
    if trip.hops is not None:
        way = f"by {route.link}" + (f" via {route.via}" if route.via else "")
        trip.hop(stack, "route", f"{packet.destination} is reached {way} ({route.destination})", packet)
    return transmit(trip, stack, packet, route.link, next_hop, in_port)


def _unrouted(trip: Trip, stack: Stack, packet: Packet) -> End:
    return trip.drop(stack, "route", packet, "no-route", f"{stack.name} has no route to {packet.destination}")


def _unanswered(trip: Trip, stack: Stack, packet: Packet, device: str, why: str) -> End:
    return trip.drop(stack, device, packet, "no-neighbour", why)


def _deliver(trip: Trip, stack: Stack, packet: Packet) -> End:
    trip.hop(stack, "socket", "arrived", packet)
    return End("delivered", stack, packet)


# ---- from a link -------------------------------------------------------------------------------------------------------


def receive(trip: Trip, stack: Stack, packet: Packet, link: Link, in_port: str = "") -> End:
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


def _route(trip: Trip, passing: _Filter, in_port: str) -> End:
    """After what happens before routing: to a program here, or on."""
    stack, packet = passing.stack, passing.packet
    if trip.world.is_local(stack, packet.destination):
        ended = passing.run("input")
        return ended or _deliver(trip, stack, passing.packet)
    if not stack.forwarding:
        return trip.drop(stack, "route", packet, "no-forwarding", f"{stack.name} does not forward for others")
    route = stack.route(packet.destination)
    if route is None:
        return _unrouted(trip, stack, packet)
    passing.oif = route.link
    ended = passing.run("forward")
    return ended or _leave(trip, passing, route, in_port)


def _decapsulate(trip: Trip, stack: Stack, packet: Packet) -> End:
    outer = packet.outer
    assert outer is not None
    device = next((link for link in stack.links.values()
                   if link.kind == "vxlan" and link.vni == outer.vni and (link.port or 4789) == outer.port
                   and link.local in ("", outer.destination)), None)
    if device is None:
        why = f"{stack.name} has no VXLAN device for VNI {outer.vni} at port {outer.port}"
        return trip.drop(stack, "VXLAN", packet, "no-vxlan", why)
    inner = replace(packet, outer=None)
    trip.hop(stack, f"VXLAN {device.name}", f"unpacked (VNI {outer.vni})", inner)
    return receive(trip, stack, inner, device)


# ---- out by a link -----------------------------------------------------------------------------------------------------


def transmit(trip: Trip, stack: Stack, packet: Packet, name: str, next_hop: str, in_port: str = "") -> End:
    link = stack.links.get(name)
    if link is None:
        return trip.drop(stack, "route", packet, "no-link", f"{stack.name} has no link {name}")
    if link.kind == "veth":
        return _cross_pair(trip, stack, packet, link, next_hop)
    if link.kind == "bridge":
        return _out_of_bridge(trip, stack, packet, link, next_hop, in_port)
    if link.kind == "vxlan":
        return _encapsulate(trip, stack, packet, link, next_hop)
    if link.kind == "ethernet":
        return trip.underlay(stack, packet, next_hop)
    return trip.drop(stack, name, packet, "no-neighbour", f"nobody is behind {name}")


def _cross_pair(trip: Trip, stack: Stack, packet: Packet, link: Link, next_hop: str) -> End:
    there = trip.fabric.stacks.get(link.peer[0]) if link.peer is not None else None
    end = there.links.get(link.peer[1]) if there is not None and link.peer is not None else None
    if there is None or end is None:
        return trip.drop(stack, link.name, packet, "no-link", f"the other end of {link.name} is gone")
    if not end.master:
        known = stack.neighbours.get(next_hop)
        if trip.world.is_local(there, next_hop) or (known is not None and known[0] == end.mac):
            return trip.receive(there, packet, end)
        return trip.drop(stack, link.name, packet, "no-neighbour", f"nobody answers for {next_hop}")
    bridge = there.links.get(end.master)
    if bridge is None:
        return trip.drop(there, end.name, packet, "no-link", f"there is no bridge {end.master}")
    if trip.world.is_local(there, next_hop):
        return receive(trip, there, packet, bridge, end.name)
    return _bridged(trip, there, packet, bridge, end, next_hop)


def _bridged(trip: Trip, node: Stack, packet: Packet, bridge: Link, in_port: Link, next_hop: str) -> End:
    """From one port of a bridge to another."""
    if not trip.enter(node):
        return trip.drop(node, bridge.name, packet, "loop", "it has been under way for too long")
    target = _port_of(trip, node, bridge, next_hop)
    if target is None and not _uplink(node, bridge):
        return _unanswered(trip, node, packet, f"bridge {bridge.name}", f"nobody on {bridge.name} answers for {next_hop}")
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


def _out_of_bridge(trip: Trip, stack: Stack, packet: Packet, bridge: Link, next_hop: str, in_port: str) -> End:
    target = _port_of(trip, stack, bridge, next_hop)
    if target is None:
        if _uplink(stack, bridge):
            return trip.underlay(stack, packet, next_hop)
        return _unanswered(trip, stack, packet, f"bridge {bridge.name}", f"nobody on {bridge.name} answers for {next_hop}")
    sandbox, link, port = target
    if port.name == in_port and not port.hairpin:
        return trip.drop(stack, f"bridge {bridge.name}", packet, "no-hairpin",
                         f"port {port.name} does not send back what came in by it (hairpin mode is off)")
    trip.hop(stack, f"bridge {bridge.name}", f"to port {port.name}", packet)
    return trip.receive(sandbox, packet, link)


def _port_of(trip: Trip, node: Stack, bridge: Link, address: str) -> tuple[Stack, Link, Link] | None:
    """Who on the bridge has the address: its stack, its end of the pair, and the bridge's port."""
    for owner in reversed(trip.fabric.owners(address)):
        for link in owner.links.values():
            if link.peer is not None and link.peer[0] == node.name:
                port = node.links.get(link.peer[1])
                if port is not None and port.master == bridge.name:
                    return owner, link, port
    return None


def _uplink(node: Stack, bridge: Link) -> bool:
    return any(link.kind == "ethernet" and link.master == bridge.name for link in node.links.values())


def _encapsulate(trip: Trip, stack: Stack, packet: Packet, device: Link, next_hop: str) -> End:
    known = stack.neighbours.get(next_hop)
    if known is None:
        return _unanswered(trip, stack, packet, f"VXLAN {device.name}", f"{device.name} does not know who has {next_hop}")
    remote = device.fdb.get(known[0])
    if remote is None:
        return _unanswered(trip, stack, packet, f"VXLAN {device.name}", f"{device.name} does not know where {known[0]} is")
    outer = Outer(device.local, remote, device.vni, device.port or 4789)
    wrapped = replace(packet, outer=outer, destination_mac=known[0], source_mac=device.mac)
    trip.hop(stack, f"VXLAN {device.name}", f"packed for {remote} (VNI {device.vni}, port {outer.port})", wrapped)
    route = stack.route(remote)
    if route is None or is_loopback(remote):
        return trip.drop(stack, "route", wrapped, "no-route", f"{stack.name} has no route to {remote}")
    return transmit(trip, stack, wrapped, route.link, route.via or remote)
