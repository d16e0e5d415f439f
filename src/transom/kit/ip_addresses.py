"""Texts that are IP addresses."""

from __future__ import annotations

import ipaddress


def is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_ip_network(text: str) -> bool:
    """A prefix, also one with host bits, or an address."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True
