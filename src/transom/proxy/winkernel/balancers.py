"""Which load balancers a port of a service has on a node, in the order in which kube-proxy makes them. Pure."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from transom.network.resolver import is_address
from transom.proxy.tracker import ServicePort
from transom.proxy.winkernel.behaviour import Behaviour

PRESERVE_DESTINATION: Final = "preserve-destination"
PROTOCOLS: Final = {"TCP": 6, "UDP": 17, "SCTP": 132}

Slot = Literal["cluster", "node port", "external", "ingress"]


class Flags(NamedTuple):
    dsr: bool = False
    local_routed_vip: bool = False
    use_mux: bool = False
    preserve_dip: bool = False
    affinity: bool = False
    ipv6: bool = False


class Wanted(NamedTuple):
    slot: Slot
    vip: str  # "" for a node port: every address of the node
    external_port: int
    local_only: bool  # only endpoints of this node are behind it
    flags: Flags


def wanted(
    service: ServicePort, behaviour: Behaviour, *, dsr: bool, dsr_supported: bool, ipv6: bool
) -> list[Wanted]:
    """`dsr` is the flag --enable-dsr. The other kinds of load balancers have DSR by what the service asks for, whatever
    the flag and the feature gate say: only the platform must be able to."""
    preserve = (
        behaviour.preserve_destination and dsr_supported and service.annotations.get(PRESERVE_DESTINATION) == "true"
    )
    local = behaviour.local_traffic and dsr_supported and service.external_local
    base = Flags(affinity=behaviour.affinity and service.affinity == "ClientIP", ipv6=ipv6)
    out = [Wanted("cluster", service.cluster_ip(ipv6), service.port, False, base._replace(dsr=dsr))]
    if service.node_port > 0:
        flags = base._replace(dsr=local, local_routed_vip=behaviour.local_routed_vip)
        own = local or (preserve and behaviour.preserve_node_port)
        out.append(Wanted("node port", "", service.node_port, own, flags))
    # Of both families: kube-proxy filters these for its own use of them, and then takes the unfiltered ones.
    out += [Wanted("external", ip, service.port, local, base._replace(dsr=local)) for ip in service.external_ips]
    direct = preserve or local or (behaviour.ingress_dsr_by_flag and dsr)
    flags = base._replace(dsr=direct, use_mux=preserve, preserve_dip=preserve)
    out += [
        Wanted("ingress", ip, service.port, preserve or local, flags) for ip in service.ingress_ips if is_address(ip)
    ]
    return out
