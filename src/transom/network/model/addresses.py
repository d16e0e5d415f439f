"""Addresses as numbers: whether a text (an address, a prefix, a range) contains another. Results are kept, texts repeat."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache


@lru_cache(maxsize=65536)
def number(address: str) -> tuple[int, int]:
    """IP version and value; (0, 0) for what is no address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return 0, 0
    return parsed.version, int(parsed)


@lru_cache(maxsize=65536)
def bounds(text: str) -> tuple[int, int, int]:
    """IP version, first and last value of an address, a prefix ("10.0.0.0/8") or a range ("10.0.0.1-10.0.0.9")."""
    low, dash, high = text.partition("-")
    if dash:
        return (*number(low), number(high)[1])
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return 0, 1, 0  # contains nothing
    first = int(network.network_address)
    return network.version, first, first + network.num_addresses - 1


def within(address: str, text: str) -> bool:
    version, value = number(address)
    family, low, high = bounds(text)
    return version == family and low <= value <= high


def within_any(address: str, texts: Iterable[str]) -> bool:
    return any(within(address, text) for text in texts)


@lru_cache(maxsize=4096)
def is_loopback(address: str) -> bool:
    return number(address)[0] != 0 and ipaddress.ip_address(address).is_loopback


@lru_cache(maxsize=4096)
def is_global(address: str) -> bool:
    """Routed on the Internet: neither private, nor reserved, nor of this machine."""
    return number(address)[0] != 0 and ipaddress.ip_address(address).is_global


def family(address: str) -> int:
    return number(address)[0]


def place(address: str, port: int) -> str:
    """Address and port as people write them; the address alone where there is no port."""
    where = f"[{address}]" if ":" in address and port else address
    return f"{where}:{port}" if port else where
