"""Names of devices: Linux allows 15 characters without blanks; Windows' adapters are called `vEthernet (Ethernet)`."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

_VALID = re.compile(r"[A-Za-z0-9_.-]{1,15}")
_VIRTUAL = re.compile(r"vEthernet \((.*)\)")


@lru_cache(maxsize=4096)
def device(link: str) -> str:
    """The adapter that becomes `vEthernet (Ethernet)` stays the same device."""
    virtual = _VIRTUAL.fullmatch(link)
    name = virtual[1] if virtual else link
    return name if _VALID.fullmatch(name) and name not in (".", "..") else hashed("w", link)


@lru_cache(maxsize=65536)
def hashed(prefix: str, *parts: str) -> str:
    return prefix + hashlib.blake2b("\0".join(parts).encode(), digest_size=6).hexdigest()


def underlay_port(stack: str, link: str) -> str:
    return hashed("u", stack, link)


def switch_port(endpoint: str) -> str:
    """The host's end of a pod's adapter on a Windows node, by the id of its HNS endpoint."""
    return hashed("p", endpoint.upper())


@lru_cache(maxsize=65536)
def port_mac(endpoint: str) -> str:
    """What a pod has as its gateway's address: always the same, so that it can be told before anybody asks."""
    digest = hashlib.blake2b(endpoint.upper().encode(), digest_size=5).digest()
    return "0e:" + ":".join(f"{byte:02x}" for byte in digest)
