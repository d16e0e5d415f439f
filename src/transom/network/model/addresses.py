"""Addresses as numbers: whether a string (an address, a prefix, a range) contains another. Results
are cached, because the strings repeat.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache


@lru_cache(maxsize=65536)
def address_number(address: str) -> tuple[int, int]:
    """IP version and value; (0, 0) if it is not an address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return 0, 0
    return parsed.version, int(parsed)


@lru_cache(maxsize=65536)
def prefix_bounds(text: str) -> tuple[int, int, int]:
    """IP version, first and last value of an address, a prefix ("10.0.0.0/8") or a range
    ("10.0.0.1-10.0.0.9").
    """
    low, dash, high = text.partition("-")
    if dash:
        return (*address_number(low), address_number(high)[1])
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return 0, 1, 0  # contains nothing
    first = int(network.network_address)
    return network.version, first, first + network.num_addresses - 1


def is_within(address: str, text: str) -> bool:
    version, value = address_number(address)
    family, low, high = prefix_bounds(text)
    return version == family and low <= value <= high


@lru_cache(maxsize=4096)
def is_loopback(address: str) -> bool:
    return address_number(address)[0] != 0 and ipaddress.ip_address(address).is_loopback


@lru_cache(maxsize=4096)
def is_global(address: str) -> bool:
    """Routed on the Internet: neither private, nor reserved, nor loopback."""
    return address_number(address)[0] != 0 and ipaddress.ip_address(address).is_global


def address_family(address: str) -> int:
    return address_number(address)[0]


def address_with_port(address: str, port: int) -> str:
    """Formats address and port; only the address if the port is not valid."""
    where = f"[{address}]" if ":" in address and port else address
    return f"{where}:{port}" if port else where
