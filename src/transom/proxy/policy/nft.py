"""Isolation of a Linux node's pods as one nftables table for each family.

Every isolated pod has a chain for each direction that returns allowed packets and drops the rest;
pods with the same rules share it. Peer addresses are sets, so a new or removed peer is one element.
Only forwarded packets are filtered: traffic between the node itself and its pods is always allowed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal

from transom.network.nft import (
    ACCEPT,
    DROP,
    RETURN,
    Field,
    Jump,
    NftChain,
    NftHook,
    NftLookup,
    NftMatch,
    NftRule,
    NftSet,
    NftTable,
    VerdictMap,
)
from transom.proxy.policy.rules import AllowedTraffic, Direction, PodIsolation, PolicyPod, PortRange

TABLE = "transom-policy"
SELF = "self"  # set of pairs: a pod that reaches itself through a service
# priority: after the filters of the service proxy, whose DNAT to pods happens much earlier
_AFTER_SERVICES = 10
_LONGEST = 200
_PEER: dict[Direction, Field] = {"ingress": "saddr", "egress": "daddr"}

Family = Literal["ip", "ip6"]


def policy_table(family: Family, pods: Iterable[tuple[PolicyPod, PodIsolation]]) -> NftTable | None:
    """None if no pod is isolated."""
    table = NftTable(
        family,
        TABLE,
        {"forward": NftChain(_forward(), NftHook("filter", "forward", _AFTER_SERVICES))},
        {SELF: NftSet(("saddr", "daddr"))},
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


def _forward() -> list[NftRule]:
    return [
        NftRule((ACCEPT,), (NftMatch("ct state", ("established", "related")),), "answers"),
        NftRule((ACCEPT,), (NftMatch("saddr type", ("local",)),), "the node, to its own pods"),
        NftRule((ACCEPT,), (NftMatch("saddr", named=SELF, key=("saddr", "daddr")),)),
        NftRule((NftLookup(("saddr",), "egress-isolated"),)),
        NftRule((NftLookup(("daddr",), "ingress-isolated"),)),
    ]


def _add_chain(
    table: NftTable, direction: Direction, allowed: tuple[AllowedTraffic, ...], ipv6: bool
) -> str:
    name = f"{direction}-{_hash(*(repr((a.source, a.peers is None, a.blocks, a.ports)) for a in allowed))}"
    if name in table.chains:
        return name
    rules: list[NftRule] = []
    for allow in allowed:
        rules += _rules(table, direction, allow, ipv6)
    table.chains[name] = NftChain([*rules, NftRule((DROP,))])
    return name


def _rules(
    table: NftTable, direction: Direction, allow: AllowedTraffic, ipv6: bool
) -> list[NftRule]:
    peer = _PEER[direction]
    who: list[tuple[NftMatch, ...]] = []
    if allow.peers is None:
        who.append(())
    else:
        name = f"peers-{_hash(allow.source)}/{allow.source}"[:_LONGEST]
        if name not in table.sets:
            table.sets[name] = NftSet((peer,), {(a,) for a in allow.peers if (":" in a) == ipv6})
        who.append((NftMatch(peer, named=name),))
    for block in allow.blocks:
        if (":" in block.cidr) == ipv6:
            without = (NftMatch(peer, block.excepts, negate=True),) if block.excepts else ()
            who.append((NftMatch(peer, (block.cidr,)), *without))
    return [
        NftRule((RETURN,), (*peers, *ports), allow.source)
        for peers in who
        for ports in _ports(allow.ports)
    ]


def _ports(ports: tuple[PortRange, ...] | None) -> list[tuple[NftMatch, ...]]:
    if ports is None:
        return [()]
    found: list[tuple[NftMatch, ...]] = []
    for protocol in sorted({port.protocol for port in ports}):
        its = [port for port in ports if port.protocol == protocol]
        match = NftMatch("l4proto", (protocol.lower(),))
        if any(port.whole for port in its):
            found.append((match,))
        else:
            found.append((match, NftMatch("dport", tuple(port.text for port in its))))
    return found


def _hash(*texts: str) -> str:
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=6).hexdigest()
