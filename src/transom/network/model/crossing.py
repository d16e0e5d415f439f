"""A packet on the switch of a Windows node: what its rules decide for the first packet of a connection.

1. Load balancing, for TCP, UDP and SCTP. At a container's port by the rules of the port's own network, and by those without
   addresses for the node's addresses. Without direct server return (DSR) a backend on another node sees the node's address,
   or on an overlay the source VIP; with DSR, and for a backend on this node, the source stays. For what comes from outside,
   without DSR every backend sees the node's address.
2. Access rules, which see the backend's address.
3. OutBoundNAT: the source becomes the node's address, but for destinations in the exceptions and the node itself. VFP cannot
   translate ICMP: such packets leave as they are.
Later packets, and answers, follow the first.
"""

from __future__ import annotations

import zlib

from transom.network.model.addresses import family, place, within
from transom.network.model.conntrack import Entry
from transom.network.model.switch import Balancer, Net, Port, Switch
from transom.network.model.trip import End, Trip
from transom.network.packets import Packet
from transom.network.stacks import Stack

_TRANSLATED = ("tcp", "udp", "sctp")


def node_address(node: Stack, version: int) -> str:
    for link in node.links.values():
        if link.kind == "ethernet":
            for address in link.addresses:
                if address.version == version:
                    return str(address.ip)
    return ""


def logical_prefixes(node: Stack) -> list[str]:
    """Where pods of other nodes are, by the node's routes: all with a gateway but the default ones."""
    return [str(route.destination) for route in node.routes() if route.via and route.destination.prefixlen]


class Crossing:
    __slots__ = ("entry", "flows", "known", "node", "packet", "preserved", "reply", "switch", "trip")

    def __init__(self, trip: Trip, node: Stack, switch: Switch, packet: Packet) -> None:
        self.trip = trip
        self.node = node
        self.switch = switch
        self.packet = packet
        self.preserved: Port | None = None  # the backend of a load balancer that leaves the destination alone
        self.flows = trip.tracks.of(node.name + " switch")
        found = self.flows.find(packet)
        self.known = found is not None  # a connection that the switch has seen before
        self.entry: Entry
        self.entry, self.reply = found if found is not None else (self.flows.start(packet), False)
        if found is not None:
            self._follow()
            if self.packet is not packet:
                self.hop("vSwitch", "part of a known connection: addresses as decided for it")
        if "preserve" in self.entry.status and not self.reply:
            self.preserved = next((p for mark in self.entry.passed if (p := switch.port(mark.split()[0])) is not None), None)

    def hop(self, device: str, what: str) -> None:
        self.trip.hop(self.node, device, what, self.packet)

    def drop(self, device: str, reason: str, explanation: str) -> End:
        return self.trip.drop(self.node, device, self.packet, reason, explanation)

    def is_local(self, address: str) -> bool:
        return self.trip.world.is_local(self.node, address)

    def _follow(self) -> None:
        if self.reply:
            self.entry.answered = True
        self.packet = self.entry.with_source(self.entry.with_destination(self.packet, self.reply), self.reply)

    # ---- the first packet ----------------------------------------------------------------------------------------

    def from_pod(self, net: Net, port: Port) -> End | None:
        facts, packet = self.trip.facts, self.packet
        facts.setdefault("egress", {"node": self.node.name, "network": net.name, "type": net.type, "endpoint": port.id})
        balancer = self.switch.balancer(packet, host=self.is_local(packet.destination))
        if balancer is not None and self._serves(balancer, net):
            ended = self.balance(balancer, port)
            if ended is not None:
                return ended
        ended = self.admit(net, port, inward=False)
        if ended is None:
            self._outbound(net, port)
        return ended

    def from_outside(self) -> End | None:
        packet = self.packet
        local = self.is_local(packet.destination)
        balancer = self.switch.balancer(packet, host=local)
        if balancer is not None:
            return self.balance(balancer, None)
        mapped = self.switch.mapping(packet) if local else None
        address = mapped[0].address(family(packet.destination)) if mapped is not None else ""
        if mapped is not None and address:
            self.flows.translate_destination(self.entry, address, mapped[1])
            asked = place(packet.destination, packet.destination_port)
            self._follow()
            self.hop("port mapping", f"{asked} is {place(address, mapped[1])}")
        return None

    # ---- load balancing ------------------------------------------------------------------------------------------

    def _serves(self, balancer: Balancer, net: Net) -> bool:
        ports = (self.switch.port(key) for key in balancer.endpoints)
        return any(port is not None and port.network == net.id for port in ports)

    def _choose(self, balancer: Balancer) -> Port | None:
        packet = self.packet
        version = family(packet.destination)
        found = (self.switch.port(key) for key in balancer.endpoints)
        ports = [port for port in found if port is not None and port.address(version)]
        if not ports:
            return None
        by = {1: (packet.source, packet.protocol), 2: (packet.source,)}.get(
            balancer.by_source,
            (packet.source, packet.source_port, packet.destination, packet.destination_port, packet.protocol),
        )
        return ports[zlib.crc32(repr((balancer.id, by)).encode()) % len(ports)]

    def balance(self, balancer: Balancer, client: Port | None) -> End | None:
        """`client` is the port that it comes from; None: it comes from outside."""
        packet = self.packet
        asked, many = place(packet.destination, packet.destination_port), len(balancer.endpoints)
        backend = self._choose(balancer)
        if backend is None:
            return self.drop("load balancer", "no-backend", f"none of the {many} backends of {asked} is left")
        version = family(packet.destination)
        address = backend.address(version)
        self.trip.facts["balancer"] = {"id": balancer.id, "backends": many, "dsr": balancer.dsr, "backend": address}
        if balancer.preserve:
            self.entry.status.add("preserve")
            self.preserved = backend
            self.hop("load balancer", f"{asked}: {address}, one of {many}; the destination stays (preserve-destination)")
            return None
        itself = client is not None and backend.id == client.id
        source = ""
        if itself and balancer.dsr:
            assert client is not None
            if not any(nat.destinations and nat.concerns(address) for nat in client.nats):
                why = "the backend is the pod itself, and its port has no rule for that (loopbackDSR)"
                return self.drop("load balancer", "no-loopback", why)
            source = node_address(self.node, version)
        elif not balancer.dsr and (backend.remote or client is None or itself):
            source = balancer.source_vip or node_address(self.node, version)
        self.flows.translate_destination(self.entry, address, balancer.internal)
        if source:
            self.flows.translate_source(self.entry, source)
        self._follow()
        kept = "the source stays (DSR)" if balancer.dsr else "the source stays"
        how = f"source becomes {source}" if source else kept
        self.hop("load balancer", f"{asked}: {place(address, balancer.internal)}, one of {many} backends; {how}")
        return None

    # ---- access rules and translation ----------------------------------------------------------------------------

    def admit(self, net: Net, port: Port, *, inward: bool) -> End | None:
        mark = f"{port.id} {inward}"
        if self.reply or mark in self.entry.passed:
            return None
        acl = self.switch.judge(net, port, self.packet, inward=inward) if port.acls or net.acls else None
        if acl is not None and not acl.allow:
            way = "into" if inward else "out of"
            self.trip.facts["acl"] = {"endpoint": port.id, "inward": inward, "priority": acl.priority, "name": acl.name}
            named = f" ({acl.name})" if acl.name else ""
            return self.drop("policy", "policy", f"an access rule{named} blocks it on the way {way} the port")
        self.entry.passed.add(mark)
        return None

    def _outbound(self, net: Net, port: Port) -> None:
        packet = self.packet
        destination = packet.destination
        if self.is_local(destination) or self.entry.status & {"snat", "preserve"}:
            return
        virtual = ""
        rules = [nat for nat in port.nats if not nat.destinations]
        if net.type in ("NAT", "Transparent") and not rules:
            # WinNAT translates all that leaves its network, OVN all that leaves its logical ones: ICMP too.
            logical = logical_prefixes(self.node) if net.type == "Transparent" else ()
            if net.contains(destination) or any(within(destination, prefix) for prefix in logical):
                return
        else:
            near = self.switch.at(net, destination)
            if not rules or (near is not None and not near.remote):
                return
            if not all(nat.concerns(destination) for nat in rules):
                listed = (text for nat in rules for text in nat.exceptions if within(destination, text))
                self.trip.facts["exception"] = next(listed, "")
                return
            if packet.protocol not in _TRANSLATED:
                self.trip.facts["untranslated"] = packet.protocol
                self.hop("vSwitch port", "OutBoundNAT cannot translate ICMP: it leaves with the pod's address")
                return
            virtual = rules[0].virtual
        source = virtual or node_address(self.node, family(destination))
        self.flows.translate_source(self.entry, source)
        self._follow()
        by = "OutBoundNAT" if rules else "WinNAT" if net.type == "NAT" else "OVN"
        self.hop("vSwitch port", f"{by}: source becomes {source}")
