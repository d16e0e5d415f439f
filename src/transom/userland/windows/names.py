"""nslookup of Windows: its own resolver, which adds the suffix to every name."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from transom.kit import dnswire as wire
from transom.kit.ip_addresses import is_ip_address
from transom.network.resolver import Resolver, ResolverReply
from transom.userland.dns import (
    canonical_name,
    container_resolver,
    record_type,
    reverse_text,
    server_address,
)
from transom.userland.process import Command, Process

_FAILURES = {
    wire.NXDOMAIN: "Non-existent domain",
    wire.SERVFAIL: "Server failed",
    wire.REFUSED: "Query refused",
    wire.FORMERR: "Format error",
    wire.NOTIMP: "Not implemented",
}
_WANTED = {
    wire.A: "Internet address (A)",
    wire.AAAA: "IPv6 address (AAAA)",
    wire.CNAME: "Canonical name (CNAME)",
    wire.SRV: "Service location (SRV)",
    wire.TXT: "Text (TXT)",
    wire.PTR: "Pointer (PTR)",
    wire.NS: "Name server (NS)",
    wire.MX: "Mail exchanger (MX)",
    wire.SOA: "Start of authority (SOA)",
}
_TIMED_OUT = "DNS request timed out.\r\n    timeout was 2 seconds."


async def windows_nslookup(process: Process) -> int:
    """The exit code is always 0, as with the real one."""
    wanted: tuple[int, ...] = ()
    names = []
    for argument in process.argv[1:]:
        key, equals, value = argument.partition("=")
        if (
            equals
            and key[:1] in "-/"
            and key[1:].lower() in ("type", "querytype", "query", "q", "ty")
        ):
            number = record_type(value)
            wanted = (number,) if number is not None else wanted
        elif argument != "-" and not argument.startswith("-"):
            names.append(argument)
    if not names:
        return 0
    context = process.context
    try:
        given = await server_address(context, names[1] if len(names) > 1 else "")
    except socket.gaierror:
        process.complain(f"*** Can't find address for server {names[1]}: Non-existent domain")
        given = ""
    asking = container_resolver(context, given, "nslookup")
    if not asking.dns.servers:
        process.print_line("*** Default servers are not available")
        return 1
    server = await _default_server(process, asking)
    name, types = names[0], wanted or (wire.A, wire.AAAA)
    if is_ip_address(name) and not wanted:
        name, types = reverse_text(name) + ".", (wire.PTR,)
    try:
        replies = await asking.search(name, *types)
    except ValueError:
        process.complain(f"*** {server} can't find {names[0]}: Unspecified error")
        return 0
    except OSError:
        process.print_line(_TIMED_OUT)
        process.complain(f"*** Request to {server} timed-out")
        return 0
    if not any(reply.message.answers for reply in replies):
        process.complain(_failure(server, names[0], types, replies))
        return 0
    if not all(reply.message.flags & wire.AA for reply in replies):
        process.complain("Non-authoritative answer:")
    process.print_line(_answer(names[0], types, replies))
    process.print_line()
    return 0


async def _default_server(process: Process, asking: Resolver) -> str:
    """Prints the server's name and address."""
    address = asking.dns.servers[0]
    server = "UnKnown"
    try:
        reply = await asking.query(reverse_text(address), wire.PTR)
        server = next(
            (wire.data_text(r).rstrip(".") for r in reply.message.answers if r.type == wire.PTR),
            server,
        )
    except OSError:
        process.print_line(_TIMED_OUT)
    process.print_line(f"Server:  {server}")
    process.print_line(f"Address:  {address}")
    process.print_line()
    return server


def _failure(server: str, name: str, types: Sequence[int], replies: Sequence[ResolverReply]) -> str:
    rcode = replies[0].message.rcode
    if rcode != wire.NOERROR:
        return f"*** {server} can't find {name}: {_FAILURES.get(rcode, 'Unspecified error')}"
    wanted = _WANTED.get(types[0], f"type {types[0]}")
    return (
        "*** No "
        f"{wanted if len(types) == 1 else 'internal type for both IPv4 and IPv6 Addresses (A+AAAA)'} "
        "records "
        f"available for {name}"
    )


def _answer(requested: str, types: Sequence[int], replies: Sequence[ResolverReply]) -> str:
    records = list(dict.fromkeys(record for reply in replies for record in reply.message.answers))
    addresses = [wire.data_text(record) for record in records if record.type in (wire.A, wire.AAAA)]
    if addresses and types[0] in (wire.A, wire.AAAA):
        found = next(reply for reply in replies if reply.message.answers)
        lines = [f"Name:    {canonical_name(found.message, found.name)}"]
        lines.append(
            f"{'Addresses' if len(addresses) > 1 else 'Address'}:  "
            + "\r\n          ".join(addresses)
        )
        aliases = [wire.name_text(record.name) for record in records if record.type == wire.CNAME]
        if aliases:
            lines.append("Aliases:  " + "\r\n          ".join(aliases))
        return "\r\n".join(lines)
    if is_ip_address(requested) and types[0] == wire.PTR:
        return f"Name:    {wire.data_text(records[0]).rstrip('.')}\r\nAddress:  {requested}"
    more = [record for reply in replies for record in reply.message.additional]
    return "\r\n".join([*map(_record, records), *map(_record, more)])


def _record(record: wire.DnsRecord) -> str:
    owner, data = wire.name_text(record.name), wire.data_text(record)
    match record.type:
        case wire.SRV:
            words = ("priority", "weight", "port", "svr hostname")
            values = data.rstrip(".").split()
            rows = [
                f"          {word:<14} = {value}" for word, value in zip(words, values, strict=True)
            ]
            return "\r\n".join([f"{owner}\tSRV service location:", *rows])
        case wire.TXT:
            return f"{owner}\ttext =\r\n\r\n\t{data}"
        case wire.A:
            return f"{owner}\tinternet address = {data}"
        case wire.AAAA:
            return f"{owner}\tAAAA IPv6 address = {data}"
        case wire.CNAME:
            return f"{owner}\tcanonical name = {data.rstrip('.')}"
        case wire.PTR:
            return f"{owner}\tname = {data.rstrip('.')}"
        case wire.NS:
            return f"{owner}\tnameserver = {data.rstrip('.')}"
        case wire.SOA:
            primary, mail, *numbers = data.split()
            first = (
                ("primary name server", primary.rstrip(".")),
                ("responsible mail addr", mail.rstrip(".")),
            )
            rest = zip(
                ("serial ", "refresh", "retry  ", "expire ", "default TTL"), numbers, strict=True
            )
            return "\r\n".join(
                [owner, *(f"        {word} = {value}" for word, value in (*first, *rest))]
            )
    return f"{owner}\t??? unknown type {record.type} ???"


COMMANDS: dict[str, Command] = {"nslookup": windows_nslookup}
