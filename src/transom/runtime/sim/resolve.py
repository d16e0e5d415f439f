"""How a process finds addresses: its hosts file, then DNS with the suffixes that its operating system would try."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Literal

from transom.hosts.api import Files
from transom.network.api import DnsConfig

Lookup = Callable[[str, DnsConfig], Awaitable[Sequence[str]]]
"""A whole name to its addresses, none when there is no such name."""

_LOOPBACK = "127.0.0.1"
_HOSTS = {"linux": "/etc/hosts", "windows": r"C:\Windows\System32\drivers\etc\hosts"}
_UNKNOWN = {"linux": (socket.EAI_NONAME, "Name or service not known"), "windows": (11001, "No such host is known.")}


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


async def resolve(
    name: str, os: Literal["linux", "windows"], files: Callable[[], Files], own: tuple[str, Sequence[str]], dns: DnsConfig,
    lookup: Lookup | None,
) -> list[str]:  # fmt: skip
    """`own` is the host's name and its addresses. socket.gaierror when there are none."""
    if is_address(name):
        return [name]
    folded = name.rstrip(".").lower()
    if folded == "localhost":
        return [_LOOPBACK]
    listed = _in_hosts_file(folded, os, files())
    if listed:
        return listed
    if folded == own[0].lower() and own[1]:
        return list(own[1])
    if lookup is not None:
        for candidate in candidates(name, dns, os):
            found = await lookup(candidate, dns)
            if found:
                return list(found)
    raise socket.gaierror(*_UNKNOWN[os])


def _in_hosts_file(name: str, os: str, files: Files) -> list[str]:
    try:
        text = files.read(_HOSTS[os]).decode("utf-8", "replace")
    except OSError:
        return []
    rows = (line.partition("#")[0].split() for line in text.splitlines())
    return [row[0] for row in rows if name in (alias.lower() for alias in row[1:])]


def candidates(name: str, dns: DnsConfig, os: str) -> Iterator[str]:
    """Windows adds suffixes to names without a dot only; Linux counts dots."""
    if name.endswith("."):
        yield name[:-1]
        return
    suffixed = [f"{name}.{suffix.strip('.')}" for suffix in dns.searches if suffix.strip(".")]
    if os == "windows":
        if "." not in name:
            yield from suffixed
        yield name
        return
    if name.count(".") >= _ndots(dns):
        yield name
        yield from suffixed
    else:
        yield from suffixed
        yield name


def _ndots(dns: DnsConfig) -> int:
    for option in dns.options:
        key, _, value = option.partition(":")
        if key == "ndots" and value.isdigit():
            return min(int(value), 15)
    return 1
