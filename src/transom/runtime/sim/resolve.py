"""Name resolution in simulated containers: connections by name, and a name server that answers from
a table.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence

from transom.kit import dnswire as wire
from transom.kit.ip_addresses import is_ip_address
from transom.network.api import DnsConfig
from transom.network.resolver import Ask
from transom.runtime.sim.sockets import NetworkNamespace, is_loopback_address

Lookup = Callable[[str, DnsConfig], Awaitable[Sequence[str]]]
"""From a fully qualified name to its addresses; none when the name does not exist."""

_LOOPBACK = "127.0.0.1"


async def connect_by_name(
    namespace: NetworkNamespace,
    host: str,
    port: int,
    addresses: Callable[[str], Awaitable[Sequence[str]]],
    pid: int = 0,
) -> socket.socket:
    """Connects to an address, or to the first address of a name that answers. Raises OSError."""
    if is_ip_address(host) or is_loopback_address(host):
        return await namespace.connect(host if is_ip_address(host) else _LOOPBACK, port, pid)
    failure: OSError | None = None
    for address in await addresses(host):
        try:
            return await namespace.connect(address, port, pid)
        except OSError as error:
            failure = error
    raise failure or socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def answering_address(lookup: Lookup, dns: DnsConfig) -> Ask:
    """A name server, at any address, that answers from a table."""

    async def ask(_server: str, _port: int, payload: bytes) -> bytes:
        message = wire.parse_dns_message(payload)
        requested = message.question
        assert requested is not None, "resolvers ask"
        found = (
            await lookup(wire.name_text(requested.name), dns)
            if requested.type in (wire.A, wire.AAAA)
            else ()
        )
        answers = [
            wire.DnsRecord(requested.name, requested.type, 30, wire.address_data(address))
            for address in found
            if requested.type == (wire.AAAA if ":" in address else wire.A)
        ]
        packed = wire.PackedMessage(
            requested.name, wire.AA | (wire.NOERROR if found else wire.NXDOMAIN), answers
        )
        return packed.message(
            message.id, requested.name + requested.type.to_bytes(2) + b"\0\1", message.flags, 65535
        )

    return ask
