"""Isolation of a Linux node's pods as an nftables table for each family.

Every isolated pod has, for each direction, a chain that returns what is allowed and drops the rest; pods with the same rules
share it. Addresses of peers are sets, so a pod that comes or goes elsewhere is one element. Only what the node forwards is
looked at: its own traffic with its pods is always allowed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal

from transom.network.nft import (
    ACCEPT,
    DROP,
    RETURN,
    Chain,
    Field,
    Hook,
    Jump,
    Lookup,
    Match,
    Rule,
    Set,
    Table,
    VerdictMap,
)
from transom.proxy.policy.rules import Allow, Direction, Isolation, Pod, PortRange

TABLE = "transom-policy"
SELF = "self"  # set of pairs: a pod that reaches itself through a service
_AFTER_SERVICES = 10  # priority: behind the filters of the service proxy, which has led packets to pods long before
_LONGEST = 200
_PEER: dict[Direction, Field] = {"ingress": "saddr", "egress": "daddr"}

Family = Literal["ip", "ip6"]


def table_of(family: Family, pods: Iterable[tuple[Pod, Isolation]]) -> Table | None:
    """None where no pod is isolated."""
    table = Table(
        family,
        TABLE,
        {"forward": Chain(_forward(), Hook("filter", "forward", _AFTER_SERVICES))},
        {SELF: Set(("saddr", "daddr"))},
        {"egress-isolated": VerdictMap(("saddr",)), "ingress-isolated": VerdictMap(("daddr",))},
    )
    ipv6 = family == "ip6"
    for pod, isolation in pods:
        addresses = [a for a in pod.addresses if (":" in a) == ipv6]
        for direction, allowed in isolation.ways():
            if allowed is None or not addresses:
                continue
            chain = _add_chain(table, direction, allowed, ipv6)
            for address in addresses:
                table.maps[f"{direction}-isolated"].elements[(address,)] = Jump(chain)
                table.sets[SELF].elements.add((address, address))
    return table if table.sets[SELF].elements else None


def _forward() -> list[Rule]:
    return [
        Rule((ACCEPT,), (Match("ct state", ("established", "related")),), "answers"),
        Rule((ACCEPT,), (Match("saddr type", ("local",)),), "the node, to its own pods"),
        Rule((ACCEPT,), (Match("saddr", named=SELF, key=("saddr", "daddr")),)),
        Rule((Lookup(("saddr",), "egress-isolated"),)),
        Rule((Lookup(("daddr",), "ingress-isolated"),)),
    ]


def _add_chain(table: Table, direction: Direction, allowed: tuple[Allow, ...], ipv6: bool) -> str:
    name = f"{direction}-{_hash(*(repr((a.source, a.peers is None, a.blocks, a.ports)) for a in allowed))}"
    if name in table.chains:
        return name
    rules: list[Rule] = []
    for allow in allowed:
        rules += _rules(table, direction, allow, ipv6)
    table.chains[name] = Chain([*rules, Rule((DROP,))])
    return name


def _rules(table: Table, direction: Direction, allow: Allow, ipv6: bool) -> list[Rule]:
    peer = _PEER[direction]
    who: list[tuple[Match, ...]] = []
    if allow.peers is None:
        who.append(())
    else:
        name = f"peers-{_hash(allow.source)}/{allow.source}"[:_LONGEST]
        if name not in table.sets:
            table.sets[name] = Set((peer,), {(a,) for a in allow.peers if (":" in a) == ipv6})
        who.append((Match(peer, named=name),))
    for block in allow.blocks:
        if (":" in block.cidr) == ipv6:
            without = (Match(peer, block.excepts, negate=True),) if block.excepts else ()
            who.append((Match(peer, (block.cidr,)), *without))
    return [Rule((RETURN,), (*peers, *ports), allow.source) for peers in who for ports in _ports(allow.ports)]


def _ports(ports: tuple[PortRange, ...] | None) -> list[tuple[Match, ...]]:
    if ports is None:
        return [()]
    found: list[tuple[Match, ...]] = []
    for protocol in sorted({port.protocol for port in ports}):
        its = [port for port in ports if port.protocol == protocol]
        match = Match("l4proto", (protocol.lower(),))
        if any(port.whole for port in its):
            found.append((match,))
        else:
            found.append((match, Match("dport", tuple(port.text for port in its))))
    return found


def _hash(*texts: str) -> str:
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=6).hexdigest()
