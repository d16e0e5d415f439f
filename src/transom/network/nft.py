"""Rules of a Linux firewall as data: what nftables is told, and what the model evaluates.

Only the vocabulary that our tables need. Whoever makes rules (service proxy, network policy, port mappings, masquerading)
makes a `Table`; the kernel data plane renders it for `nft`, the model walks through it. Knows nothing of services or pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Field = Literal[
    "iifname", "oifname", "saddr", "daddr", "l4proto", "sport", "dport", "ct state", "ct status", "mark", "saddr type",
    "daddr type",
]  # fmt: skip
"""What a rule can look at. `saddr type` and `daddr type` are the kernel's opinion of an address ("local": one of the host's
own); ports are of any transport."""


@dataclass(frozen=True, slots=True)
class Match:
    """`value`: one of these texts ("10.0.0.0/8", "tcp", "80", "1000-2000", "established", "0x4000/0x4000", "local"), or,
    with `named`, an element of that set of the table, looked up by `key` when it has several fields."""

    field: Field
    value: tuple[str, ...] = ()
    named: str = ""
    key: tuple[Field, ...] = ()
    negate: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    what: Literal["accept", "drop", "return", "continue"]


@dataclass(frozen=True, slots=True)
class Jump:
    chain: str


@dataclass(frozen=True, slots=True)
class Goto:
    chain: str


@dataclass(frozen=True, slots=True)
class Reject:
    """TCP gets a reset, everything else `port unreachable`."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """`ip daddr . meta l4proto . th dport vmap @name`: the verdict of the element, or on to the next rule."""

    key: tuple[Field, ...]
    named: str


@dataclass(frozen=True, slots=True)
class Spread:
    """One of these at random, for each connection anew."""

    choices: tuple[Goto, ...]


@dataclass(frozen=True, slots=True)
class Dnat:
    address: str
    port: int = 0  # 0: as it is


@dataclass(frozen=True, slots=True)
class Snat:
    address: str


@dataclass(frozen=True, slots=True)
class Masquerade:
    """The source becomes the address of the interface that the packet leaves by."""


@dataclass(frozen=True, slots=True)
class SetMark:
    bits: int  # set in the mark, the others left alone


@dataclass(frozen=True, slots=True)
class ClearMark:
    bits: int  # taken out of the mark, the others left alone; a packet that is encapsulated keeps its mark


@dataclass(frozen=True, slots=True)
class Remember:
    """`update @name { ip saddr timeout N }`: puts the packet's key into a set of the table for so many seconds."""

    named: str
    key: tuple[Field, ...]
    seconds: int


Statement = Verdict | Jump | Goto | Reject | Lookup | Spread | Dnat | Snat | Masquerade | SetMark | ClearMark | Remember

ACCEPT = Verdict("accept")
DROP = Verdict("drop")
RETURN = Verdict("return")


@dataclass(frozen=True, slots=True)
class Rule:
    statements: tuple[Statement, ...]
    matches: tuple[Match, ...] = ()
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Hook:
    type: Literal["nat", "filter"]
    point: Literal["prerouting", "input", "forward", "output", "postrouting"]
    priority: int
    policy: Literal["accept", "drop"] = "accept"


@dataclass(slots=True)
class Chain:
    rules: list[Rule] = field(default_factory=list)
    hook: Hook | None = None


@dataclass(slots=True)
class Set:
    key: tuple[Field, ...]
    elements: set[tuple[str, ...]] = field(default_factory=set)  # a prefix or a range is one element
    dynamic: bool = False  # filled by Remember, with a timeout
    intervals: bool = False  # elements may be prefixes or ranges


@dataclass(slots=True)
class VerdictMap:
    key: tuple[Field, ...]
    elements: dict[tuple[str, ...], Verdict | Goto | Jump] = field(default_factory=dict)


@dataclass(slots=True)
class Table:
    family: Literal["ip", "ip6"]
    name: str
    chains: dict[str, Chain] = field(default_factory=dict)
    sets: dict[str, Set] = field(default_factory=dict)
    maps: dict[str, VerdictMap] = field(default_factory=dict)


Tables = Mapping[str, Table]
