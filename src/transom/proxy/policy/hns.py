"""Isolation of a Windows pod as ACL policies on its HNS endpoint, as Windows network policy agents
write them.

ACLs are stateful and apply at the pod's switch port, after service addresses have been translated
to pod addresses. They can only match, so the exceptions of an IP block are subtracted from it
beforehand; a lower priority number wins. Once an endpoint has ACLs, both directions need a default
rule.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from transom.proxy.policy.rules import (
    AllowedTraffic,
    Direction,
    PodIsolation,
    PolicyIPBlock,
    PolicyPod,
    PortRange,
)

HOST_PRIORITY = 900
ALLOW_PRIORITY = 1000
LAST_PRIORITY = 65000
PROTOCOLS = {"TCP": "6", "UDP": "17", "SCTP": "132"}

Acl = dict[str, Any]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def policy_acls(
    pod: PolicyPod, isolation: PodIsolation, node_addresses: Iterable[str]
) -> list[Acl]:
    """The ACL policies of the pod's endpoint; empty for a pod that is not isolated."""
    if isolation.ingress is None and isolation.egress is None:
        return []
    families = sorted({":" in address for address in pod.addresses})
    # The pod's node, and the pod itself through a service, are always allowed.
    always = sorted({a for a in (*node_addresses, *pod.addresses) if (":" in a) in families})
    found: list[Acl] = []
    for direction, allowed in isolation.ways():
        way = "In" if direction == "ingress" else "Out"
        if allowed is None:
            found.append(_acl("Allow", way, LAST_PRIORITY))
            continue
        found += [
            _acl("Allow", way, HOST_PRIORITY, RemoteAddresses=text) for text in _by_family(always)
        ]
        for allow in allowed:
            found += _allow(allow, direction, way, families)
        found.append(_acl("Block", way, LAST_PRIORITY))
    return list({repr(acl): acl for acl in found}.values())


def _allow(
    allow: AllowedTraffic, direction: Direction, way: str, families: list[bool]
) -> list[Acl]:
    if allow.peers is None:
        who: list[str] = [""]
    else:
        addresses = [
            *allow.peers,
            *(text for block in allow.blocks for text in _without_exceptions(block)),
        ]
        who = _by_family(a for a in sorted(addresses) if (":" in a) in families)
    ports_field = "LocalPorts" if direction == "ingress" else "RemotePorts"
    found = []
    for remote in who:
        named = {"RemoteAddresses": remote} if remote else {}
        for protocol, ports in _ports(allow.ports):
            more = {"Protocols": protocol} if protocol else {}
            if ports:
                more[ports_field] = ports
            found.append(_acl("Allow", way, ALLOW_PRIORITY, **named, **more))
    return found


def _acl(action: str, way: str, priority: int, **settings: str) -> Acl:
    given = {
        "Action": action,
        "Direction": way,
        **settings,
        "RuleType": "Switch",
        "Priority": priority,
    }
    return {"Type": "ACL", "Settings": given}


def _ports(ports: tuple[PortRange, ...] | None) -> list[tuple[str, str]]:
    """Protocol and ports as strings; empty for all."""
    if ports is None:
        return [("", "")]
    found = []
    for protocol in sorted({port.protocol for port in ports}):
        its = [port for port in ports if port.protocol == protocol]
        text = "" if any(port.whole for port in its) else ",".join(port.text for port in its)
        found.append((PROTOCOLS[protocol], text))
    return found


def _by_family(addresses: Iterable[str]) -> list[str]:
    """One list for each family with addresses: a rule applies to one family."""
    given = list(addresses)
    texts = (",".join(a for a in given if (":" in a) == ipv6) for ipv6 in (False, True))
    return [text for text in texts if text]


@lru_cache(maxsize=1024)
def _without_exceptions(block: PolicyIPBlock) -> tuple[str, ...]:
    rest: list[Network] = [ipaddress.ip_network(block.cidr, strict=False)]
    for text in block.excepts:
        hole = ipaddress.ip_network(text, strict=False)
        kept: list[Network] = []
        for network in rest:
            if network.version != hole.version or not network.overlaps(hole):
                kept.append(network)
            elif hole.prefixlen > network.prefixlen:
                kept.extend(network.address_exclude(hole))  # type: ignore[arg-type]
        rest = kept
    return tuple(
        str(network)
        for network in sorted(rest, key=lambda n: (int(n.network_address), n.prefixlen))
    )
