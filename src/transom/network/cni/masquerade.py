"""Source addresses of pods that leave the cluster's network: the firewall tables of flannel and of the bridge plugin."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Literal

from transom.network.nft import ACCEPT, RETURN, Chain, Hook, Masquerade, Match, Rule, Table
from transom.network.stacks import Stack

FLANNEL = "transom-masq"
BRIDGE = "transom-bridge-masq"
PROXY_MARK = "0x4000/0x4000"
MULTICAST = {4: "224.0.0.0/4", 6: "ff00::/8"}
_COMMENT = "flanneld masq"


def family(version: int) -> Literal["ip", "ip6"]:
    return "ip" if version == 4 else "ip6"


def flannel(version: int, cluster: str, subnet: str) -> Table:
    """What flanneld sees to with --ip-masq: between pods nothing is changed, nor for what comes to the node's own pods from
    outside; what pods send elsewhere gets the node's address, and so does what the node itself sends to pods elsewhere."""

    def rule(statement: Masquerade | None, *matches: Match) -> Rule:
        return Rule((RETURN if statement is None else statement,), matches, _COMMENT)

    source = Match("saddr", (cluster,))
    own = Match("daddr", (subnet,))
    elsewhere = Match("saddr", (cluster,), negate=True)
    chain = Chain(
        [
            rule(None, Match("mark", (PROXY_MARK,))),
            rule(None, Match("saddr", (subnet,)), Match("daddr", (cluster,))),
            rule(None, source, own),
            rule(None, elsewhere, own),
            rule(Masquerade(), source, Match("daddr", (MULTICAST[version],), negate=True)),
            rule(Masquerade(), elsewhere, Match("daddr", (cluster,))),
        ],
        Hook("nat", "postrouting", 100),
    )
    return Table(family(version), FLANNEL, {"postrouting": chain})


def add(stack: Stack, network: str, container_id: str, addresses: Sequence[str]) -> None:
    """As the bridge plugin's ipMasq: one pair of rules for each address of a container."""
    comment = _comment(network, container_id)
    for address in addresses:
        host, length = address.split("/")
        version = 6 if ":" in host else 4
        source = Match("saddr", (host,))
        rules = [
            Rule((ACCEPT,), (source, Match("daddr", (_network(host, length),))), comment),
            Rule((Masquerade(),), (source, Match("daddr", (MULTICAST[version],), negate=True)), comment),
        ]
        kept = [rule for rule in _rules(stack, version) if rule not in rules]
        stack.set_table(_table(version, kept + rules))


def remove(stack: Stack, network: str, container_id: str) -> None:
    comment = _comment(network, container_id)
    for version in (4, 6):
        before = _rules(stack, version)
        kept = [rule for rule in before if rule.comment != comment]
        if kept:
            if len(kept) != len(before):
                stack.set_table(_table(version, kept))
        elif before:
            stack.delete_table(f"{family(version)} {BRIDGE}")


def _comment(network: str, container_id: str) -> str:
    return f'name: "{network}" id: "{container_id}"'


def _table(version: int, rules: list[Rule]) -> Table:
    return Table(family(version), BRIDGE, {"postrouting": Chain(rules, Hook("nat", "postrouting", 100))})


def _rules(stack: Stack, version: int) -> list[Rule]:
    table = stack.tables.get(f"{family(version)} {BRIDGE}")
    return [] if table is None else table.chains["postrouting"].rules


def _network(host: str, length: str) -> str:
    return str(ipaddress.ip_interface(f"{host}/{length}").network)
