"""The address ranges of a cluster."""

from __future__ import annotations

import ipaddress

from transom.kit.lazy_dataclass import dataclass
from transom.node.settings import ClusterSettings, cidr_of_family


@dataclass(frozen=True, slots=True)
class AddressRanges:
    """The CIDRs of a cluster; the IPv6 CIDRs are set in dual-stack clusters only."""

    nodes: str
    pods: str
    services: str
    dns: str
    nodes6: str = ""
    pods6: str = ""
    services6: str = ""

    @property
    def gateway(self) -> str:
        return str(ipaddress.ip_network(self.nodes)[1])

    @property
    def gateway6(self) -> str:
        return str(ipaddress.ip_network(self.nodes6)[1])

    def contains(self, host: str) -> bool:
        """Whether the address belongs to the cluster."""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        cidrs = non_empty(
            self.nodes, self.pods, self.services, self.nodes6, self.pods6, self.services6
        )
        return any(address in ipaddress.ip_network(cidr) for cidr in cidrs)

    def with_prefix_length(self, address: str) -> str:
        nodes = self.nodes6 if ":" in address else self.nodes
        return f"{address}/{ipaddress.ip_network(nodes).prefixlen}"


def address_ranges(settings: ClusterSettings) -> AddressRanges:
    cidrs = (settings.node_cidr, settings.pod_cidr, settings.service_cidr)
    nodes, pods, services = (cidr_of_family(text, 4) for text in cidrs)
    dns = str(ipaddress.ip_network(services)[10])
    if not settings.network.dual_stack:
        return AddressRanges(nodes, pods, services, dns)
    nodes6, pods6, services6 = (cidr_of_family(text, 6) for text in cidrs)
    return AddressRanges(nodes, pods, services, dns, nodes6, pods6, services6)


def non_empty(*texts: str) -> tuple[str, ...]:
    return tuple(text for text in texts if text)
