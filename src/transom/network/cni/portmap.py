"""portmap: ports of the node that forward to a sandbox. A chained plugin.

One firewall table of the node has the rules of all its sandboxes. Clients that connect to a host
port from the sandbox itself or from the node's loopback address are marked and masqueraded;
otherwise the reply would not return through the translation.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from transom.network.cni import results
from transom.network.cni.masquerade import nft_family
from transom.network.cni.plugin import CniCall, CniNode, Delegate, Result, fail_plugin
from transom.network.nft import (
    Dnat,
    Jump,
    Masquerade,
    NftChain,
    NftHook,
    NftMatch,
    NftRule,
    NftTable,
    SetMark,
)
from transom.network.stacks import NetworkStack

TABLE = "transom-hostports"
_BIT = 13
_RULES = "hostports"


def portmap(call: CniCall, machine: CniNode, _delegate: Delegate) -> Result | None:
    prefix = "failed to parse config: " if call.command != "CHECK" else ""
    conf = call.config
    if conf.get("markMasqBit") is not None and conf.get("externalSetMarkChain") is not None:
        fail_plugin(f"{prefix}Cannot specify externalSetMarkChain and markMasqBit")
    bit = conf.get("markMasqBit")
    bit = _BIT if bit is None else bit
    if not 0 <= bit <= 31:
        fail_plugin(f"{prefix}MasqMarkBit must be between 0 and 31")
    mappings = (conf.get("runtimeConfig") or {}).get("portMappings") or []
    for mapping in mappings:
        for key, word in (("containerPort", "container"), ("hostPort", "host")):
            if mapping.get(key, 0) <= 0:
                fail_plugin(f"{prefix}Invalid {word} port number: {mapping.get(key, 0)}")
    previous = conf.get("prevResult")
    comment = _comment(call)
    if call.command == "DEL":
        if mappings:
            _remove(machine.stack, comment)
        return None
    if previous is None:
        fail_plugin(
            "must be called as chained plugin"
            if call.command == "ADD"
            else "Required prevResult missing"
        )
    result = results.to_current(previous, conf.get("cniVersion") or "")
    if mappings:
        snat = conf.get("snat")
        marked = (1 << bit) if snat is None or snat else 0
        for version, address in _addresses(call, result).items():
            rules = _rules(version, address, mappings, marked, comment)
            if call.command == "CHECK":
                _check(machine.stack, version, rules)
            elif rules:
                _put(machine.stack, version, rules, marked)
    return result if call.command == "ADD" else None


def _comment(call: CniCall) -> str:
    return f'dnat name: "{call.config["name"]}" id: "{call.container_id}"'


def _addresses(call: CniCall, result: Result) -> dict[int, str]:
    """The sandbox's first address of each family."""
    found: dict[int, str] = {}
    interfaces = result.get("interfaces") or []
    for ip in result.get("ips") or ():
        place = ip.get("interface")
        if place is not None and 0 <= place < len(interfaces):
            interface = interfaces[place]
            if interface["name"] != call.ifname or not interface.get("sandbox"):
                continue
        found.setdefault(6 if ip["version"] == "6" else 4, ip["address"].split("/")[0])
    return found


def _rules(
    version: int, address: str, mappings: list[Mapping[str, Any]], marked: int, comment: str
) -> list[NftRule]:
    rules = []
    for mapping in mappings:
        matches = [
            NftMatch("l4proto", (str(mapping.get("protocol", "")).lower() or "tcp",)),
            NftMatch("dport", (str(mapping["hostPort"]),)),
        ]
        if mapping.get("hostIP"):
            host = ipaddress.ip_address(mapping["hostIP"])
            if host.version != version:
                continue
            if not host.is_unspecified:
                matches.append(NftMatch("daddr", (str(host),)))
        if marked:
            for source in (address, "127.0.0.1") if version == 4 else (address,):
                rules.append(
                    NftRule((SetMark(marked),), (*matches, NftMatch("saddr", (source,))), comment)
                )
        rules.append(NftRule((Dnat(address, mapping["containerPort"]),), tuple(matches), comment))
    return rules


def _put(stack: NetworkStack, version: int, rules: list[NftRule], marked: int) -> None:
    """Replaces the sandbox's previous rules."""
    kept = [rule for rule in held_port_rules(stack, version) if rule.comment != rules[0].comment]
    bits = _bits(stack, version) | ({marked} if marked else set())
    stack.set_table(_table(version, kept + rules, bits))


def _remove(stack: NetworkStack, comment: str) -> None:
    for version in (4, 6):
        before = held_port_rules(stack, version)
        kept = [rule for rule in before if rule.comment != comment]
        if not kept and before:
            stack.delete_table(f"{nft_family(version)} {TABLE}")
        elif len(kept) != len(before):
            stack.set_table(_table(version, kept, _bits(stack, version)))


def _check(stack: NetworkStack, version: int, rules: list[NftRule]) -> None:
    there = held_port_rules(stack, version)
    if any(rule not in there for rule in rules):
        fail_plugin(f"could not check ipv{version} dnat: expected rule not found")


def held_port_rules(stack: NetworkStack, version: int) -> list[NftRule]:
    table = stack.tables.get(f"{nft_family(version)} {TABLE}")
    return [] if table is None else table.chains[_RULES].rules


def _bits(stack: NetworkStack, version: int) -> set[int]:
    table = stack.tables.get(f"{nft_family(version)} {TABLE}")
    if table is None:
        return set()
    return {
        int(rule.matches[0].value[0].split("/")[0], 16)
        for rule in table.chains["postrouting"].rules
    }


def _table(version: int, rules: list[NftRule], bits: set[int]) -> NftTable:
    to_local = [NftRule((Jump(_RULES),), (NftMatch("daddr type", ("local",)),))]
    masquerade = [
        NftRule((Masquerade(),), (NftMatch("mark", (f"{bit:#x}/{bit:#x}",)),))
        for bit in sorted(bits)
    ]
    return NftTable(
        nft_family(version),
        TABLE,
        {
            _RULES: NftChain(rules),
            "prerouting": NftChain(list(to_local), NftHook("nat", "prerouting", -100)),
            "output": NftChain(list(to_local), NftHook("nat", "output", -100)),
            # before every other table that masquerades
            "postrouting": NftChain(masquerade, NftHook("nat", "postrouting", 99)),
        },
    )
