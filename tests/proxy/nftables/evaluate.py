"""A reading of firewall tables for tests, written from the meaning of nftables and from nothing
else in the house.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from transom.network import nft


@dataclass(frozen=True)
class Packet:
    saddr: str
    daddr: str
    dport: int = 80
    protocol: str = "tcp"
    sport: int = 40000
    state: str = "new"
    iifname: str = ""
    mark: int = 0


@dataclass(frozen=True)
class Result:
    verdict: str  # accept, drop, reject
    daddr: str = ""
    dport: int = 0
    masqueraded: bool = False
    mark: int = 0


class _Done(Exception):
    def __init__(self, verdict: str) -> None:
        self.verdict = verdict


@dataclass
class Firewall:
    """A host with tables, its own addresses, and whatever packets have left in dynamic sets."""

    tables: Iterable[nft.NftTable]
    local: set[str]
    remembered: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    choice: int = 0  # which of the choices at random
    masqueraded: bool = False

    def send(self, packet: Packet, *, from_here: bool = False) -> Result:
        """The path of a connection's first packet."""
        self.masqueraded = False
        try:
            packet = self._hook("output" if from_here else "prerouting", packet, "nat")
            if from_here:
                packet = self._hook("output", packet, "filter")
            arrives = packet.daddr in self.local
            if arrives:
                packet = self._hook("input", packet, "filter")
            elif not from_here:
                packet = self._hook("forward", packet, "filter")
            if not arrives or from_here:
                packet = self._hook("postrouting", packet, "nat")
        except _Done as end:
            return Result(end.verdict)
        return Result("accept", packet.daddr, packet.dport, self.masqueraded, packet.mark)

    def places(self, packet: Packet, *, from_here: bool = False, of: int = 8) -> set[str]:
        """All that the packet may be led to, or how it ends."""
        found = set()
        for self.choice in range(of):
            result = self.send(packet, from_here=from_here)
            found.add(
                f"{result.daddr}:{result.dport}" if result.verdict == "accept" else result.verdict
            )
        self.choice = 0
        return found

    def _hook(self, point: str, packet: Packet, kind: str) -> Packet:
        chains = [
            (chain.hook.priority, table, chain)
            for table in self.tables
            for chain in table.chains.values()
            if chain.hook is not None and chain.hook.point == point and chain.hook.type == kind
        ]
        for _, table, chain in sorted(chains, key=lambda item: item[0]):
            verdict, packet = self._chain(table, chain, packet)
            if verdict in ("drop", "reject") or (
                verdict == "" and chain.hook and chain.hook.policy == "drop"
            ):
                raise _Done(verdict or "drop")
        return packet

    def _chain(
        self, table: nft.NftTable, chain: nft.NftChain, packet: Packet
    ) -> tuple[str, Packet]:
        """The verdict, empty when the end was reached or `return` was met."""
        for rule in chain.rules:
            if not all(self._matches(table, match, packet) for match in rule.matches):
                continue
            for statement in rule.statements:
                verdict, packet, stop = self._statement(table, statement, packet)
                if verdict or stop:
                    return verdict, packet
        return "", packet

    def _statement(
        self, table: nft.NftTable, statement: nft.Statement, packet: Packet
    ) -> tuple[str, Packet, bool]:
        match statement:
            case nft.NftVerdict("return"):
                return "", packet, True
            case nft.NftVerdict("continue"):
                return "", packet, False
            case nft.NftVerdict(what):
                return what, packet, True
            case nft.Jump(name):
                verdict, packet = self._chain(table, table.chains[name], packet)
                return verdict, packet, bool(verdict)
            case nft.Goto(name):
                verdict, packet = self._chain(table, table.chains[name], packet)
                return verdict, packet, True
            case nft.Reject():
                return "reject", packet, True
            case nft.NftLookup(key, named):
                found = table.maps[named].elements.get(tuple(map(str, self._key(key, packet))))
                return (
                    self._statement(table, found, packet)
                    if found is not None
                    else ("", packet, False)
                )
            case nft.Spread(choices):
                return self._statement(table, choices[self.choice % len(choices)], packet)
            case nft.Dnat(address, port):
                return "accept", replace(packet, daddr=address, dport=port or packet.dport), True
            case nft.Masquerade():
                self.masqueraded = True
                return "accept", packet, True
            case nft.SetMark(bits):
                return "", replace(packet, mark=packet.mark | bits), False
            case nft.ClearMark(bits):
                return "", replace(packet, mark=packet.mark & ~bits), False
            case nft.Remember(named, key, _):
                self.remembered.setdefault(named, set()).add(
                    tuple(map(str, self._key(key, packet)))
                )
                return "", packet, False
        raise AssertionError(statement)

    def _key(self, key: Iterable[str], packet: Packet) -> Iterator[object]:
        for part in key:
            yield packet.protocol if part == "l4proto" else getattr(packet, part)

    def _matches(self, table: nft.NftTable, match: nft.NftMatch, packet: Packet) -> bool:
        if match.named:
            declared = table.sets[match.named]
            wanted = tuple(map(str, self._key(match.key or (match.field,), packet)))
            elements = declared.elements | self.remembered.get(match.named, set())
            return (wanted in elements) != match.negate
        return any(self._is(match.field, value, packet) for value in match.value) != match.negate

    def _is(self, name: str, value: str, packet: Packet) -> bool:
        if name in ("saddr", "daddr"):
            return ipaddress.ip_address(getattr(packet, name)) in ipaddress.ip_network(value)
        if name in ("sport", "dport"):
            first, _, last = value.partition("-")
            return int(first) <= getattr(packet, name) <= int(last or first)
        if name == "mark":
            wanted, _, mask = value.partition("/")
            return packet.mark & int(mask or "0xffffffff", 16) == int(wanted, 16)
        if name in ("saddr type", "daddr type"):
            address = getattr(packet, name[:5])
            return address in self.local or address.startswith("127.")
        plain = {"l4proto": packet.protocol, "ct state": packet.state, "iifname": packet.iifname}
        return plain[name] == value
