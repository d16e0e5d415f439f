"""Connections that the kernel still forwards to removed backends.

UDP connections have no end: a client that keeps sending is forwarded like its first datagram. So
when a forwarding rule is removed, its connection tracking entries are deleted too. TCP connections
are left alone, as on real nodes.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator

from transom.network import nft

Target = tuple[str, int]
_NETFILTER, _GET, _DELETE = 12, 1 << 8 | 1, 1 << 8 | 2
_REQUEST, _DUMP, _DONE = 0x1, 0x300, 3
_ORIGINAL, _REPLY, _ADDRESSES, _TRANSPORT = 1, 2, 1, 2


def lost_targets(old: nft.NftTable | None, new: nft.NftTable | None) -> set[Target]:
    """Destinations of the old table's rules that no changed rule of the new one has."""
    if old is None:
        return set()
    chains = new.chains if new is not None else {}
    changed = [
        name
        for name, chain in old.chains.items()
        if name not in chains or chains[name].rules != chain.rules
    ]
    before = {target for name in changed for target in _targets(old.chains[name])}
    if not before:
        return before
    fresh = [
        chain
        for name, chain in chains.items()
        if name not in old.chains or old.chains[name].rules != chain.rules
    ]
    return before - {target for chain in fresh for target in _targets(chain)}


def _targets(chain: nft.NftChain) -> Iterator[Target]:
    for rule in chain.rules:
        for statement in rule.statements:
            if isinstance(statement, nft.Dnat):
                yield statement.address, statement.port


def forget_connections(targets: set[Target]) -> int:
    """Deletes connections in the namespace of the calling thread; returns their number."""
    done = 0
    for family in {socket.AF_INET6 if ":" in address else socket.AF_INET for address, _ in targets}:
        with socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETFILTER
        ) as link:
            link.settimeout(10)
            for tuple_ in list(_led_to(link, family, targets)):
                body = struct.pack("=BBH", family, 0, 0) + tuple_
                link.send(struct.pack("=IHHII", 16 + len(body), _DELETE, _REQUEST, 0, 0) + body)
                done += 1
    return done


def _led_to(link: socket.socket, family: int, targets: set[Target]) -> Iterator[bytes]:
    """The attribute that identifies each connection."""
    link.send(struct.pack("=IHHIIBBH", 20, _GET, _REQUEST | _DUMP, 0, 0, family, 0, 0))
    while True:
        answer = link.recv(1 << 16)
        at = 0
        while at < len(answer):
            length, kind = struct.unpack_from("=IH", answer, at)
            if kind == _DONE or kind < 16:
                return
            found = dict(_attributes(answer[at + 20 : at + length]))
            protocol, source, port = _first_end(found[_REPLY])
            _, _, original = _first_end(found[_ORIGINAL])
            if (
                protocol == socket.IPPROTO_UDP
                and original
                and ((source, port) in targets or (source, 0) in targets)
            ):
                value = found[_ORIGINAL]
                yield (
                    struct.pack("=HH", len(value) + 4, _ORIGINAL | 0x8000)
                    + value
                    + b"\0" * (-len(value) % 4)
                )
            at += (length + 3) & ~3


def _first_end(tuple_: bytes) -> tuple[int, str, int]:
    """Protocol, source address and port of one direction."""
    parts = dict(_attributes(tuple_))
    addresses, transport = (
        dict(_attributes(parts[_ADDRESSES])),
        dict(_attributes(parts[_TRANSPORT])),
    )
    source = addresses.get(1) or addresses.get(3) or b"\0\0\0\0"
    port = struct.unpack("!H", transport[2])[0] if 2 in transport else 0
    return transport[1][0], str(ipaddress.ip_address(source)), port


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return
        yield kind & 0x3FFF, data[at + 4 : at + length]
        at += (length + 3) & ~3
