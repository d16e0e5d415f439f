"""Name resolution as processes in containers do it: the hosts file, then DNS by the rules of the operating system."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.kit import dnswire as wire
from transom.kit.ip_addresses import is_ip_address
from transom.machines.api import Files
from transom.network.api import DnsConfig
from transom.network.resolver import Os, Resolver, Tool, address_families, read_resolv_conf
from transom.userland.api import ProgramContext

_LOOPBACK = "127.0.0.1"
_RESOLV_CONF = "/etc/resolv.conf"
_HOSTS = {"linux": "/etc/hosts", "windows": r"C:\Windows\System32\drivers\etc\hosts"}


async def resolve_name(
    name: str,
    os: Os,
    files: Callable[[], Files],
    own: tuple[str, Sequence[str]],
    resolver: Callable[[], Resolver],
) -> list[str]:
    """`own` is the host's name and its addresses. Raises socket.gaierror when there are none."""
    if is_ip_address(name):
        return [name]
    known = hosts_addresses(name, os, files, own)
    return known or await resolver().addresses(name, address_families(own[1]))


def hosts_addresses(
    name: str, os: Os, files: Callable[[], Files], own: tuple[str, Sequence[str]]
) -> list[str]:
    """The addresses of a name that needs no DNS. `own` is the host's name and its addresses."""
    folded = name.rstrip(".").lower()
    if folded == "localhost":
        return [_LOOPBACK]
    listed = in_hosts_file(folded, os, files())
    if listed:
        return listed
    return list(own[1]) if folded == own[0].lower() else []


def in_hosts_file(name: str, os: Os, files: Files) -> list[str]:
    """The addresses of a name, which is in lower case."""
    try:
        text = files.read(_HOSTS[os]).decode("utf-8", "replace")
    except OSError:
        return []
    rows = (line.partition("#")[0].split() for line in text.splitlines())
    return [row[0] for row in rows if name in (alias.lower() for alias in row[1:])]


def resolver_settings(os: Os, files: Callable[[], Files], given: DnsConfig) -> DnsConfig:
    """The resolver's settings: on Linux from /etc/resolv.conf, which may have changed; on Windows those of the network."""
    if os == "windows":
        return given
    try:
        return read_resolv_conf(files().read(_RESOLV_CONF).decode("utf-8", "replace"))
    except OSError:
        return given


def container_resolver(
    context: ProgramContext, server: str = "", tool: Tool = "system"
) -> Resolver:
    """The container's resolver; with `server`, an address, it asks that server instead."""
    dns = resolver_settings(context.os, lambda: context.files, context.network.dns)
    if server:
        dns = dns._replace(servers=(server,))
    return Resolver(
        context.os,
        dns,
        context.clock,
        context.rng,
        context.network.ask,
        context.network.connect,
        tool,
    )


async def server_address(context: ProgramContext, server: str) -> str:
    """The address of a server that is given by name or address. Raises socket.gaierror."""
    return (
        server
        if not server or is_ip_address(server)
        else (await context.network.resolve(server))[0]
    )


def record_type(text: str) -> int | None:
    """The number of a record type by its name; None if there is no such type."""
    upper = text.upper()
    if upper in wire.TYPES:
        return wire.TYPES[upper]
    return int(upper[4:]) if upper.startswith("TYPE") and upper[4:].isdigit() else None


def canonical_name(message: wire.DnsMessage, requested: str) -> str:
    """The name that the addresses belong to, after all aliases."""
    owners = [record.name for record in message.answers if record.type in (wire.A, wire.AAAA)]
    return wire.name_text(owners[0]) if owners else requested


def reverse_text(address: str) -> str:
    return wire.name_text(wire.reverse_name(address))
