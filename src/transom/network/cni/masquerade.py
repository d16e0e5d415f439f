"""Source addresses of pods that leave the cluster's network: the firewall tables of flannel and of
the bridge plugin.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Literal

from transom.network.nft import (
    ACCEPT,
    RETURN,
    Masquerade,
    NftChain,
    NftHook,
    NftMatch,
    NftRule,
    NftTable,
)
from transom.network.stacks import NetworkStack

FLANNEL = "transom-masq"
BRIDGE = "transom-bridge-masq"
PROXY_MARK = "0x4000/0x4000"
MULTICAST = {4: "224.0.0.0/4", 6: "ff00::/8"}
_COMMENT = "flanneld masq"


def nft_family(version: int) -> Literal["ip", "ip6"]:
    return "ip" if version == 4 else "ip6"


def flannel_masquerade_table(version: int, cluster: str, subnet: str) -> NftTable:
    """flanneld's --ip-masq: traffic between pods, and traffic from outside to the node's own pods,
    keeps its source; what pods send elsewhere gets the node's address, and so does what the node
    itself sends to pods on other nodes.
    """

    def rule(statement: Masquerade | None, *matches: NftMatch) -> NftRule:
        return NftRule((RETURN if statement is None else statement,), matches, _COMMENT)

    source = NftMatch("saddr", (cluster,))
    own = NftMatch("daddr", (subnet,))
    elsewhere = NftMatch("saddr", (cluster,), negate=True)
    chain = NftChain(
        [
            rule(None, NftMatch("mark", (PROXY_MARK,))),
            rule(None, NftMatch("saddr", (subnet,)), NftMatch("daddr", (cluster,))),
            rule(None, source, own),
            rule(None, elsewhere, own),
            rule(Masquerade(), source, NftMatch("daddr", (MULTICAST[version],), negate=True)),
            rule(Masquerade(), elsewhere, NftMatch("daddr", (cluster,))),
        ],
        NftHook("nat", "postrouting", 100),
    )
    return NftTable(nft_family(version), FLANNEL, {"postrouting": chain})


def add_masquerade_rules(
    stack: NetworkStack, network: str, container_id: str, addresses: Sequence[str]
) -> None:
    """The bridge plugin's ipMasq: one pair of rules for each address of a container."""
    comment = _comment(network, container_id)
    for address in addresses:
        host, length = address.split("/")
        version = 6 if ":" in host else 4
        source = NftMatch("saddr", (host,))
        rules = [
            NftRule((ACCEPT,), (source, NftMatch("daddr", (_network(host, length),))), comment),
            NftRule(
                (Masquerade(),),
                (source, NftMatch("daddr", (MULTICAST[version],), negate=True)),
                comment,
            ),
        ]
        kept = [rule for rule in _rules(stack, version) if rule not in rules]
        stack.set_table(_table(version, kept + rules))


def remove_masquerade_rules(stack: NetworkStack, network: str, container_id: str) -> None:
    comment = _comment(network, container_id)
    for version in (4, 6):
        before = _rules(stack, version)
        kept = [rule for rule in before if rule.comment != comment]
        if kept:
            if len(kept) != len(before):
                stack.set_table(_table(version, kept))
        elif before:
            stack.delete_table(f"{nft_family(version)} {BRIDGE}")


def _comment(network: str, container_id: str) -> str:
    return f'name: "{network}" id: "{container_id}"'


def _table(version: int, rules: list[NftRule]) -> NftTable:
    return NftTable(
        nft_family(version),
        BRIDGE,
        {"postrouting": NftChain(rules, NftHook("nat", "postrouting", 100))},
    )


def _rules(stack: NetworkStack, version: int) -> list[NftRule]:
    table = stack.tables.get(f"{nft_family(version)} {BRIDGE}")
    return [] if table is None else table.chains["postrouting"].rules


def _network(host: str, length: str) -> str:
    return str(ipaddress.ip_interface(f"{host}/{length}").network)
