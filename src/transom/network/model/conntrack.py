"""Connection tracking: what a stack or switch remembers of a connection, so that later packets go the same way and
answers come back under the addresses that the client used.

A `Tracks` belongs to one connection, or to as many as its owner wants to be remembered together: nothing is ever dropped
from it, whoever is done with the connection forgets it whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from transom.network.packets import Packet

Flow = tuple[str, str, int, str, int]
"""Protocol, source, its port, destination, its port."""


def flow(packet: Packet) -> Flow:
    return packet.protocol, packet.source, packet.source_port, packet.destination, packet.destination_port


def reverse(found: Flow) -> Flow:
    return found[0], found[3], found[4], found[1], found[2]


def moved(packet: Packet, source: str, source_port: int, destination: str, destination_port: int) -> Packet:
    """The same packet between other ends. (`dataclasses.replace` would cost several times as much.)"""
    return Packet(source, destination, packet.protocol, source_port, destination_port, packet.source_mac,
                  packet.destination_mac, packet.outer, packet.mark)  # fmt: skip


@dataclass(slots=True)
class Entry:
    original: Flow  # the first packet, as it came
    answer: Flow  # what an answer to it is, as it comes back
    answered: bool = False
    bound: set[str] = field(default_factory=set)  # "dnat", "snat": translations that are decided, be it to leave it as it is
    status: set[str] = field(default_factory=set)  # "dnat", "snat": translations that change something
    passed: set[str] = field(default_factory=set)  # switch ports whose rules let its first packet through

    def with_destination(self, packet: Packet, reply: bool) -> Packet:
        """As the destination is to be from here on."""
        address, port = (self.original[1], self.original[2]) if reply else (self.answer[1], self.answer[2])
        if (packet.destination, packet.destination_port) == (address, port):
            return packet
        return moved(packet, packet.source, packet.source_port, address, port)

    def with_source(self, packet: Packet, reply: bool) -> Packet:
        address, port = (self.original[3], self.original[4]) if reply else (self.answer[3], self.answer[4])
        if (packet.source, packet.source_port) == (address, port):
            return packet
        return moved(packet, address, port, packet.destination, packet.destination_port)


class Conntrack:
    """The connections of one stack or switch."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[Flow, tuple[Entry, bool]] = {}

    def find(self, packet: Packet) -> tuple[Entry, bool] | None:
        """The connection, and whether the packet is an answer in it."""
        return self._entries.get(flow(packet))

    def start(self, packet: Packet) -> Entry:
        original = flow(packet)
        entry = Entry(original, reverse(original))
        self._entries[original] = (entry, False)
        self._entries.setdefault(entry.answer, (entry, True))
        return entry

    def translate_destination(self, entry: Entry, address: str, port: int) -> None:
        protocol, _, _, client, client_port = entry.answer
        self._expect(entry, (protocol, address, port, client, client_port))
        entry.status.add("dnat")

    def translate_source(self, entry: Entry, address: str) -> None:
        protocol, server, server_port, _, port = entry.answer
        self._expect(entry, (protocol, server, server_port, address, port))
        entry.status.add("snat")

    def _expect(self, entry: Entry, answer: Flow) -> None:
        if self._entries.get(entry.answer) == (entry, True):
            del self._entries[entry.answer]
        entry.answer = answer
        self._entries.setdefault(answer, (entry, True))


class Tracks:
    """The connection tables of all stacks and switches that a connection meets."""

    __slots__ = ("_tables",)

    def __init__(self) -> None:
        self._tables: dict[str, Conntrack] = {}

    def of(self, name: str) -> Conntrack:
        found = self._tables.get(name)
        if found is None:
            found = self._tables[name] = Conntrack()
        return found
