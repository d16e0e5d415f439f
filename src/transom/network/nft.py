"""Linux firewall rules as data: what nftables receives, and what the model evaluates.

Only the vocabulary that our tables need. Rule authors (service proxy, network policy, port
mappings, masquerading) create an `NftTable`; the kernel data plane renders it for `nft`, the model
evaluates it. Independent of services and pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from transom.kit.lazy_dataclass import dataclass

Field = Literal[
    "iifname",
    "oifname",
    "saddr",
    "daddr",
    "l4proto",
    "sport",
    "dport",
    "ct state",
    "ct status",
    "mark",
    "saddr type",
    "daddr type",
]
"""What a rule can match. `saddr type` and `daddr type` are the kernel's classification of an
address ("local": one of the host's own); ports are those of any transport protocol.
"""


@dataclass(frozen=True, slots=True)
class NftMatch:
    """`value`: one of these texts ("10.0.0.0/8", "tcp", "80", "1000-2000", "established",
    "0x4000/0x4000", "local"), or, with `named`, an element of that set of the table, looked up by
    `key` when it has several fields.
    """

    field: Field
    value: tuple[str, ...] = ()
    named: str = ""
    key: tuple[Field, ...] = ()
    negate: bool = False


@dataclass(frozen=True, slots=True)
class NftVerdict:
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
class NftLookup:
    """`ip daddr . meta l4proto . th dport vmap @name`: the verdict of the element, or on to the
    next rule.
    """

    key: tuple[Field, ...]
    named: str


@dataclass(frozen=True, slots=True)
class Spread:
    """One of these at random, for each new connection."""

    choices: tuple[Goto, ...]


@dataclass(frozen=True, slots=True)
class Dnat:
    address: str
    port: int = 0  # 0: unchanged


@dataclass(frozen=True, slots=True)
class Snat:
    address: str


@dataclass(frozen=True, slots=True)
class Masquerade:
    """The source becomes the address of the output interface."""


@dataclass(frozen=True, slots=True)
class SetMark:
    bits: int  # bits to set in the mark; others stay


@dataclass(frozen=True, slots=True)
class ClearMark:
    # bits to clear in the mark; others stay. An encapsulated packet keeps its mark
    bits: int


@dataclass(frozen=True, slots=True)
class Remember:
    """`update @name { ip saddr timeout N }`: adds the packet's key to a set of the table for this
    many seconds.
    """

    named: str
    key: tuple[Field, ...]
    seconds: int


Statement = (
    NftVerdict
    | Jump
    | Goto
    | Reject
    | NftLookup
    | Spread
    | Dnat
    | Snat
    | Masquerade
    | SetMark
    | ClearMark
    | Remember
)

ACCEPT = NftVerdict("accept")
DROP = NftVerdict("drop")
RETURN = NftVerdict("return")


@dataclass(frozen=True, slots=True)
class NftRule:
    statements: tuple[Statement, ...]
    matches: tuple[NftMatch, ...] = ()
    comment: str = ""


@dataclass(frozen=True, slots=True)
class NftHook:
    type: Literal["nat", "filter"]
    point: Literal["prerouting", "input", "forward", "output", "postrouting"]
    priority: int
    policy: Literal["accept", "drop"] = "accept"


@dataclass(slots=True)
class NftChain:
    rules: list[NftRule] = field(default_factory=list)
    hook: NftHook | None = None


@dataclass(slots=True)
class NftSet:
    key: tuple[Field, ...]
    # a prefix or a range is one element
    elements: set[tuple[str, ...]] = field(default_factory=set)
    dynamic: bool = False  # filled by Remember, with a timeout
    intervals: bool = False  # elements may be prefixes or ranges


@dataclass(slots=True)
class VerdictMap:
    key: tuple[Field, ...]
    elements: dict[tuple[str, ...], NftVerdict | Goto | Jump] = field(default_factory=dict)


@dataclass(slots=True)
class NftTable:
    family: Literal["ip", "ip6"]
    name: str
    chains: dict[str, NftChain] = field(default_factory=dict)
    sets: dict[str, NftSet] = field(default_factory=dict)
    maps: dict[str, VerdictMap] = field(default_factory=dict)


Tables = Mapping[str, NftTable]
