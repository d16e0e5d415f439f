"""Runs a packet through the firewall tables of a stack, as nftables does.

Base chains of a hook run by priority. Those of type `nat` see only the first packet of a connection
and run where the kernel translates (prerouting -100, postrouting 100); the first that translates
ends the search. Later packets are translated by connection tracking.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import field
from functools import lru_cache
from itertools import accumulate
from typing import Literal

from transom.kit.lazy_dataclass import dataclass
from transom.network import nft
from transom.network.model.addresses import address_number, address_with_port, prefix_bounds
from transom.network.model.conntrack import Conntrack, ConntrackEntry
from transom.network.packets import Packet
from transom.network.stacks import NetworkStack

Point = Literal["prerouting", "input", "forward", "output", "postrouting"]
Decision = Literal["accept", "drop", "reject"]
_NAT_PRIORITY = {"prerouting": -100, "output": -100, "input": 100, "postrouting": 100}
_DEEPEST = 32  # nested jumps; the kernel allows 16


@dataclass(slots=True)
class HookTraversal:
    """A packet that passes one hook of one stack."""

    stack: NetworkStack
    packet: Packet
    iif: str
    oif: str
    tracked: Conntrack
    entry: ConntrackEntry
    reply: bool
    is_local: Callable[[str], bool]
    masquerade: Callable[[str, str], str]  # link, destination -> the source address to use
    dynamic: DynamicSets
    rng: random.Random
    table: str = ""  # the table whose rule ended it
    translated: bool = False  # a rule has decided, even to change nothing
    notes: list[str] = field(default_factory=list)  # a description of what happened


class DynamicSets:
    """The elements that rules have added to dynamic sets, until they expire. They survive changes
    of the tables.
    """

    __slots__ = ("_now", "_sets")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._sets: dict[tuple[str, str, str], dict[tuple[str, ...], float]] = {}

    def put(self, stack: str, table: str, name: str, key: tuple[str, ...], seconds: int) -> None:
        self._sets.setdefault((stack, table, name), {})[key] = self._now() + seconds

    def has(self, stack: str, table: str, name: str, key: tuple[str, ...]) -> bool:
        elements = self._sets.get((stack, table, name))
        until = elements.get(key) if elements else None
        if until is None:
            return False
        if until <= self._now():
            assert elements is not None
            del elements[key]
            return False
        return True

    def forget(self, stack: str) -> None:
        for key in [key for key in self._sets if key[0] == stack]:
            del self._sets[key]


class Firewall:
    """The tables of a stack, arranged by hook. Rebuilt when one of them is replaced."""

    __slots__ = ("_hooks", "_intervals", "_tables")

    def __init__(self, tables: nft.Tables) -> None:
        self._tables = dict(tables)
        self._hooks: dict[tuple[str, str], tuple[_Base, ...]] = {}
        self._intervals: dict[tuple[str, str], _Intervals] = {}
        found: dict[tuple[str, str], list[_Base]] = {}
        for key, table in self._tables.items():
            for name, chain in table.chains.items():
                if chain.hook is not None:
                    base = _Base(chain.hook.priority, key, name, table, chain, chain.hook)
                    found.setdefault((table.family, chain.hook.point), []).append(base)
        for hook, bases in found.items():
            self._hooks[hook] = tuple(sorted(bases, key=lambda b: (b.priority, b.key, b.name)))

    def run(self, traversal: HookTraversal, point: Point) -> Decision:
        """Changes the traversal's packet according to the rules."""
        family = "ip6" if ":" in traversal.packet.destination else "ip"
        bases = self._hooks.get((family, point), ())
        translates = _NAT_PRIORITY.get(point)
        done = translates is None
        for base in bases:
            if base.hook.type == "nat":
                continue
            if not done and translates is not None and base.priority > translates:
                done = True
                if self._translate(traversal, point, bases) == "drop":
                    return "drop"
            decision = self._base(traversal, base)
            if decision != "accept":
                return decision
        return "accept" if done else self._translate(traversal, point, bases)

    def _base(self, traversal: HookTraversal, base: _Base) -> Decision:
        found = self._chain(traversal, base.key, base.table, base.chain, 0)
        if found in (None, "return"):
            if base.hook.policy == "drop":
                traversal.table = base.table.name
                traversal.notes.append(f"the policy of chain {base.table.name}/{base.name} is drop")
                return "drop"
            return "accept"
        return found  # type: ignore[return-value]

    def _translate(
        self, traversal: HookTraversal, point: Point, bases: tuple[_Base, ...]
    ) -> Decision:
        entry, reply = traversal.entry, traversal.reply
        destination = point in ("prerouting", "output")
        what = "dnat" if destination else "snat"
        if not reply and what not in entry.bound:
            traversal.translated = False
            for base in bases:
                if base.hook.type == "nat":
                    if self._chain(traversal, base.key, base.table, base.chain, 0) == "drop":
                        return "drop"
                    if traversal.translated:
                        break
            entry.bound.add(what)
        change = entry.with_destination if destination else entry.with_source
        traversal.packet = change(traversal.packet, reply)
        return "accept"

    def _chain(
        self,
        traversal: HookTraversal,
        key: str,
        table: nft.NftTable,
        chain: nft.NftChain,
        depth: int,
    ) -> str | None:
        """accept, drop, reject; "return" when a goto has ended the chain; None at its end."""
        if depth > _DEEPEST:
            return "drop"
        for rule in chain.rules:
            for match in rule.matches:
                if self._matches(traversal, key, table, match) is match.negate:
                    break
            else:
                found = self._rule(traversal, key, table, rule, depth)
                if found is not None:
                    return found
        return None

    def _rule(
        self, traversal: HookTraversal, key: str, table: nft.NftTable, rule: nft.NftRule, depth: int
    ) -> str | None:
        for written in rule.statements:
            statement = _chosen(traversal, table, written)
            if statement is None:
                continue
            kind = type(statement)
            if kind is nft.NftVerdict:
                assert isinstance(statement, nft.NftVerdict)
                if statement.what == "continue":
                    continue
                if statement.what == "drop":
                    traversal.table = table.name
                    traversal.notes.append(rule.comment or f"a rule of {table.name} drops it")
                return statement.what
            if kind is nft.Jump:
                assert isinstance(statement, nft.Jump)
                found = self._chain(traversal, key, table, table.chains[statement.chain], depth + 1)
                if found is not None and found != "return":
                    return found
            elif kind is nft.Goto:
                assert isinstance(statement, nft.Goto)
                return (
                    self._chain(traversal, key, table, table.chains[statement.chain], depth + 1)
                    or "return"
                )
            elif kind is nft.Reject:
                traversal.table = table.name
                traversal.notes.append(rule.comment or f"a rule of {table.name} rejects it")
                return "reject"
            elif kind is nft.SetMark:
                assert isinstance(statement, nft.SetMark)
                traversal.packet = _marked(traversal.packet, traversal.packet.mark | statement.bits)
            elif kind is nft.ClearMark:
                assert isinstance(statement, nft.ClearMark)
                traversal.packet = _marked(
                    traversal.packet, traversal.packet.mark & ~statement.bits
                )
            elif kind is nft.Remember:
                assert isinstance(statement, nft.Remember)
                traversal.dynamic.put(
                    traversal.stack.name,
                    key,
                    statement.named,
                    _key(traversal, statement.key),
                    statement.seconds,
                )
            else:
                self._nat(traversal, statement, rule, table)
                return "accept"
        return None

    def _nat(
        self,
        traversal: HookTraversal,
        statement: nft.Statement,
        rule: nft.NftRule,
        table: nft.NftTable,
    ) -> None:
        packet = traversal.packet
        traversal.translated = True
        because = rule.comment or table.name
        if isinstance(statement, nft.Dnat):
            port = statement.port or packet.destination_port
            traversal.tracked.translate_destination(traversal.entry, statement.address, port)
            traversal.notes.append(
                f"destination {address_with_port(packet.destination, packet.destination_port)} becomes "
                f"{address_with_port(statement.address, port)} ({because})"
            )
            return
        if isinstance(statement, nft.Snat):
            address = statement.address
        else:
            address = traversal.masquerade(traversal.oif, packet.destination)
        if address and address != packet.source:
            traversal.tracked.translate_source(traversal.entry, address)
            traversal.notes.append(f"source {packet.source} becomes {address} ({because})")

    def _matches(
        self, traversal: HookTraversal, key: str, table: nft.NftTable, match: nft.NftMatch
    ) -> bool:
        if match.named:
            return self._in_set(traversal, key, table, match)
        text = _FIELDS[match.field](traversal)
        if match.field in ("saddr", "daddr"):
            version, value = address_number(text)
            return any(
                version == v and low <= value <= high for v, low, high in _prefixes(match.value)
            )
        if match.field in ("sport", "dport"):
            return traversal.packet.protocol != "icmp" and any(
                low <= int(text) <= high for low, high in _ports(match.value)
            )
        if match.field == "mark":
            return any(traversal.packet.mark & mask == value for value, mask in _marks(match.value))
        if match.field in ("iifname", "oifname"):
            return any(
                text == name or (name.endswith("*") and text.startswith(name[:-1]))
                for name in match.value
            )
        if match.field == "ct status":
            return any(status in traversal.entry.status for status in match.value)
        return text in match.value

    def _in_set(
        self, traversal: HookTraversal, key: str, table: nft.NftTable, match: nft.NftMatch
    ) -> bool:
        found = table.sets.get(match.named)
        if found is None:
            return False
        wanted = _key(traversal, match.key or (match.field,))
        if found.dynamic and traversal.dynamic.has(traversal.stack.name, key, match.named, wanted):
            return True
        if wanted in found.elements:
            return True
        if not found.intervals:
            return False
        named = (key, match.named)
        intervals = self._intervals.get(named)
        if intervals is None:
            intervals = self._intervals[named] = _Intervals(found)
        return intervals.contain(wanted)


@dataclass(frozen=True, slots=True)
class _Base:
    priority: int
    key: str
    name: str
    table: nft.NftTable
    chain: nft.NftChain
    hook: nft.NftHook


class _Intervals:
    """The elements of a set that are prefixes or ranges. Sets with one field use binary search."""

    __slots__ = ("_fields", "_highs", "_lows", "_rows")

    def __init__(self, found: nft.NftSet) -> None:
        self._fields = found.key
        self._lows: list[tuple[int, int]] = []
        self._highs: list[tuple[int, int]] = []
        self._rows: list[tuple[tuple[int, int, int], ...]] = []
        rows = [
            tuple(_interval(f, text) for f, text in zip(found.key, element, strict=True))
            for element in found.elements
        ]
        if len(found.key) > 1:
            self._rows = rows
            return
        ordered = sorted(row[0] for row in rows)
        self._lows = [(version, low) for version, low, _ in ordered]
        self._highs = list(accumulate(((version, high) for version, _, high in ordered), max))

    def contain(self, wanted: tuple[str, ...]) -> bool:
        values = [_value(f, text) for f, text in zip(self._fields, wanted, strict=True)]
        if len(values) == 1:
            at = bisect_right(self._lows, values[0]) - 1
            return at >= 0 and self._highs[at] >= values[0]
        return any(
            all(
                version == v and low <= value <= high
                for (v, value), (version, low, high) in zip(values, row, strict=True)
            )
            for row in self._rows
        )


def _interval(field: nft.Field, text: str) -> tuple[int, int, int]:
    if field in ("saddr", "daddr"):
        return prefix_bounds(text)
    if field in ("sport", "dport"):
        low, _, high = text.partition("-")
        return 0, int(low), int(high or low)
    return 0, hash(text), hash(text)


def _value(field: nft.Field, text: str) -> tuple[int, int]:
    if field in ("saddr", "daddr"):
        return address_number(text)
    return 0, int(text) if field in ("sport", "dport") else hash(text)


def _marked(p: Packet, mark: int) -> Packet:
    return Packet(
        p.source,
        p.destination,
        p.protocol,
        p.source_port,
        p.destination_port,
        p.source_mac,
        p.destination_mac,
        p.outer,
        mark,
    )


def _state(traversal: HookTraversal) -> str:
    return "established" if traversal.reply or traversal.entry.answered else "new"


_FIELDS: dict[str, Callable[[HookTraversal], str]] = {
    "iifname": lambda p: p.iif,
    "oifname": lambda p: p.oif,
    "saddr": lambda p: p.packet.source,
    "daddr": lambda p: p.packet.destination,
    "l4proto": lambda p: p.packet.protocol,
    "sport": lambda p: str(p.packet.source_port),
    "dport": lambda p: str(p.packet.destination_port),
    "ct state": _state,
    "ct status": lambda p: " ".join(sorted(p.entry.status)),
    "mark": lambda p: hex(p.packet.mark),
    "saddr type": lambda p: "local" if p.is_local(p.packet.source) else "unicast",
    "daddr type": lambda p: "local" if p.is_local(p.packet.destination) else "unicast",
}


def _chosen(
    traversal: HookTraversal, table: nft.NftTable, statement: nft.Statement
) -> nft.Statement | None:
    """The statement to perform: that of a map's element, or one of several at random. None if
    there is none.
    """
    kind = type(statement)
    if kind is nft.NftLookup:
        assert isinstance(statement, nft.NftLookup)
        found = table.maps.get(statement.named)
        return found.elements.get(_key(traversal, statement.key)) if found is not None else None
    if kind is nft.Spread:
        assert isinstance(statement, nft.Spread)
        choices = statement.choices
        return choices[traversal.rng.randrange(len(choices))] if choices else None
    return statement


def _key(traversal: HookTraversal, fields: tuple[nft.Field, ...]) -> tuple[str, ...]:
    return tuple([_FIELDS[field](traversal) for field in fields])


@lru_cache(maxsize=8192)
def _prefixes(texts: tuple[str, ...]) -> tuple[tuple[int, int, int], ...]:
    return tuple(prefix_bounds(text) for text in texts)


@lru_cache(maxsize=8192)
def _ports(texts: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(
        (int(low), int(high or low)) for low, _, high in (text.partition("-") for text in texts)
    )


@lru_cache(maxsize=1024)
def _marks(texts: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(
        (int(value, 0), int(mask, 0) if mask else 0xFFFFFFFF)
        for value, _, mask in (text.partition("/") for text in texts)
    )
