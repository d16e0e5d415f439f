"""portmap: ports of the node that lead to a sandbox. A chained plugin.

One firewall table of the node has the rules of all its sandboxes. Who comes to a host port from the sandbox itself or from
the node's loopback address is marked and masqueraded, for the answer would not come back to where the port was asked for.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from transom.network.cni import results
from transom.network.cni.masquerade import family
from transom.network.cni.plugin import Call, Delegate, Machine, Result, fail
from transom.network.nft import Chain, Dnat, Hook, Jump, Masquerade, Match, Rule, SetMark, Table
from transom.network.stacks import Stack

TABLE = "transom-hostports"
_BIT = 13
_RULES = "hostports"


def portmap(call: Call, machine: Machine, _delegate: Delegate) -> Result | None:
    prefix = "failed to parse config: " if call.command != "CHECK" else ""
    conf = call.config
    if conf.get("markMasqBit") is not None and conf.get("externalSetMarkChain") is not None:
        fail(f"{prefix}Cannot specify externalSetMarkChain and markMasqBit")
    bit = conf.get("markMasqBit")
    bit = _BIT if bit is None else bit
    if not 0 <= bit <= 31:
        fail(f"{prefix}MasqMarkBit must be between 0 and 31")
    mappings = (conf.get("runtimeConfig") or {}).get("portMappings") or []
    for mapping in mappings:
        for key, word in (("containerPort", "container"), ("hostPort", "host")):
            if mapping.get(key, 0) <= 0:
                fail(f"{prefix}Invalid {word} port number: {mapping.get(key, 0)}")
    previous = conf.get("prevResult")
    comment = _comment(call)
    if call.command == "DEL":
        if mappings:
            _remove(machine.stack, comment)
        return None
    if previous is None:
        fail("must be called as chained plugin" if call.command == "ADD" else "Required prevResult missing")
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


def _comment(call: Call) -> str:
    return f'dnat name: "{call.config["name"]}" id: "{call.container_id}"'


def _addresses(call: Call, result: Result) -> dict[int, str]:
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


def _rules(version: int, address: str, mappings: list[Mapping[str, Any]], marked: int, comment: str) -> list[Rule]:
    rules = []
    for mapping in mappings:
        matches = [Match("l4proto", (str(mapping.get("protocol", "")).lower() or "tcp",)),
                   Match("dport", (str(mapping["hostPort"]),))]  # fmt: skip
        if mapping.get("hostIP"):
            host = ipaddress.ip_address(mapping["hostIP"])
            if host.version != version:
                continue
            if not host.is_unspecified:
                matches.append(Match("daddr", (str(host),)))
        if marked:
            for source in (address, "127.0.0.1") if version == 4 else (address,):
                rules.append(Rule((SetMark(marked),), (*matches, Match("saddr", (source,))), comment))
        rules.append(Rule((Dnat(address, mapping["containerPort"]),), tuple(matches), comment))
    return rules


def _put(stack: Stack, version: int, rules: list[Rule], marked: int) -> None:
    """In place of those that the same sandbox had before."""
    kept = [rule for rule in held(stack, version) if rule.comment != rules[0].comment]
    bits = _bits(stack, version) | ({marked} if marked else set())
    stack.set_table(_table(version, kept + rules, bits))


def _remove(stack: Stack, comment: str) -> None:
    for version in (4, 6):
        before = held(stack, version)
        kept = [rule for rule in before if rule.comment != comment]
        if not kept and before:
            stack.delete_table(f"{family(version)} {TABLE}")
        elif len(kept) != len(before):
            stack.set_table(_table(version, kept, _bits(stack, version)))


def _check(stack: Stack, version: int, rules: list[Rule]) -> None:
    there = held(stack, version)
    if any(rule not in there for rule in rules):
        fail(f"could not check ipv{version} dnat: expected rule not found")


def held(stack: Stack, version: int) -> list[Rule]:
    table = stack.tables.get(f"{family(version)} {TABLE}")
    return [] if table is None else table.chains[_RULES].rules


def _bits(stack: Stack, version: int) -> set[int]:
    table = stack.tables.get(f"{family(version)} {TABLE}")
    if table is None:
        return set()
    return {int(rule.matches[0].value[0].split("/")[0], 16) for rule in table.chains["postrouting"].rules}


def _table(version: int, rules: list[Rule], bits: set[int]) -> Table:
    to_local = [Rule((Jump(_RULES),), (Match("daddr type", ("local",)),))]
    masquerade = [Rule((Masquerade(),), (Match("mark", (f"{bit:#x}/{bit:#x}",)),)) for bit in sorted(bits)]
    return Table(
        family(version), TABLE,
        {
            _RULES: Chain(rules),
            "prerouting": Chain(list(to_local), Hook("nat", "prerouting", -100)),
            "output": Chain(list(to_local), Hook("nat", "output", -100)),
            # before every other table that masquerades
            "postrouting": Chain(masquerade, Hook("nat", "postrouting", 99)),
        },
    )  # fmt: skip
