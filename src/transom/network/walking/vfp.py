"""The virtual filtering platform: what the switch of a Windows node does to the packets of its ports.

For the first packet of a connection, at a container's port:
1. load balancing, for TCP, UDP and SCTP, by the rules of the port's own network, and by those without addresses for the
   node's addresses. Without direct server return (DSR) a backend on another node sees the node's address, or on an overlay
   the source VIP; with DSR, and for a backend on this node, the source stays;
2. access rules, which see the backend's address;
3. OutBoundNAT: source becomes the node's address, but for destinations in the exceptions and the node itself. VFP cannot
   translate ICMP: such packets leave as they are;
4. forwarding by the kind of network.
Packets that come from outside meet load balancing too (there without DSR every backend sees the node's address), and port
mappings. Packets of the node's own stack meet neither. Later packets, and answers, follow the first.
"""

from __future__ import annotations

import zlib
from dataclasses import replace

from transom.network.packets import Outer, Packet
from transom.network.stacks import Link, Stack
from transom.network.walking import windows
from transom.network.walking.addresses import family, place, within
from transom.network.walking.conntrack import Conntrack, Entry
from transom.network.walking.switch import Balancer, Net, Port, Switch
from transom.network.walking.trip import End, Trip

GENEVE_PORT = 6081
_TRANSLATED = ("tcp", "udp", "sctp")


def _flows(trip: Trip, node: Stack) -> Conntrack:
    return trip.tracks.of(node.name + " switch")


def _node_address(node: Stack, version: int) -> str:
    return next(
        (str(a.ip) for link in node.links.values() if link.kind == "ethernet" for a in link.addresses if a.version == version), ""
    )


# ---- from a container ----------------------------------------------------------------------------------------------------


def egress(trip: Trip, sandbox: Stack, link: Link, packet: Packet, next_hop: str) -> End:
    node = trip.node_of(sandbox)
    switch = trip.world.switch(node) if node is not None else None
    port = switch.port(link.endpoint) if switch is not None else None
    net = switch.net(port.network) if switch is not None and port is not None else None
    if node is None or switch is None or port is None or net is None:
        return trip.drop(sandbox, "vSwitch port", packet, "no-port", f"the switch has no port {link.endpoint}: its HNS endpoint is gone")
    if not trip.enter(node):
        return trip.drop(node, "vSwitch port", packet, "loop", "it has been under way for too long")
    flows = _flows(trip, node)
    found = flows.find(packet)
    if found is not None:
        entry, reply = found
        before, packet = packet, _follow(packet, entry, reply)
        if packet is not before:
            trip.hop(node, "vSwitch port", "part of a known connection: addresses as decided for it", packet)
    else:
        entry, reply = flows.start(packet), False
        packet_or_end = _first_from_pod(trip, node, switch, net, port, packet, flows, entry)
        if isinstance(packet_or_end, End):
            return packet_or_end
        packet = packet_or_end
    return _forward(trip, node, switch, net, packet, entry, reply=reply, gateway=next_hop, origin=port)


def _follow(packet: Packet, entry: Entry, reply: bool) -> Packet:
    if reply:
        entry.answered = True
    return entry.with_source(entry.with_destination(packet, reply), reply)


def _first_from_pod(
    trip: Trip, node: Stack, switch: Switch, net: Net, port: Port, packet: Packet, flows: Conntrack, entry: Entry
) -> Packet | End:
    trip.facts.setdefault("egress", {"node": node.name, "network": net.name, "type": net.type, "endpoint": port.id})
    balancer = switch.balancer(packet, host=trip.world.is_local(node, packet.destination))
    if balancer is not None and _serves(switch, balancer, net):
        balanced = _balance(trip, node, switch, net, port, packet, flows, entry, balancer)
        if isinstance(balanced, End):
            return balanced
        packet = balanced
    else:
        trip.facts.setdefault("unbalanced", place(packet.destination, packet.destination_port))
    ended = _admit(trip, node, switch, net, port, packet, entry, inward=False)
    if ended is not None:
        return ended
    return _outbound(trip, node, switch, net, port, packet, flows, entry)


def _serves(switch: Switch, balancer: Balancer, net: Net) -> bool:
    return any((found := switch.port(key)) is not None and found.network == net.id for key in balancer.endpoints)


def _choose(switch: Switch, balancer: Balancer, packet: Packet) -> Port | None:
    version = family(packet.destination)
    ports = [p for key in balancer.endpoints if (p := switch.port(key)) is not None and p.address(version)]
    if not ports:
        return None
    key: tuple[object, ...] = (packet.source, packet.source_port, packet.destination, packet.destination_port, packet.protocol)
    if balancer.by_source == 1:
        key = (packet.source, packet.protocol)
    elif balancer.by_source == 2:
        key = (packet.source,)
    return ports[zlib.crc32(repr((balancer.id, key)).encode()) % len(ports)]


def _balance(
    trip: Trip, node: Stack, switch: Switch, net: Net, port: Port | None, packet: Packet, flows: Conntrack, entry: Entry,
    balancer: Balancer,
) -> Packet | End:
    """The packet to the backend; what it becomes is remembered in the entry."""
    backend = _choose(switch, balancer, packet)
    if backend is None:
        return trip.drop(node, "load balancer", packet, "no-backend", f"load balancer {balancer.id} has no backend left")
    version = family(packet.destination)
    address = backend.address(version)
    trip.facts["balancer"] = {"id": balancer.id, "backends": len(balancer.endpoints), "dsr": balancer.dsr, "backend": address}
    if balancer.preserve:
        entry.status.add("preserve")
        trip.facts["preserved"] = (backend.id, address)
        trip.hop(node, "load balancer", f"{len(balancer.endpoints)} backends: {address}; the destination stays (preserve-destination)", packet)
        return packet
    flows.translate_destination(entry, address, balancer.internal)
    itself = port is not None and backend.id == port.id
    told = f"{place(packet.destination, packet.destination_port)}: {address}:{balancer.internal} of {len(balancer.endpoints)} backends"
    source = ""
    if itself and balancer.dsr:
        if not any(nat.destinations and nat.concerns(address) for nat in (port.nats if port is not None else ())):
            trip.hop(node, "load balancer", told, packet)
            return trip.drop(node, "vSwitch port", packet, "no-loopback",
                             "the backend is the pod itself, and its port has no rule for that (loopbackDSR)")
        source = _node_address(node, version)
    elif not balancer.dsr and (backend.remote or port is None or itself):
        source = balancer.source_vip or _node_address(node, version)
    if source and packet.protocol in _TRANSLATED:
        flows.translate_source(entry, source)
    packet = _follow(packet, entry, reply=False)
    how = "DSR: the source stays" if balancer.dsr and not source else f"source becomes {source}" if source else "the source stays"
    trip.hop(node, "load balancer", f"{told}; {how}", packet)
    return packet


def _admit(
    trip: Trip, node: Stack, switch: Switch, net: Net, port: Port, packet: Packet, entry: Entry, *, inward: bool
) -> End | None:
    """Access rules of a port, which see the first packet of a connection only."""
    mark = f"{port.id} {inward}"
    if mark in entry.passed:
        return None
    acl = switch.judge(net, port, packet, inward=inward) if port.acls or net.acls else None
    if acl is not None and not acl.allow:
        way = "into" if inward else "out of"
        because = f"an access rule blocks it on the way {way} the port" + (f" ({acl.name})" if acl.name else "")
        trip.facts["acl"] = {"endpoint": port.id, "inward": inward, "priority": acl.priority}
        return trip.drop(node, "policy", packet, "policy", because)
    entry.passed.add(mark)
    return None


def _outbound(
    trip: Trip, node: Stack, switch: Switch, net: Net, port: Port, packet: Packet, flows: Conntrack, entry: Entry
) -> Packet:
    destination = packet.destination
    if trip.world.is_local(node, destination) or "snat" in entry.status or "preserve" in entry.status:
        return packet
    if net.type == "NAT":  # WinNAT translates everything that leaves its network, ICMP too
        if net.contains(destination):
            return packet
        virtual = ""
    else:
        local = switch.at(net, destination)
        if local is not None and not local.remote:
            return packet  # it does not leave the switch
        wanted = [nat for nat in port.nats if not nat.destinations]
        if not wanted:
            return packet
        if not all(nat.concerns(destination) for nat in wanted):
            trip.facts["exception"] = next(
                text for nat in wanted for text in nat.exceptions if within(destination, text)
            )
            return packet
        if packet.protocol not in _TRANSLATED:
            trip.facts["untranslated"] = packet.protocol
            trip.hop(node, "vSwitch port", "OutBoundNAT cannot translate ICMP: it leaves with the pod's address", packet)
            return packet
        virtual = wanted[0].virtual
    source = virtual or _node_address(node, family(destination))
    flows.translate_source(entry, source)
    packet = _follow(packet, entry, reply=False)
    trip.hop(node, "vSwitch port", f"OutBoundNAT: source becomes {source}", packet)
    return packet


# ---- forwarding ----------------------------------------------------------------------------------------------------------


def _forward(
    trip: Trip, node: Stack, switch: Switch, net: Net, packet: Packet, entry: Entry, *, reply: bool, gateway: str = "",
    origin: Port | None = None,
) -> End:
    """From the switch to wherever the destination is."""
    destination = packet.destination
    if "preserve" in entry.status and not reply:
        key, address = trip.facts["preserved"]
        held = switch.port(key)
        if held is not None and not held.remote:
            return _into(trip, node, switch, net, held, packet, entry, reply=reply, socket=address)
        return trip.drop(node, "load balancer", packet, "no-backend", "the backend is on another node, and the destination must stay")
    port = switch.at(net, destination)
    if port is not None and not port.remote:
        if net.type == "L2Tunnel" and origin is not None:
            trip.hop(node, "virtualization host", "an L2Tunnel sends everything to the virtualization host and back", packet)
        return _into(trip, node, switch, net, port, packet, entry, reply=reply)
    if trip.world.is_local(node, destination):
        trip.hop(node, "host vNIC", "to the node's own stack", packet)
        return windows.to_host(trip, node, packet)
    if net.type == "Overlay":
        wrapped = _wrap(net, node, port, packet)
        if wrapped is not None:
            assert wrapped.outer is not None
            trip.hop(node, "VXLAN", f"packed for {wrapped.outer.destination} (VNI {wrapped.outer.vni}, port {wrapped.outer.port})", wrapped)
            return _by_host_routes(trip, node, wrapped, wrapped.outer.destination)
        if net.contains(packet.source):
            return trip.drop(node, f"network {net.name}", packet, "no-route", f"the overlay network has no route to {destination}")
    if net.type == "Transparent":
        wrapped = _tunnel(trip, node, packet)
        if wrapped is not None:
            assert wrapped.outer is not None
            trip.hop(node, "GENEVE", f"packed for {wrapped.outer.destination}, as the logical switch says", wrapped)
            return _by_host_routes(trip, node, wrapped, wrapped.outer.destination)
    if net.type == "L2Bridge" and not node.forwarding and _host_has(switch, net, gateway) and net.contains(packet.source):
        return trip.drop(node, "route", packet, "no-forwarding", f"{node.name} does not forward for its pods")
    if net.type == "L2Tunnel":
        trip.hop(node, "virtualization host", "an L2Tunnel sends everything to the virtualization host", packet)
    return _by_host_routes(trip, node, packet, destination)


def _host_has(switch: Switch, net: Net, address: str) -> bool:
    port = switch.at(net, address) if address else None
    return port is not None and switch.is_host(port)


def _by_host_routes(trip: Trip, node: Stack, packet: Packet, destination: str) -> End:
    """Out by the card, to where the node's route table says; with the node's MAC address."""
    route = node.route(destination)
    if route is None:
        return trip.drop(node, "route", packet, "no-route", f"{node.name} has no route to {destination}")
    link = node.links[route.link]
    if link.kind != "ethernet":
        return trip.drop(node, route.link, packet, "no-neighbour", f"no port of {route.link} has {destination}")
    if trip.hops is not None and packet.outer is None:
        packet = replace(packet, source_mac=link.mac)
        trip.hop(node, "external switch port", f"source MAC becomes {link.mac}, the node's" +
                 (f"; next hop {route.via}" if route.via else ""), packet)
    return trip.underlay(node, packet, route.via or destination)


def _wrap(net: Net, node: Stack, remote: Port | None, packet: Packet) -> Packet | None:
    mine = _node_address(node, 4)
    if remote is not None and remote.remote and remote.provider and remote.provider != mine:
        return replace(packet, outer=Outer(mine, remote.provider, net.vni, net.port), destination_mac=remote.mac)
    for subnet in net.remotes:
        if within(packet.destination, subnet.prefix):
            return replace(packet, outer=Outer(mine, subnet.provider, subnet.vni, net.port), destination_mac=subnet.mac)
    return None


def _tunnel(trip: Trip, node: Stack, packet: Packet) -> Packet | None:
    """OVN knows every logical port; those of other Windows nodes are reached by tunnels."""
    for owner in reversed(trip.fabric.owners(packet.destination)):
        there = trip.node_of(owner)
        if owner.role == "sandbox" and there is not None and there is not node and there.os == "windows":
            switch = trip.world.switch(there)
            if switch is not None and any(n.type == "Transparent" for n in switch.nets()):
                return replace(packet, outer=Outer(_node_address(node, 4), _node_address(there, 4), 0, GENEVE_PORT))
    return None


def _into(
    trip: Trip, node: Stack, switch: Switch, net: Net, port: Port, packet: Packet, entry: Entry, *, reply: bool, socket: str = ""
) -> End:
    """Through a local port to who is behind it."""
    if not reply:
        ended = _admit(trip, node, switch, net, port, packet, entry, inward=True)
        if ended is not None:
            return ended
    if switch.is_host(port):
        return windows.to_host(trip, node, packet)
    for owner in reversed(trip.fabric.owners(socket or packet.destination)):
        if owner.node == node.name and any(link.endpoint.upper() == port.id for link in owner.links.values()):
            trip.hop(node, "vSwitch port", f"into port {port.name or port.id}", packet)
            if not socket and trip.world.is_local(owner, packet.source):
                return trip.drop(owner, "vNIC", packet, "martian", f"it comes from outside with {packet.source}, the pod's own address")
            return windows.deliver(trip, owner, packet, (socket, packet.destination_port) if socket else None)
    return trip.drop(node, "vSwitch port", packet, "no-pod", f"the port with {packet.destination} belongs to no running pod")


# ---- from outside, and from the node -------------------------------------------------------------------------------------


def inbound(trip: Trip, node: Stack, packet: Packet) -> End:
    switch = trip.world.switch(node)
    assert switch is not None
    net: Net | None = None
    if packet.outer is not None:
        net = _unwrapped(switch, packet.outer)
        if net is None:
            return trip.drop(node, "VXLAN", packet, "no-vxlan", f"{node.name} has no network with VNI {packet.outer.vni} at port {packet.outer.port}")
        packet = replace(packet, outer=None)
        trip.hop(node, "GENEVE" if net.type == "Transparent" else "VXLAN", f"unpacked for network {net.name}", packet)
    flows = _flows(trip, node)
    found = flows.find(packet)
    if found is not None:
        entry, reply = found
        before, packet = packet, _follow(packet, entry, reply)
        if packet is not before:
            trip.hop(node, "vSwitch", "part of a known connection: addresses as decided for it", packet)
    else:
        entry, reply = flows.start(packet), False
        if net is None:
            changed = _first_from_outside(trip, node, switch, packet, flows, entry)
            if isinstance(changed, End):
                return changed
            packet = changed
    if net is None:
        net = _network_of(trip, node, switch, packet, known=found is not None or bool(entry.status))
        if net is None:
            return windows.to_host(trip, node, packet)
    elif found is None and _absent(switch, net, packet.destination):
        return trip.drop(node, f"network {net.name}", packet, "no-port", f"network {net.name} has no port with {packet.destination}")
    return _forward(trip, node, switch, net, packet, entry, reply=reply)


def _unwrapped(switch: Switch, outer: Outer) -> Net | None:
    if outer.port == GENEVE_PORT:
        return next((net for net in switch.nets() if net.type == "Transparent"), None)
    return next((net for net in switch.nets() if net.type == "Overlay" and (net.vni, net.port) == (outer.vni, outer.port)), None)


def _absent(switch: Switch, net: Net, address: str) -> bool:
    port = switch.at(net, address)
    return port is None or port.remote


def _network_of(trip: Trip, node: Stack, switch: Switch, packet: Packet, *, known: bool) -> Net | None:
    """The network that a packet from the underlay goes on in; None: it is for the node's own stack.

    Bridged networks are part of the underlay. Others can be entered by what the switch has decided alone.
    """
    local = switch.anywhere(packet.destination)
    if local is not None and (known or local[0].type in ("L2Bridge", "L2Tunnel", "Transparent")):
        return local[0]
    if not known or trip.world.is_local(node, packet.destination):
        return None
    nets = list(switch.nets())
    for net in nets:
        if switch.at(net, packet.destination) is not None or any(within(packet.destination, r.prefix) for r in net.remotes):
            return net
    return nets[0] if nets else None


def _first_from_outside(trip: Trip, node: Stack, switch: Switch, packet: Packet, flows: Conntrack, entry: Entry) -> Packet | End:
    balancer = switch.balancer(packet, host=trip.world.is_local(node, packet.destination))
    backend = switch.port(balancer.endpoints[0]) if balancer is not None and balancer.endpoints else None
    net = switch.net(backend.network) if backend is not None else None
    if balancer is not None and net is not None:
        return _balance(trip, node, switch, net, None, packet, flows, entry, balancer)
    mapped = switch.mapping(packet) if trip.world.is_local(node, packet.destination) else None
    if mapped is None:
        return packet
    port, number = mapped
    address = port.address(family(packet.destination))
    if not address:
        return packet
    flows.translate_destination(entry, address, number)
    changed = _follow(packet, entry, reply=False)
    trip.hop(node, "port mapping", f"{place(packet.destination, packet.destination_port)} is {place(address, number)}", changed)
    return changed


def host_route(trip: Trip, node: Stack, address: str) -> tuple[Net, Port] | None:
    """A port of an overlay network to which the node has a way of its own."""
    switch = trip.world.switch(node)
    for net in switch.nets() if switch is not None else ():
        if net.type == "Overlay" and net.host_route and net.contains(address):
            port = switch.at(net, address) if switch is not None else None
            if port is not None and not port.remote:
                return net, port
    return None


def from_host(trip: Trip, node: Stack, net: Net, port: Port, packet: Packet) -> End:
    """What the node itself sends to a port of its switch: no load balancing, no translation."""
    switch = trip.world.switch(node)
    assert switch is not None
    flows = _flows(trip, node)
    found = flows.find(packet)
    entry, reply = found if found is not None else (flows.start(packet), False)
    if found is not None:
        packet = _follow(packet, entry, reply)
    return _into(trip, node, switch, net, port, packet, entry, reply=reply)


def out_of_host(trip: Trip, node: Stack, link: Link, packet: Packet, next_hop: str) -> End:
    """By a card of the node that is a port of a switch."""
    switch = trip.world.switch(node)
    own = switch.port(link.endpoint) if switch is not None else None
    net = switch.net(own.network) if switch is not None and own is not None else None
    if switch is None or net is None:
        return trip.drop(node, link.name, packet, "no-port", f"the switch has no port for {link.name}")
    port = switch.at(net, next_hop)
    if port is None or port.remote:
        return trip.drop(node, link.name, packet, "no-neighbour", f"no port of network {net.name} has {next_hop}")
    return from_host(trip, node, net, port, packet)
