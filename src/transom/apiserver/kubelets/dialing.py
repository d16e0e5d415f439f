"""Where this server may connect on behalf of a client: global unicast addresses, but not its own
machine.

Nodes and pods report their addresses in their status, so a user who may write a status chooses
where the API server connects. A host is resolved once; all its addresses are checked, and only
checked addresses are dialed. Addresses of the cluster network are treated like any others: the
network uses its configured ranges, not the content of objects.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

from transom.kit.lazy import lazy_pattern
from transom.machinery.validation.names import IPAddress, parse_ip

Resolve = Callable[[str], Awaitable[list[str]]]
"""Resolves a host name to addresses; raises socket.gaierror."""

NOT_ALLOWED = "address not allowed"
_HOST_NAME = lazy_pattern(r"[0-9A-Za-z._-]{1,253}")
_BROADCAST = ipaddress.IPv4Address("255.255.255.255")


class AddressNotAllowed(Exception):
    """The address belongs to the API server's machine, or is link-local."""

    def __init__(self) -> None:
        super().__init__(NOT_ALLOWED)


def is_global_unicast(address: IPAddress) -> bool:
    """Go's IP.IsGlobalUnicast: includes private ranges."""
    return not (
        address == _BROADCAST
        or address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    )


def check_dial_address(address: IPAddress | None) -> IPAddress:
    if address is None or not is_global_unicast(address):
        raise AddressNotAllowed
    return address


async def checked_addresses(host: str, resolve: Resolve | None = None) -> tuple[IPAddress, ...]:
    """The addresses of a host, all of them allowed; raises AddressNotAllowed or socket.gaierror."""
    literal = parse_ip(host)
    if literal is not None:
        return (check_dial_address(literal),)
    if not _HOST_NAME.fullmatch(host):  # some resolvers ignore text after an address and a space
        raise socket.gaierror(socket.EAI_NONAME, "no such host")
    found = await (resolve or resolve_dial_host)(host)
    if not found:
        raise socket.gaierror(socket.EAI_NONAME, "no addresses for hostname")
    return tuple(dict.fromkeys(check_dial_address(parse_ip(text)) for text in found))


async def resolve_dial_host(host: str) -> list[str]:
    """This machine's resolver. It accepts more address notations than `parse_ip`, so its results
    are checked.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as problem:  # not a valid DNS name
        raise socket.gaierror(socket.EAI_NONAME, str(problem)) from problem
    return [str(entry[4][0]) for entry in found]
