"""OVN's load balancers as firewall rules of a Windows node's namespace. Pure.

Pods and the node's own management port use the load balancers of the logical switch, packets from
the underlay those of the node's gateway router, which replaces the source. An entry without
backends rejects connections.
"""

from __future__ import annotations

from collections.abc import Iterable

from transom.network import nft
from transom.network.kernel import names
from transom.network.nft import (
    Dnat,
    Field,
    Goto,
    NftChain,
    NftHook,
    NftLookup,
    NftMatch,
    NftRule,
    NftTable,
    SetMark,
)
from transom.network.ovn.database import OvnDatabase, OvnVip

_PLACE: tuple[Field, ...] = ("daddr", "l4proto", "dport")
_PORT: tuple[Field, ...] = ("l4proto", "dport")
_REJECTED = "ovn-rejected"
_LOCAL = NftMatch("daddr type", ("local",))


def add_load_balancers(
    table: NftTable, database: OvnDatabase, ports: str, uplink: str, mark: int
) -> None:
    """`ports` is the set of pod devices. Packets with `mark` get the node's address."""
    before = NftChain(hook=NftHook("nat", "prerouting", -100))
    own = NftChain(hook=NftHook("nat", "output", -100))
    table.chains |= {"prerouting": before, "ovn-output": own}
    inside = {key: vip for key, vip in database.cluster_vips.items() if ":" not in key[1]}
    outside = {key: vip for key, vip in database.external_vips.items() if ":" not in key[1]}
    places = nft.VerdictMap(_PLACE, {})
    gateway = nft.VerdictMap(_PLACE, {})
    node_ports = nft.VerdictMap(_PORT, {})
    table.maps |= {"ovn-switch": places, "ovn-gateway": gateway, "ovn-node-ports": node_ports}
    for (protocol, address, port), vip in inside.items():
        if vip.backends:
            to = _chain(table, vip, protocol, mark, gateway=False)
            places.elements[address, protocol, str(port)] = to
    for (protocol, address, port), vip in outside.items():
        if vip.backends:
            to = _chain(table, vip, protocol, mark, gateway=True)
            gateway.elements[address, protocol, str(port)] = to
    for (protocol, port), vip in database.node_ports.items():
        if vip.backends:
            to = _chain(table, vip, protocol, mark, gateway=True)
            node_ports.elements[protocol, str(port)] = to
    by_switch = NftRule((NftLookup(_PLACE, "ovn-switch"),))
    by_port = NftRule((NftLookup(_PORT, "ovn-node-ports"),), (_LOCAL,))
    table.chains["ovn-from-pods"] = NftChain([by_switch, by_port])
    table.chains["ovn-from-outside"] = NftChain(
        [NftRule((NftLookup(_PLACE, "ovn-gateway"),)), by_port]
    )
    before.rules.append(NftRule((Goto("ovn-from-pods"),), (NftMatch("iifname", named=ports),)))
    if uplink:
        before.rules.append(NftRule((Goto("ovn-from-outside"),), (NftMatch("iifname", (uplink,)),)))
    own.rules.append(by_switch)
    _reject(table, (key for key, vip in inside.items() if not vip.backends))


def _chain(table: NftTable, vip: OvnVip, protocol: str, mark: int, *, gateway: bool) -> Goto:
    """All entries of a service port share it."""
    name = names.hashed_name("ovn", vip.service, protocol, "gateway" if gateway else "switch")
    if name in table.chains:
        return Goto(name)
    ported = NftMatch("l4proto", (protocol,))
    choices = []
    for address, port in vip.backends:
        chain = f"{name}-{address}"
        to = Dnat(address, port)
        marked = NftRule((SetMark(mark), to), (ported,))
        rules = [marked]
        if not gateway:
            itself = NftRule(
                marked.statements, (NftMatch("saddr", (address,)), ported), "the pod itself"
            )
            rules = [itself, NftRule((to,), (ported,))]
        table.chains[chain] = NftChain(rules)
        choices.append(Goto(chain))
    table.chains[name] = NftChain([NftRule((nft.Spread(tuple(choices)),))])
    return Goto(name)


def _reject(table: NftTable, empty: Iterable[tuple[str, str, int]]) -> None:
    """These connections are not translated, so they would leave through the default route."""
    table.chains[_REJECTED] = NftChain(
        [NftRule((nft.Reject(),), comment="a service without endpoints")]
    )
    table.maps["ovn-empty"] = nft.VerdictMap(
        _PLACE,
        {(address, protocol, str(port)): Goto(_REJECTED) for protocol, address, port in empty},
    )
    lookup = NftRule((NftLookup(_PLACE, "ovn-empty"),))
    for chain in ("forward", "output"):
        table.chains[chain].rules.insert(0, lookup)
