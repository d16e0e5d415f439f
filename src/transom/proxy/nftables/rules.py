"""The rules of one service port for one family: the behaviour of `--proxy-mode=iptables` in 1.20,
as chains and elements.

Pure. Traffic reaches a service in two ways: through its cluster IP ("internal"), or through a node
port, external IP or load balancer ("external"). Each has a traffic policy: `Cluster` uses all
endpoints, `Local` only those on this node.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import lru_cache

from transom.kit.lazy_dataclass import dataclass
from transom.network.nft import (
    DROP,
    Dnat,
    Goto,
    NftChain,
    NftMatch,
    NftRule,
    NftVerdict,
    Remember,
    SetMark,
    Spread,
    Statement,
)
from transom.proxy.nftables import names
from transom.proxy.tracker import (
    PortName,
    ProxyEndpoint,
    ServicePort,
    addresses_of_family,
    endpoints_for_node,
)

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RuleContext:
    """The properties of a node that its rules depend on."""

    node: str
    ipv6: bool
    mark: int  # of packets to masquerade
    node_ips: tuple[str, ...] = ()  # the node's own addresses, of this family
    cluster_cidrs: tuple[str, ...] = ()  # the pod CIDRs of this family; empty if unknown
    masquerade_all: bool = False
    zone: str = ""


@dataclass(slots=True)
class ServicePortRules:
    """The contribution of one service port to the table. Other services may claim the same elements
    and members.
    """

    chains: dict[str, NftChain] = field(default_factory=dict)
    affinities: set[str] = field(default_factory=set)  # dynamic sets of clients' addresses
    # map and key -> verdict
    elements: dict[tuple[str, Key], Goto | NftVerdict] = field(default_factory=dict)
    members: set[tuple[str, Key]] = field(default_factory=set)  # set and key


_REJECT = Goto(names.REJECT)


def rules_of_service_port(
    name: PortName, service: ServicePort, endpoints: Iterable[ProxyEndpoint], place: RuleContext
) -> ServicePortRules:
    """Empty for a service without a cluster IP of this family."""
    part = ServicePortRules()
    cluster_ip = service.cluster_ip(place.ipv6)
    if not cluster_ip:
        return part
    protocol, port = service.protocol.lower(), str(service.port)
    external = addresses_of_family(service.external_ips, place.ipv6)
    ingress = addresses_of_family(service.ingress_ips, place.ipv6)
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

    base = names.chain_base_name(name)
    local = tuple(e for e in ready if e.is_local(place.node))
    everywhere = Goto(f"service-{base}")
    here = Goto(f"local-{base}") if local else DROP
    guard = _masquerade_external(cluster_ip, place)
    near = endpoints_for_node(ready, place.node, place.zone)
    part.chains[everywhere.chain] = _spreading(name, service, near, guard)
    if (service.internal_local or service.external_local) and isinstance(here, Goto):
        part.chains[here.chain] = _spreading(name, service, local, guard)
    for endpoint in ready:
        _add_endpoint(part, name, service, endpoint, place)

    part.elements[names.SERVICE_IPS, (cluster_ip, protocol, port)] = (
        here if service.internal_local else everywhere
    )
    if not (external or ingress or node_port):
        return part
    outside = f"external-{base}"
    part.chains[outside] = _external(service, everywhere, here, place)
    if external:
        part.chains[f"external-ip-{base}"] = _external_ip(outside)
    for address in external:
        part.elements.setdefault(
            (names.SERVICE_IPS, (address, protocol, port)), Goto(f"external-ip-{base}")
        )
    ranges = addresses_of_family(service.source_ranges, place.ipv6)
    if ingress and ranges:
        part.chains[f"firewall-{base}"] = _firewall(outside, ingress, ranges, place)
    for address in ingress:
        part.elements.setdefault(
            (names.SERVICE_IPS, (address, protocol, port)),
            Goto(f"firewall-{base}" if ranges else outside),
        )
    if node_port:
        part.elements[names.SERVICE_NODE_PORTS, node_port] = Goto(outside)
    return part


def _masquerade_external(cluster_ip: str, place: RuleContext) -> list[NftRule]:
    """Masquerades clients from outside the cluster that use the cluster IP: the endpoint may be on
    another node, which would reply directly. With --masquerade-all this applies to all clients.
    """
    to = NftMatch("daddr", (cluster_ip,))
    if place.masquerade_all:
        return [NftRule((SetMark(place.mark),), (to,))]
    if place.cluster_cidrs:
        return [
            NftRule(
                (SetMark(place.mark),), (to, NftMatch("saddr", place.cluster_cidrs, negate=True))
            )
        ]
    return []


def _spreading(
    name: PortName, service: ServicePort, endpoints: Sequence[ProxyEndpoint], guard: list[NftRule]
) -> NftChain:
    rules = list(guard)
    ends = [names.endpoint_chain_name(name, e) for e in endpoints]
    if service.affinity == "ClientIP":
        rules += [
            NftRule((Goto(f"endpoint-{end}"),), (NftMatch("saddr", named=f"affinity-{end}"),))
            for end in ends
        ]
    rules.append(
        NftRule((Spread(tuple(Goto(f"endpoint-{end}") for end in ends)),), comment=str(name))
    )
    return NftChain(rules)


def _add_endpoint(
    part: ServicePortRules,
    name: PortName,
    service: ServicePort,
    endpoint: ProxyEndpoint,
    place: RuleContext,
) -> None:
    end = names.endpoint_chain_name(name, endpoint)
    statements: tuple[Statement, ...] = (Dnat(endpoint.address, endpoint.port),)
    if service.affinity == "ClientIP":
        part.affinities.add(f"affinity-{end}")
        statements = (
            Remember(f"affinity-{end}", ("saddr",), service.affinity_seconds),
            *statements,
        )
    part.chains[f"endpoint-{end}"] = NftChain(
        [
            # A pod that reaches itself through a service must see the reply come from the service's
            # address.
            NftRule((SetMark(place.mark),), (NftMatch("saddr", (endpoint.address,)),)),
            NftRule(statements, (NftMatch("l4proto", (service.protocol.lower(),)),)),
        ]
    )


def _external(
    service: ServicePort, everywhere: Goto, here: Goto | NftVerdict, place: RuleContext
) -> NftChain:
    if not service.external_local:
        return NftChain([NftRule((SetMark(place.mark), everywhere))])
    rules = []
    if place.cluster_cidrs:  # pods get the same treatment as with the cluster IP
        rules.append(NftRule((everywhere,), (NftMatch("saddr", place.cluster_cidrs),)))
    rules.append(NftRule((SetMark(place.mark), everywhere), (NftMatch("saddr type", ("local",)),)))
    rules.append(NftRule((here,)))
    return NftChain(rules)


def _external_ip(outside: str) -> NftChain:
    """Does not apply to processes of this node unless the address is its own: otherwise they reach
    the real host at that address.
    """
    return NftChain(
        [
            NftRule((Goto(outside),), (NftMatch("saddr type", ("local",), negate=True),)),
            NftRule((Goto(outside),), (NftMatch("daddr type", ("local",)),)),
        ]
    )


def _firewall(
    outside: str, ingress: tuple[str, ...], ranges: tuple[str, ...], place: RuleContext
) -> NftChain:
    rules = [NftRule((Goto(outside),), (NftMatch("saddr", ranges),))]
    networks = [_network(r) for r in ranges]
    if any(ipaddress.ip_address(ip) in network for ip in place.node_ips for network in networks):
        # An allowed node may hold the load balancer's address itself, and then uses it as source.
        rules.append(NftRule((Goto(outside),), (NftMatch("saddr", ingress),)))
    rules.append(NftRule((DROP,)))
    return NftChain(rules)


@lru_cache(maxsize=4096)
def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(text, strict=False)
