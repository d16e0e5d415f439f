"""Listening sockets of the calling thread's network namespace, from /proc."""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LISTEN: Final = "0A"
_UNCONNECTED: Final = "07"
_PROC: Final = Path("/proc/thread-self/net")


def has_listener(address: str, port: int, protocol: str) -> bool:
    """Whether a socket accepts traffic to the address and port; `protocol` is tcp, udp or sctp."""
    wanted = ipaddress.ip_address(address)
    for found, number in waiting_sockets(protocol):
        if number != port:
            continue
        if found == wanted or (
            found.is_unspecified and (found.version == wanted.version or found.version == 6)
        ):
            return True
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        if mapped is not None and mapped == wanted:
            return True
    return False


def waiting_sockets(
    protocol: str,
) -> Iterator[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]]:
    """The address and port of each socket that waits for connections or datagrams."""
    state = _UNCONNECTED if protocol == "udp" else _LISTEN
    for name in (protocol, f"{protocol}6"):
        try:
            lines = (_PROC / name).read_text().splitlines()[1:]
        except OSError:  # IPv6 is disabled, or the protocol is unknown
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 3 and fields[3] == state:
                address, _, port = fields[1].partition(":")
                yield decode_proc_address(address), int(port, 16)


def decode_proc_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The kernel prints each group of four bytes as a number in host byte order."""
    raw = b"".join(
        int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8)
    )
    family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
    return ipaddress.ip_address(socket.inet_ntop(family, raw))
