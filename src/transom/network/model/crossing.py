"""A packet on the switch of a Windows node: what its rules decide for the first packet of a
connection.

1. Load balancing, for TCP, UDP and SCTP. At a container's port by the rules of the port's own
   network, and by those without addresses for the node's addresses. Without direct server return
   (DSR) a backend on another node sees the node's address, or on an overlay the source VIP; with
   DSR, and for a backend on this node, the source stays. For packets from outside, without DSR
   every backend sees the node's address.
2. ACLs, which see the backend's address.
3. OutBoundNAT: the source becomes the node's address, except for destinations in the exceptions
   and the node itself. VFP cannot translate ICMP: such packets leave unchanged.
Later packets and replies follow the first.
"""

from __future__ import annotations

import zlib

from transom.network.model.addresses import address_family, address_with_port, is_within
from transom.network.model.conntrack import ConntrackEntry
from transom.network.model.packet_trip import PacketTrip, TripEnd
from transom.network.model.switch import SwitchBalancer, SwitchNetwork, SwitchPort, VirtualSwitch
from transom.network.ovn.database import OvnVip
from transom.network.packets import Packet
from transom.network.stacks import NetworkStack

_TRANSLATED = ("tcp", "udp", "sctp")


def ethernet_address(node: NetworkStack, version: int) -> str:
    for link in node.links.values():
        if link.kind == "ethernet":
            for address in link.addresses:
                if address.version == version:
                    return str(address.ip)
    return ""


def logical_prefixes(node: NetworkStack) -> list[str]:
    """The pod CIDRs of other nodes, from the node's routes: all with a gateway except the default
    routes.
    """
    return [
        str(route.destination)
        for route in node.routes()
        if route.via and route.destination.prefixlen
    ]


class Crossing:
    __slots__ = (
        "entry",
        "flows",
        "known",
        "node",
        "packet",
        "preserved",
        "reply",
        "switch",
        "trip",
    )

    def __init__(
        self, trip: PacketTrip, node: NetworkStack, switch: VirtualSwitch, packet: Packet
    ) -> None:
        self.trip = trip
        self.node = node
        self.switch = switch
        self.packet = packet
        self.preserved: SwitchPort | None = (
            None  # the backend of a load balancer that preserves the destination
        )
        self.flows = trip.tracks.of(node.name + " switch")
        found = self.flows.find(packet)
        self.known = found is not None  # an established connection of the switch
        self.entry: ConntrackEntry
        self.entry, self.reply = found if found is not None else (self.flows.start(packet), False)
        if found is not None:
            self._follow()
            if self.packet is not packet:
                self.hop("vSwitch", "part of a known connection: addresses as decided for it")
        if "preserve" in self.entry.status and not self.reply:
            self.preserved = next(
                (
                    p
                    for mark in self.entry.passed
                    if (p := switch.port(mark.split()[0])) is not None
                ),
                None,
            )

    def hop(self, device: str, what: str) -> None:
        self.trip.hop(self.node, device, what, self.packet)

    def drop(self, device: str, reason: str, explanation: str) -> TripEnd:
        return self.trip.drop(self.node, device, self.packet, reason, explanation)

    def is_local(self, address: str) -> bool:
        return self.trip.world.is_local(self.node, address)

    def _follow(self) -> None:
        if self.reply:
            self.entry.answered = True
        self.packet = self.entry.with_source(
            self.entry.with_destination(self.packet, self.reply), self.reply
        )

    # ---- the first packet ----

    def from_pod(self, net: SwitchNetwork, port: SwitchPort) -> TripEnd | None:
        facts, packet = self.trip.facts, self.packet
        facts.setdefault(
            "egress",
            {"node": self.node.name, "network": net.name, "type": net.type, "endpoint": port.id},
        )
        if self.by_ovn(net):
            ended = self.balance_by_ovn(net)
            if ended is not None:
                return ended
        else:
            balancer = self.switch.balancer(packet, host=self.is_local(packet.destination))
            if balancer is not None and self._serves(balancer, net):
                ended = self.balance(balancer, port)
                if ended is not None:
                    return ended
        ended = self.admit(net, port, inward=False)
        if ended is None:
            self._outbound(net, port)
        return ended

    def from_outside(self) -> TripEnd | None:
        packet = self.packet
        local = self.is_local(packet.destination)
        if any(self.by_ovn(net) for net in self.switch.nets()):
            return self._balance_at_gateway(local)
        balancer = self.switch.balancer(packet, host=local)
        if balancer is not None:
            return self.balance(balancer, None)
        mapped = self.switch.mapping(packet) if local else None
        address = (
            mapped[0].address(address_family(packet.destination)) if mapped is not None else ""
        )
        if mapped is not None and address:
            self.flows.translate_destination(self.entry, address, mapped[1])
            requested = address_with_port(packet.destination, packet.destination_port)
            self._follow()
            self.hop("port mapping", f"{requested} is {address_with_port(address, mapped[1])}")
        return None

    # ---- load balancing ----

    def _serves(self, balancer: SwitchBalancer, net: SwitchNetwork) -> bool:
        ports = (self.switch.port(key) for key in balancer.endpoints)
        return any(port is not None and port.network == net.id for port in ports)

    def _choose(self, balancer: SwitchBalancer) -> SwitchPort | None:
        packet = self.packet
        version = address_family(packet.destination)
        found = (self.switch.port(key) for key in balancer.endpoints)
        ports = [port for port in found if port is not None and port.address(version)]
        if not ports:
            return None
        by = {1: (packet.source, packet.protocol), 2: (packet.source,)}.get(
            balancer.by_source,
            (
                packet.source,
                packet.source_port,
                packet.destination,
                packet.destination_port,
                packet.protocol,
            ),
        )
        return ports[zlib.crc32(repr((balancer.id, by)).encode()) % len(ports)]

    def balance(self, balancer: SwitchBalancer, client: SwitchPort | None) -> TripEnd | None:
        """`client` is the source port; None: the packet comes from outside."""
        packet = self.packet
        requested, many = (
            address_with_port(packet.destination, packet.destination_port),
            len(balancer.endpoints),
        )
        backend = self._choose(balancer)
        if backend is None:
            return self.drop(
                "load balancer", "no-backend", f"none of the {many} backends of {requested} is left"
            )
        version = address_family(packet.destination)
        address = backend.address(version)
        self.trip.facts["balancer"] = {
            "id": balancer.id,
            "backends": many,
            "dsr": balancer.dsr,
            "backend": address,
        }
        if balancer.preserve:
            self.entry.status.add("preserve")
            self.preserved = backend
            self.hop(
                "load balancer",
                f"{requested}: {address}, one of {many}; the destination stays (preserve-destination)",
            )
            return None
        itself = client is not None and backend.id == client.id
        source = ""
        if itself and balancer.dsr:
            assert client is not None
            if not any(nat.destinations and nat.concerns(address) for nat in client.nats):
                why = (
                    "the backend is the pod itself, and its port has no rule for that (loopbackDSR)"
                )
                return self.drop("load balancer", "no-loopback", why)
            source = ethernet_address(self.node, version)
        elif not balancer.dsr and (backend.remote or client is None or itself):
            source = balancer.source_vip or ethernet_address(self.node, version)
        self.flows.translate_destination(self.entry, address, balancer.internal)
        if source:
            self.flows.translate_source(self.entry, source)
        self._follow()
        kept = "the source stays (DSR)" if balancer.dsr else "the source stays"
        how = f"source becomes {source}" if source else kept
        self.hop(
            "load balancer",
            f"{requested}: {address_with_port(address, balancer.internal)}, one of {many} backends; {how}",
        )
        return None

    # ---- load balancing of OVN ----

    def by_ovn(self, net: SwitchNetwork) -> bool:
        """Open vSwitch forwards for the network's ports, by OVN's flows: VFP rules do not apply."""
        return self.node.ovn is not None and net.type == "Transparent"

    def balance_by_ovn(self, net: SwitchNetwork) -> TripEnd | None:
        """At a port of the logical switch: a pod's or the node's own. A pod that connects to a port
        of its node is served by the node's gateway router.
        """
        packet, ovn = self.packet, self.node.ovn
        assert ovn is not None
        requested = packet.protocol, packet.destination, packet.destination_port
        found = ovn.vip(*requested)
        if found is not None:
            return self._choose_by_ovn(found, f"logical switch {self.node.name}")
        if self.is_local(packet.destination):
            return self._balance_at_gateway(True)
        return None

    def _balance_at_gateway(self, local: bool) -> TripEnd | None:
        """At the node's gateway router, which replaces the source with its own address, the
        node's.
        """
        packet, ovn = self.packet, self.node.ovn
        assert ovn is not None
        found = ovn.gateway_vip(
            packet.protocol, packet.destination, packet.destination_port, own=local
        )
        if found is None:
            return None
        source = ethernet_address(self.node, address_family(packet.destination))
        return self._choose_by_ovn(found, f"gateway router GR_{self.node.name}", source)

    def _choose_by_ovn(self, vip: OvnVip, where: str, source: str = "") -> TripEnd | None:
        packet = self.packet
        requested, many = (
            address_with_port(packet.destination, packet.destination_port),
            len(vip.backends),
        )
        if not many:
            why = (
                f"service {vip.service} has no endpoints, so OVN rejects connections to {requested}"
            )
            self.hop("OVN load balancer", f"rejected: {why}")
            return TripEnd("refused", self.node, packet, "rejected", why)
        key = (
            packet.source,
            packet.source_port,
            packet.destination,
            packet.destination_port,
            packet.protocol,
        )
        address, port = vip.backends[zlib.crc32(repr(key).encode()) % many]
        self.trip.facts["balancer"] = {
            "id": f"OVN {requested}",
            "backends": many,
            "dsr": True,
            "backend": address,
        }
        if address == packet.source:  # the backend must not see its own address as the source
            source = source or packet.destination
        self.flows.translate_destination(self.entry, address, port)
        if source:
            self.flows.translate_source(self.entry, source)
        self._follow()
        how = f"source becomes {source}" if source else "the source stays"
        self.hop(
            "OVN load balancer",
            f"{requested} at {where}: {address_with_port(address, port)}, one of {many} backends; {how}",
        )
        return None

    # ---- ACLs and translation ----

    def admit(self, net: SwitchNetwork, port: SwitchPort, *, inward: bool) -> TripEnd | None:
        mark = f"{port.id} {inward}"
        if self.reply or mark in self.entry.passed:
            return None
        acl = (
            self.switch.decide(net, port, self.packet, inward=inward)
            if port.acls or net.acls
            else None
        )
        if acl is not None and not acl.allow:
            way = "into" if inward else "out of"
            self.trip.facts["acl"] = {
                "endpoint": port.id,
                "inward": inward,
                "priority": acl.priority,
                "name": acl.name,
            }
            named = f" ({acl.name})" if acl.name else ""
            return self.drop(
                "policy", "policy", f"an access rule{named} blocks it on the way {way} the port"
            )
        self.entry.passed.add(mark)
        return None

    def _outbound(self, net: SwitchNetwork, port: SwitchPort) -> None:
        packet = self.packet
        destination = packet.destination
        if self.is_local(destination) or self.entry.status & {"snat", "preserve"}:
            return
        virtual = ""
        rules = [nat for nat in port.nats if not nat.destinations]
        if net.type in ("NAT", "Transparent") and not rules:
            # WinNAT translates all packets that leave its network, OVN all that leave its logical
            # networks, including ICMP.
            logical = logical_prefixes(self.node) if net.type == "Transparent" else ()
            if net.contains(destination) or any(
                is_within(destination, prefix) for prefix in logical
            ):
                return
        else:
            near = self.switch.at(net, destination)
            if not rules or (near is not None and not near.remote):
                return
            if not all(nat.concerns(destination) for nat in rules):
                listed = (
                    text for nat in rules for text in nat.exceptions if is_within(destination, text)
                )
                self.trip.facts["exception"] = next(listed, "")
                return
            if packet.protocol not in _TRANSLATED:
                self.trip.facts["untranslated"] = packet.protocol
                self.hop(
                    "vSwitch port",
                    "OutBoundNAT cannot translate ICMP: it leaves with the pod's address",
                )
                return
            virtual = rules[0].virtual
        source = virtual or ethernet_address(self.node, address_family(destination))
        self.flows.translate_source(self.entry, source)
        self._follow()
        by = "OutBoundNAT" if rules else "WinNAT" if net.type == "NAT" else "OVN"
        self.hop("vSwitch port", f"{by}: source becomes {source}")
