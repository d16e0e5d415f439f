"""A packet and the record of its path: which hops it passed, what each did to it, and how it
ended.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from transom.kit.lazy_dataclass import dataclass

Protocol = Literal["tcp", "udp", "icmp", "sctp"]
Outcome = Literal["delivered", "dropped", "refused", "unresolved"]


@dataclass(frozen=True, slots=True)
class Outer:
    """The header around an encapsulated packet."""

    source: str
    destination: str
    vni: int
    port: int = 4789


@dataclass(frozen=True, slots=True)
class Packet:
    source: str
    destination: str
    protocol: Protocol = "tcp"
    source_port: int = 0
    destination_port: int = 0
    source_mac: str = ""
    destination_mac: str = ""
    outer: Outer | None = None
    mark: int = 0


@dataclass(frozen=True, slots=True)
class Hop:
    place: str  # "pod default/web-0", "node windows-1", "underlay", "external"
    # "resolver", "vSwitch port", "load balancer", "route", "bridge cbr0", "VXLAN", "nftables",
    # "policy", "socket"
    device: str
    what: str  # a sentence: what happens here and why
    packet: Packet  # as it leaves this hop


@dataclass(slots=True)
class Walk:
    """`reason` is a stable identifier of why it ended ("no-route", "policy", "no-listener", ...),
    `limit` the id of the Windows limitation that explains it, `remedy` what to do.
    """

    outcome: Outcome
    hops: list[Hop] = field(default_factory=list)
    packet: Packet | None = None  # as it arrived: what the server sees
    stack: str = ""  # where it arrived
    reason: str = ""
    explanation: str = ""
    limit: str = ""
    remedy: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
