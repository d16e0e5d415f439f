"""The subnets of a network: their addresses, reservations and allocation."""

from __future__ import annotations

import ipaddress
from collections.abc import Container, Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from transom.kit.lazy_dataclass import dataclass

DEFAULT_ROUTES: Final = ("0.0.0.0/0", "::/0")
KEEP_GATEWAY_FREE: Final = 1  # a subnet's flag: the gateway's address is not reserved
_SWITCHED: Final = ("L2Bridge", "L2Tunnel", "Overlay")


@dataclass(slots=True)
class HnsSubnet:
    network: ipaddress.IPv4Network | ipaddress.IPv6Network
    gateway: str
    reserved: frozenset[str]  # never allocated
    skipped: frozenset[str]  # allocated on request only
    first: int = field(init=False)
    last: int = field(init=False)
    next: int = field(init=False)

    def __post_init__(self) -> None:
        self.first = self.next = int(self.network.network_address)
        self.last = self.first + self.network.num_addresses - 1

    def has(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        return address.version == self.network.version and self.first <= int(address) <= self.last

    def free(self, used: Container[str]) -> str:
        """The next address after the one allocated last; "" if all are taken."""
        make = type(self.network.network_address)
        for _ in range(min(self.last - self.first + 1, 1 << 20)):
            self.next = self.first if self.next >= self.last else self.next + 1
            address = str(make(self.next))
            if address not in used and address not in self.reserved and address not in self.skipped:
                return address
        return ""


def hns_subnets(ipams: Iterable[Mapping[str, Any]], network_type: str) -> list[HnsSubnet]:
    """Raises ValueError for an invalid prefix."""
    return [
        _subnet(subnet, network_type)
        for ipam in ipams
        for subnet in ipam.get("Subnets", ())
        if subnet.get("IpAddressPrefix")
    ]


def _subnet(subnet: Mapping[str, Any], network_type: str) -> HnsSubnet:
    network = ipaddress.ip_network(subnet["IpAddressPrefix"], strict=False)
    gateway = next(
        (
            r.get("NextHop", "")
            for r in subnet.get("Routes", ())
            if r.get("DestinationPrefix") in DEFAULT_ROUTES
        ),
        "",
    )
    reserved = {str(network.network_address)} if network.num_addresses > 2 else set()
    if network.version == 4 and network.num_addresses > 2:
        reserved.add(str(network.broadcast_address))
    if gateway and not subnet.get("Flags", 0) & KEEP_GATEWAY_FREE:
        reserved.add(str(ipaddress.ip_address(gateway)))
    # The second address is for the host's own endpoint on the switch, which is created later and
    # requests it.
    host = (
        {str(network.network_address + 2)}
        if network_type in _SWITCHED and network.num_addresses > 4
        else set()
    )
    return HnsSubnet(network, gateway, frozenset(reserved), frozenset(host))
