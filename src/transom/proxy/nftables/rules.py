"""The rules of one port of one service, in one family: what `--proxy-mode=iptables` of 1.20 would do, as chains and elements.

Pure. Two ways lead to a service: by its cluster address ("internal") and by a node port, external address or load balancer
("external"). Each has a traffic policy; `Cluster` spreads over all endpoints, `Local` over those of this node.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from transom.network.nft import (
    DROP,
    Chain,
    Dnat,
    Goto,
    Match,
    Remember,
    Rule,
    SetMark,
    Spread,
    Statement,
    Verdict,
)
from transom.proxy.nftables import names
from transom.proxy.tracker import Endpoint, PortName, ServicePort, of_family

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """What the rules of a node need to know of it."""

    node: str
    ipv6: bool
    mark: int  # of packets that are to be masqueraded
    node_ips: tuple[str, ...] = ()  # the node's own addresses, of this family
    cluster_cidrs: tuple[str, ...] = ()  # where pods are, of this family; empty when unknown
    masquerade_all: bool = False


@dataclass(slots=True)
class Part:
    """What one port of a service brings into the table. Elements and members may be wanted by another service too."""

    chains: dict[str, Chain] = field(default_factory=dict)
    affinities: set[str] = field(default_factory=set)  # dynamic sets of clients' addresses
    elements: dict[tuple[str, Key], Goto | Verdict] = field(default_factory=dict)  # map and key -> verdict
    members: set[tuple[str, Key]] = field(default_factory=set)  # set and key


_REJECT = Goto(names.REJECT)


def part_of(name: PortName, service: ServicePort, endpoints: Iterable[Endpoint], place: Place) -> Part:
    """Nothing for a service that has no cluster address of the family."""
    part = Part()
    cluster_ip = service.cluster_ip(place.ipv6)
    if not cluster_ip:
        return part
    protocol, port = service.protocol.lower(), str(service.port)
    external = of_family(service.external_ips, place.ipv6)
    ingress = of_family(service.ingress_ips, place.ipv6)
    node_port = (protocol, str(service.node_port)) if service.node_port else None
    if service.health_check_node_port:
        part.members.add((names.HEALTH_CHECK_PORTS, (str(service.health_check_node_port),)))

    ready = tuple(e for e in endpoints if e.ready and e.ipv6 == place.ipv6)
    if not ready:
        part.elements[names.NO_ENDPOINTS_CLUSTER, (cluster_ip, protocol, port)] = _REJECT
        for address in (*external, *ingress):
            part.elements[names.NO_ENDPOINTS_EXTERNAL, (address, protocol, port)] = _REJECT
        if node_port:
            part.elements[names.NO_ENDPOINTS_NODE_PORTS, node_port] = _REJECT
        return part

    base = names.base(name)
    local = tuple(e for e in ready if e.is_local(place.node))
    everywhere = Goto(f"service-{base}")
    here = Goto(f"local-{base}") if local else DROP
    guard = _masquerade_outsiders(cluster_ip, place)
    part.chains[everywhere.chain] = _spreading(name, service, ready, guard)
    if (service.internal_local or service.external_local) and isinstance(here, Goto):
        part.chains[here.chain] = _spreading(name, service, local, guard)
    for endpoint in ready:
        _add_endpoint(part, name, service, endpoint, place)

    part.elements[names.SERVICE_IPS, (cluster_ip, protocol, port)] = here if service.internal_local else everywhere
    if not (external or ingress or node_port):
        return part
    outside = f"external-{base}"
    part.chains[outside] = _external(service, everywhere, here, place)
    if external:
        part.chains[f"external-ip-{base}"] = _external_ip(outside)
    for address in external:
        part.elements.setdefault((names.SERVICE_IPS, (address, protocol, port)), Goto(f"external-ip-{base}"))
    ranges = of_family(service.source_ranges, place.ipv6)
    if ingress and ranges:
        part.chains[f"firewall-{base}"] = _firewall(outside, ingress, ranges, place)
    for address in ingress:
        part.elements.setdefault(
            (names.SERVICE_IPS, (address, protocol, port)), Goto(f"firewall-{base}" if ranges else outside)
        )
    if node_port:
        part.elements[names.SERVICE_NODE_PORTS, node_port] = Goto(outside)
    return part


def _masquerade_outsiders(cluster_ip: str, place: Place) -> list[Rule]:
    """A client from outside the cluster that came by the cluster address may be led to another node, which would answer
    past this one; the same for everybody with --masquerade-all."""
    to = Match("daddr", (cluster_ip,))
    if place.masquerade_all:
        return [Rule((SetMark(place.mark),), (to,))]
    if place.cluster_cidrs:
        return [Rule((SetMark(place.mark),), (to, Match("saddr", place.cluster_cidrs, negate=True)))]
    return []


def _spreading(name: PortName, service: ServicePort, endpoints: Sequence[Endpoint], guard: list[Rule]) -> Chain:
    rules = list(guard)
    ends = [names.endpoint(name, e) for e in endpoints]
    if service.affinity == "ClientIP":
        rules += [Rule((Goto(f"endpoint-{end}"),), (Match("saddr", named=f"affinity-{end}"),)) for end in ends]
    rules.append(Rule((Spread(tuple(Goto(f"endpoint-{end}") for end in ends)),), comment=str(name)))
    return Chain(rules)


def _add_endpoint(part: Part, name: PortName, service: ServicePort, endpoint: Endpoint, place: Place) -> None:
    end = names.endpoint(name, endpoint)
    statements: tuple[Statement, ...] = (Dnat(endpoint.address, endpoint.port),)
    if service.affinity == "ClientIP":
        part.affinities.add(f"affinity-{end}")
        statements = (Remember(f"affinity-{end}", ("saddr",), service.affinity_seconds), *statements)
    part.chains[f"endpoint-{end}"] = Chain(
        [
            # A pod that is led to itself must see an answer from the address it asked.
            Rule((SetMark(place.mark),), (Match("saddr", (endpoint.address,)),)),
            Rule(statements, (Match("l4proto", (service.protocol.lower(),)),)),
        ]
    )


def _external(service: ServicePort, everywhere: Goto, here: Goto | Verdict, place: Place) -> Chain:
    if not service.external_local:
        return Chain([Rule((SetMark(place.mark), everywhere))])
    rules = []
    if place.cluster_cidrs:  # pods get what the cluster address would give them
        rules.append(Rule((everywhere,), (Match("saddr", place.cluster_cidrs),)))
    rules.append(Rule((SetMark(place.mark), everywhere), (Match("saddr type", ("local",)),)))
    rules.append(Rule((here,)))
    return Chain(rules)


def _external_ip(outside: str) -> Chain:
    """Not for processes of this node, unless the address is its own: they get what the network has at that address."""
    return Chain(
        [
            Rule((Goto(outside),), (Match("saddr type", ("local",), negate=True),)),
            Rule((Goto(outside),), (Match("daddr type", ("local",)),)),
        ]
    )


def _firewall(outside: str, ingress: tuple[str, ...], ranges: tuple[str, ...], place: Place) -> Chain:
    rules = [Rule((Goto(outside),), (Match("saddr", ranges),))]
    networks = [_network(r) for r in ranges]
    if any(ipaddress.ip_address(ip) in network for ip in place.node_ips for network in networks):
        # A node that is let in may hold the balancer's address itself, and then asks from it.
        rules.append(Rule((Goto(outside),), (Match("saddr", ingress),)))
    rules.append(Rule((DROP,)))
    return Chain(rules)


@lru_cache(maxsize=4096)
def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(text, strict=False)
