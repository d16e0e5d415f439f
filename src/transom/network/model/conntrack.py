"""Connection tracking: what a stack or switch remembers of a connection, so that later packets take
the same path and replies come back from the address that the client used.

A `ConntrackTables` belongs to one connection, or to several that its owner wants to track together.
Entries are never removed; the owner drops the whole object at the end.
"""

from __future__ import annotations

from dataclasses import field

from transom.kit.lazy_dataclass import dataclass
from transom.network.packets import Packet

Flow = tuple[str, str, int, str, int]
"""Protocol, source, its port, destination, its port."""


def packet_flow(packet: Packet) -> Flow:
    return (
        packet.protocol,
        packet.source,
        packet.source_port,
        packet.destination,
        packet.destination_port,
    )


def reverse_flow(found: Flow) -> Flow:
    return found[0], found[3], found[4], found[1], found[2]


def with_ends(
    packet: Packet, source: str, source_port: int, destination: str, destination_port: int
) -> Packet:
    """The same packet with other endpoints. (`dataclasses.replace` is several times slower.)"""
    return Packet(
        source,
        destination,
        packet.protocol,
        source_port,
        destination_port,
        packet.source_mac,
        packet.destination_mac,
        packet.outer,
        packet.mark,
    )


@dataclass(slots=True)
class ConntrackEntry:
    original: Flow  # the first packet, as received
    answer: Flow  # its reply, as received
    answered: bool = False
    # "dnat", "snat": translations that are decided, even if they change nothing
    bound: set[str] = field(default_factory=set)
    # "dnat", "snat": translations that change something
    status: set[str] = field(default_factory=set)
    # switch ports whose rules allowed its first packet
    passed: set[str] = field(default_factory=set)

    def with_destination(self, packet: Packet, reply: bool) -> Packet:
        """Sets the destination from here on."""
        address, port = (
            (self.original[1], self.original[2]) if reply else (self.answer[1], self.answer[2])
        )
        if (packet.destination, packet.destination_port) == (address, port):
            return packet
        return with_ends(packet, packet.source, packet.source_port, address, port)

    def with_source(self, packet: Packet, reply: bool) -> Packet:
        address, port = (
            (self.original[3], self.original[4]) if reply else (self.answer[3], self.answer[4])
        )
        if (packet.source, packet.source_port) == (address, port):
            return packet
        return with_ends(packet, address, port, packet.destination, packet.destination_port)


class Conntrack:
    """The connections of one stack or switch."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[Flow, tuple[ConntrackEntry, bool]] = {}

    def find(self, packet: Packet) -> tuple[ConntrackEntry, bool] | None:
        """The connection, and whether the packet is a reply in it."""
        return self._entries.get(packet_flow(packet))

    def start(self, packet: Packet) -> ConntrackEntry:
        original = packet_flow(packet)
        entry = ConntrackEntry(original, reverse_flow(original))
        self._entries[original] = (entry, False)
        self._entries.setdefault(entry.answer, (entry, True))
        return entry

    def translate_destination(self, entry: ConntrackEntry, address: str, port: int) -> None:
        protocol, _, _, client, client_port = entry.answer
        self._expect(entry, (protocol, address, port, client, client_port))
        entry.status.add("dnat")

    def translate_source(self, entry: ConntrackEntry, address: str) -> None:
        protocol, server, server_port, _, port = entry.answer
        self._expect(entry, (protocol, server, server_port, address, port))
        entry.status.add("snat")

    def _expect(self, entry: ConntrackEntry, answer: Flow) -> None:
        if self._entries.get(entry.answer) == (entry, True):
            del self._entries[entry.answer]
        entry.answer = answer
        self._entries.setdefault(answer, (entry, True))


class ConntrackTables:
    """The connection tables of all stacks and switches that a connection passes."""

    __slots__ = ("_tables",)

    def __init__(self) -> None:
        self._tables: dict[str, Conntrack] = {}

    def of(self, name: str) -> Conntrack:
        found = self._tables.get(name)
        if found is None:
            found = self._tables[name] = Conntrack()
        return found
