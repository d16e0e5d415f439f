"""The load balancers of a service port on a node, in the order in which kube-proxy creates them.
Pure.
"""

from __future__ import annotations

from typing import Final, Literal

from transom.kit.ip_addresses import is_ip_address
from transom.kit.named_tuple import NamedTuple
from transom.machinery.releases.kube_proxy import WinkernelBehaviour
from transom.proxy.tracker import ServicePort

PRESERVE_DESTINATION: Final = "preserve-destination"
PROTOCOLS: Final = {"TCP": 6, "UDP": 17, "SCTP": 132}

Slot = Literal["cluster", "node port", "external", "ingress"]


class BalancerFlags(NamedTuple):
    dsr: bool = False
    local_routed_vip: bool = False
    use_mux: bool = False
    preserve_dip: bool = False
    affinity: bool = False
    ipv6: bool = False


class WantedBalancer(NamedTuple):
    slot: Slot
    vip: str  # "" for a node port: every address of the node
    external_port: int
    local_only: bool  # only endpoints of this node are backends
    flags: BalancerFlags


def wanted_balancers(
    service: ServicePort,
    behaviour: WinkernelBehaviour,
    *,
    dsr: bool,
    dsr_supported: bool,
    ipv6: bool,
) -> list[WantedBalancer]:
    """`dsr` is the flag --enable-dsr. The other kinds of load balancers use DSR if the service
    requests it, regardless of the flag and the feature gate; only the platform must support it.
    """
    preserve = (
        behaviour.preserve_destination
        and dsr_supported
        and service.annotations.get(PRESERVE_DESTINATION) == "true"
    )
    local = behaviour.local_traffic and dsr_supported and service.external_local
    base = BalancerFlags(affinity=behaviour.affinity and service.affinity == "ClientIP", ipv6=ipv6)
    out = [
        WantedBalancer(
            "cluster", service.cluster_ip(ipv6), service.port, False, base._replace(dsr=dsr)
        )
    ]
    if service.node_port > 0:
        flags = base._replace(dsr=local, local_routed_vip=behaviour.local_routed_vip)
        own = local or (preserve and behaviour.preserve_node_port)
        out.append(WantedBalancer("node port", "", service.node_port, own, flags))
    # Both families: kube-proxy filters them for its own use, but then uses the unfiltered list.
    out += [
        WantedBalancer("external", ip, service.port, local, base._replace(dsr=local))
        for ip in service.external_ips
    ]
    direct = preserve or local or (behaviour.ingress_dsr_by_flag and dsr)
    flags = base._replace(dsr=direct, use_mux=preserve, preserve_dip=preserve)
    out += [
        WantedBalancer("ingress", ip, service.port, preserve or local, flags)
        for ip in service.ingress_ips
        if is_ip_address(ip)
    ]
    return out
