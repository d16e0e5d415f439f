"""Names of devices: Linux allows 15 characters without spaces; Windows adapters are called
`vEthernet (Ethernet)`.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

_VALID = re.compile(r"[A-Za-z0-9_.-]{1,15}")
_VIRTUAL = re.compile(r"vEthernet \((.*)\)")


@lru_cache(maxsize=4096)
def kernel_device_name(link: str) -> str:
    """The adapter keeps its device name when it becomes `vEthernet (Ethernet)`."""
    virtual = _VIRTUAL.fullmatch(link)
    name = virtual[1] if virtual else link
    return name if _VALID.fullmatch(name) and name not in (".", "..") else hashed_name("w", link)


@lru_cache(maxsize=65536)
def hashed_name(prefix: str, *parts: str) -> str:
    return prefix + hashlib.blake2b("\0".join(parts).encode(), digest_size=6).hexdigest()


def underlay_port_name(stack: str, link: str) -> str:
    return hashed_name("u", stack, link)


def switch_port_name(endpoint: str) -> str:
    """The host's end of a pod's adapter on a Windows node, by the id of its HNS endpoint."""
    return hashed_name("p", endpoint.upper())


@lru_cache(maxsize=65536)
def port_mac(endpoint: str) -> str:
    """The MAC address of a pod's gateway: constant, so that it is known before the first
    request.
    """
    digest = hashlib.blake2b(endpoint.upper().encode(), digest_size=5).digest()
    return "0e:" + ":".join(f"{byte:02x}" for byte in digest)
