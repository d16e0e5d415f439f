"""Names of the numbers in documents of the host networking service (HNS)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ENDPOINT_STATES: Final = (
    "uninitialized",
    "created",
    "attached",
    "sharing",
    "detached",
    "degraded",
    "destroyed",
)
PROTOCOLS: Final = {1: "ICMP", 6: "TCP", 17: "UDP", 132: "SCTP"}
BALANCER_FLAGS: Final = {1: "DSR", 2: "IPv6"}
MAPPING_FLAGS: Final = {
    1: "ILB",
    2: "LocalRoutedVIP",
    4: "UseMux",
    8: "PreserveDIP",
    16: "VipExternalIP",
}


def endpoint_state(endpoint: Mapping[str, Any]) -> str:
    return "remote" if endpoint.get("IsRemoteEndpoint") else ENDPOINT_STATES[endpoint["State"]]


def endpoint_addresses(endpoint: Mapping[str, Any]) -> str:
    return ",".join(filter(None, (endpoint.get("IPAddress"), endpoint.get("IPv6Address")))) or "-"


def balancer_flags(balancer: Mapping[str, Any], mapping: Mapping[str, Any]) -> list[str]:
    """The flags of one port of a load balancer."""
    flags = _names(BALANCER_FLAGS, balancer.get("Flags", 0))
    flags += _names(MAPPING_FLAGS, mapping.get("Flags", 0))
    return [*flags, "SourceIP"] if mapping.get("DistributionType") else flags


def _names(table: Mapping[int, str], flags: int) -> list[str]:
    return [name for bit, name in table.items() if flags & bit]
