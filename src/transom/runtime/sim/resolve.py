"""How a process in a container finds addresses: its hosts file, then DNS by the rules of its operating system."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence

from transom.hosts.api import Files
from transom.kit import dnswire as wire
from transom.network.api import DnsConfig
from transom.network.resolver import Ask, Os, Resolver, families, is_address, parse_resolv_conf
from transom.runtime.sim.sockets import NetworkNamespace, is_loopback

Lookup = Callable[[str, DnsConfig], Awaitable[Sequence[str]]]
"""A whole name to its addresses, none when there is no such name."""

_LOOPBACK = "127.0.0.1"
_RESOLV_CONF = "/etc/resolv.conf"
_HOSTS = {"linux": "/etc/hosts", "windows": r"C:\Windows\System32\drivers\etc\hosts"}


async def resolve(
    name: str, os: Os, files: Callable[[], Files], own: tuple[str, Sequence[str]], resolver: Callable[[], Resolver]
) -> list[str]:
    """`own` is the host's name and its addresses. socket.gaierror when there are none."""
    if is_address(name):
        return [name]
    folded = name.rstrip(".").lower()
    if folded == "localhost":
        return [_LOOPBACK]
    listed = in_hosts_file(folded, os, files())
    if listed:
        return listed
    if folded == own[0].lower() and own[1]:
        return list(own[1])
    return await resolver().addresses(name, families(own[1]))


async def connect(
    namespace: NetworkNamespace, host: str, port: int, addresses: Callable[[str], Awaitable[Sequence[str]]]
) -> socket.socket:
    """By address, or by a name that `addresses` knows: the first of them that answers. Raises OSError."""
    if is_address(host) or is_loopback(host):
        return await namespace.connect(host, port)
    failure: OSError | None = None
    for address in await addresses(host):
        try:
            return await namespace.connect(address, port)
        except OSError as error:
            failure = error
    raise failure or socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def in_hosts_file(name: str, os: Os, files: Files) -> list[str]:
    """The addresses of a name in small letters."""
    try:
        text = files.read(_HOSTS[os]).decode("utf-8", "replace")
    except OSError:
        return []
    rows = (line.partition("#")[0].split() for line in text.splitlines())
    return [row[0] for row in rows if name in (alias.lower() for alias in row[1:])]


def settings(os: Os, files: Callable[[], Files], given: DnsConfig) -> DnsConfig:
    """What the resolver goes by: on Linux a file, which may have been changed; on Windows what the network was told."""
    if os == "windows":
        return given
    try:
        return parse_resolv_conf(files().read(_RESOLV_CONF).decode("utf-8", "replace"))
    except OSError:
        return given


def answering(lookup: Lookup, dns: DnsConfig) -> Ask:
    """A name server, at whatever address, that knows what a table knows."""

    async def ask(_server: str, _port: int, payload: bytes) -> bytes:
        message = wire.parse(payload)
        asked = message.question
        assert asked is not None, "resolvers ask"
        found = await lookup(wire.text(asked.name), dns) if asked.type in (wire.A, wire.AAAA) else ()
        answers = [
            wire.Record(asked.name, asked.type, 30, wire.address(address)) for address in found
            if asked.type == (wire.AAAA if ":" in address else wire.A)
        ]  # fmt: skip
        packed = wire.Packed(asked.name, wire.AA | (wire.NOERROR if found else wire.NXDOMAIN), answers)
        return packed.message(message.id, asked.name + asked.type.to_bytes(2) + b"\0\1", message.flags, 65535)

    return ask
