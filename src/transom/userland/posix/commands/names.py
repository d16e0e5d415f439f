"""nslookup, host, dig and getent, as in Linux images."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence

from transom.kit import dnswire as wire
from transom.kit.ip_addresses import is_ip_address
from transom.network.resolver import (
    ResolverReply,
    address_families,
    addresses_in,
    preferred_addresses,
)
from transom.userland.dns import (
    canonical_name,
    container_resolver,
    in_hosts_file,
    record_type,
    reverse_text,
    server_address,
)
from transom.userland.process import Command, Process

_NO_SERVERS = ";; connection timed out; no servers could be reached\n"
# nslookup was rewritten after that version
_OLD_BUSYBOX = re.compile(r"busybox:1\.(1\d|2[0-8])(\.|$|-)")
_ADDRESSES = (wire.A, wire.AAAA)


# ---- nslookup ----


async def linux_nslookup(process: Process) -> int:
    wanted, names = _nslookup_arguments(process)
    if not names:
        return process.fail("missing operand")
    context = process.context
    try:
        given = await server_address(context, names[1] if len(names) > 1 else "")
    except socket.gaierror:
        process.write(f"nslookup: couldn't get address for '{names[1]}': not found\n")
        return 1
    asking = container_resolver(context, given, "nslookup")
    server = asking.dns.servers[0] if asking.dns.servers else "127.0.0.1"
    if _OLD_BUSYBOX.search(context.image.name):
        return await _old_nslookup(process, names[0], server, given)
    shown = f"Server:\t\t{server}\nAddress:\t{server}{'#53' if process.gnu else ':53'}\n\n"
    name = names[0]
    types = wanted or _ADDRESSES
    if is_ip_address(name) and not wanted:
        name, types = reverse_text(name) + ".", (wire.PTR,)
    try:
        replies = await asking.search(name, *types)
    except ValueError:
        process.write(f"nslookup: '{name}' is not a legal name\n")
        return 1
    except OSError:
        process.write(("" if process.gnu else shown) + _NO_SERVERS + "\n")
        return 1
    process.write(shown + _nslookup_answer(replies))
    return int(not any(reply.message.answers for reply in replies))


def _nslookup_arguments(process: Process) -> tuple[tuple[int, ...], list[str]]:
    wanted: tuple[int, ...] = ()
    names = []
    for argument in process.argv[1:]:
        key, equals, value = argument.partition("=")
        if equals and key.lstrip("-").lower() in ("type", "querytype", "query", "q", "ty"):
            number = record_type(value)
            wanted = (number,) if number is not None else wanted
        elif not argument.startswith("-"):
            names.append(argument)
    return wanted, names


def _nslookup_answer(replies: Sequence[ResolverReply]) -> str:
    found = [record for reply in replies for record in reply.message.answers]
    last = replies[-1]
    if not found:
        if last.message.rcode == wire.NOERROR:
            return f"*** Can't find {last.name}: No answer\n\n"
        return f"** server can't find {last.name}: {_rcode(last.message)}\n\n"
    authoritative = all(reply.message.flags & wire.AA for reply in replies)
    lines = [] if authoritative else ["Non-authoritative answer:"]
    return "\n".join([*lines, *dict.fromkeys(map(_nslookup_line, found))]) + "\n\n"


_NSLOOKUP_WORDS = {
    wire.CNAME: "canonical name",
    wire.PTR: "name",
    wire.SRV: "service",
    wire.TXT: "text",
    wire.NS: "nameserver",
    wire.MX: "mail exchanger",
}


def _nslookup_line(record: wire.DnsRecord) -> str:
    owner, data = wire.name_text(record.name), wire.data_text(record)
    if record.type in _ADDRESSES:
        return f"Name:\t{owner}\nAddress: {data}"
    if record.type == wire.SOA:
        origin, mail, *numbers = data.split()
        words = ("serial", "refresh", "retry", "expire", "minimum")
        values = "".join(
            f"\n\t{word} = {number}" for word, number in zip(words, numbers, strict=True)
        )
        return f"{owner}\n\torigin = {origin.rstrip('.')}\n\tmail addr = {mail.rstrip('.')}{values}"
    return f"{owner}\t{_NSLOOKUP_WORDS.get(record.type, f'rdata_{record.type}')} = {data}"


async def _old_nslookup(process: Process, name: str, server: str, given: str) -> int:
    """nslookup of busybox up to 1.28: it uses the C library, and looks up the name of each address."""
    process.write(
        f"Server:    {server}\nAddress 1: {server}{await _name_of(process, server, given)}\n\n"
    )
    context = process.context
    try:
        if given and not is_ip_address(name):
            found = await container_resolver(context, given).addresses(
                name, address_families(context.network.ips)
            )
        else:
            found = await context.network.resolve(name)
    except socket.gaierror:
        process.complain(f"nslookup: can't resolve '{name}'")
        return 1
    rows = [
        f"Address {i}: {a}{await _name_of(process, a, given)}\n" for i, a in enumerate(found, 1)
    ]
    process.write(f"Name:      {name}\n" + "".join(rows))
    return 0


async def _name_of(process: Process, address: str, server: str) -> str:
    try:
        reply = await container_resolver(process.context, server).query(
            reverse_text(address), wire.PTR
        )
    except OSError:
        return ""
    return next(
        (f" {wire.data_text(r).rstrip('.')}" for r in reply.message.answers if r.type == wire.PTR),
        "",
    )


def _rcode(message: wire.DnsMessage) -> str:
    return wire.RCODES.get(message.rcode, f"RESERVED{message.rcode}")


# ---- host ----

_HOST_WORDS = {
    wire.A: "has address",
    wire.AAAA: "has IPv6 address",
    wire.CNAME: "is an alias for",
    wire.PTR: "domain name pointer",
    wire.SRV: "has SRV record",
    wire.TXT: "descriptive text",
    wire.NS: "name server",
    wire.MX: "mail is handled by",
    wire.SOA: "has SOA record",
}


async def host(process: Process) -> int:
    arguments = process.argv[1:]
    types: tuple[int, ...] = (wire.A, wire.AAAA, wire.MX)
    names = []
    while arguments:
        argument, *arguments = arguments
        if argument in ("-t", "-W", "-R", "-N") and arguments:
            value, *arguments = arguments
            if argument == "-t":
                types = (record_type(value) or wire.A,)
        elif not argument.startswith("-"):
            names.append(argument)
    if not names:
        return process.fail("missing operand")
    name = names[0]
    if is_ip_address(name):
        name, types = reverse_text(name) + ".", (wire.PTR,)
    try:
        server = await server_address(process.context, "".join(names[1:2]))
        replies = await container_resolver(process.context, server).search(name, *types)
    except (OSError, ValueError):
        process.write(_NO_SERVERS)
        return 1
    found = dict.fromkeys(record for reply in replies for record in reply.message.answers)
    for record in found:
        word = _HOST_WORDS.get(record.type, f"has TYPE{record.type} record")
        data = wire.data_text(record)
        process.write(f"{wire.name_text(record.name)} {word} {data}\n")
    if found:
        return 0
    last = replies[0]
    if last.message.rcode == wire.NOERROR:
        process.write(f"{last.name} has no {wire.TYPE_NAMES.get(types[0], 'such')} record\n")
        return int(len(types) == 1)
    process.write(f"Host {names[0]} not found: {last.message.rcode}({_rcode(last.message)})\n")
    return 1


# ---- dig ----


class _Dig:
    """The options of dig's command line."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.name = ""
        self.type = wire.A
        self.server = ""
        self.flags = {"question", "answer", "authority", "additional", "comments", "cmd", "stats"}
        self.short = self.search = False
        rest = list(arguments)
        words = []
        while rest:
            argument = rest.pop(0)
            if argument.startswith("+"):
                self._switch(argument[1:])
            elif argument.startswith("@"):
                self.server = argument[1:]
            elif argument in ("-t", "-x", "-q", "-p", "-c", "-b") and rest:
                self._option(argument, rest.pop(0))
            elif argument in ("-4", "-6") or argument.upper() in ("IN", "CH"):
                continue
            else:
                words.append(argument)
        for word in words:
            number = record_type(word)
            if number is not None and (len(words) > 1 or self.name):
                self.type = number
            else:
                self.name = word

    def _option(self, option: str, value: str) -> None:
        if option == "-t":
            self.type = record_type(value) or wire.A
        elif option == "-q":
            self.name = value
        elif option == "-x" and is_ip_address(value):
            self.name, self.type = reverse_text(value) + ".", wire.PTR

    def _switch(self, word: str) -> None:
        off = word.startswith("no")
        key = word.removeprefix("no")
        if key == "short":
            self.short = not off
        elif key == "search":
            self.search = not off
        elif key == "all":
            self.flags = (
                set()
                if off
                else {"question", "answer", "authority", "additional", "comments", "stats"}
            )
        elif off:
            self.flags.discard(key)
        else:
            self.flags.add(key)


async def dig(process: Process) -> int:
    requested = _Dig(process.argv[1:])
    name = requested.name or "."
    context = process.context
    try:
        asking = container_resolver(context, await server_address(context, requested.server))
    except socket.gaierror:
        process.complain(f"dig: couldn't get address for '{requested.server}': not found")
        return 10
    banner = f"\n; <<>> DiG 9.14.8 <<>> {' '.join(process.argv[1:])}\n"
    banner = (
        banner + ";; global options: +cmd\n"
        if "cmd" in requested.flags and not requested.short
        else ""
    )
    try:
        reply = (
            (await asking.search(name, requested.type))[0]
            if requested.search
            else await asking.query(name.rstrip("."), requested.type)
        )
    except ValueError:
        process.complain(f"dig: '{name}' is not a legal name (empty label)")
        return 10
    except OSError:
        process.write(banner + _NO_SERVERS)
        return 9
    if requested.short:
        process.write("".join(wire.data_text(record) + "\n" for record in reply.message.answers))
        return 0
    process.write(banner + _dig_text(reply, requested))
    return 0


def _dig_text(reply: ResolverReply, requested: _Dig) -> str:
    message, shown = reply.message, requested.flags
    comments = "comments" in shown
    words = [word for word, bit in _DIG_FLAGS if message.flags & bit]
    counts = [
        len(message.answers),
        len(message.authority),
        len(message.additional) + bool(message.edns),
    ]
    lines = []
    if comments:
        lines += [
            ";; Got answer:",
            f";; ->>HEADER<<- opcode: QUERY, status: {_rcode(message)}, id: {message.id}",
            (
                f";; flags: {' '.join(words)}; QUERY: 1, ANSWER: {counts[0]}, AUTHORITY: "
                f"{counts[1]}, ADDITIONAL: {counts[2]}"
            ),
            *(
                []
                if message.flags & wire.RA
                else [";; WARNING: recursion requested but not available"]
            ),
            "",
        ]
    if "question" in shown and message.question is not None:
        head = [";; QUESTION SECTION:"] if comments else []
        owner = _dotted(message.question.name)
        lines += [
            *head,
            ";" + _columns((owner, 0), ("IN", 32), (_type(message.question.type), 40)),
            "",
        ]
    sections = (
        ("answer", message.answers),
        ("authority", message.authority),
        ("additional", message.additional),
    )
    for section, records in sections:
        if section in shown and records:
            lines += [f";; {section.upper()} SECTION:"] if comments else []
            lines += [
                _columns(
                    (_dotted(r.name), 0),
                    (str(r.ttl), 24),
                    ("IN", 32),
                    (_type(r.type), 40),
                    (wire.data_text(r), 48),
                )
                for r in records
            ]
            lines += [""] if comments else []
    if "stats" in shown:
        lines += [";; Query time: 0 msec", f";; SERVER: {reply.server}#53({reply.server})", ""]
    return "".join(line + "\n" for line in lines)


_DIG_FLAGS = (
    ("qr", wire.QR),
    ("aa", wire.AA),
    ("tc", wire.TC),
    ("rd", wire.RD),
    ("ra", wire.RA),
    ("ad", wire.AD),
    ("cd", wire.CD),
)


def _dotted(name: bytes) -> str:
    return wire.name_text(name).rstrip(".") + "."


def _type(number: int) -> str:
    return wire.TYPE_NAMES.get(number, f"TYPE{number}")


def _columns(*cells: tuple[str, int]) -> str:
    """Places each text at its column if that is still free, with tabs of eight."""
    line, column = "", 0
    for text, wanted in cells:
        if line:
            target = max(wanted, column + 1)
            tabs = target // 8 - column // 8
            line += "\t" * tabs + " " * (target % 8 if tabs else target - column)
            column = target
        line += text
        column += len(text)
    return line


# ---- getent ----


async def getent(process: Process) -> int:
    if len(process.argv) < 2:
        return process.fail("wrong number of arguments")
    database, keys = process.argv[1], process.argv[2:]
    show = _GETENT_HOSTS.get(database)
    if show is None:
        return _getent_file(process, database, keys)
    if not keys:
        process.write("".join(_hosts_rows(process)))
        return 0
    missing = 0
    for key in keys:
        found = await _hosts(process, key, database)
        missing |= not found
        process.write(show(found, key))
    return 2 if missing else 0


def _getent_file(process: Process, database: str, keys: Sequence[str]) -> int:
    path = f"/etc/{database}"
    if not process.files.exists(path):
        process.complain(
            f"Unknown database: {database}\nTry `getent --help' or `getent --usage' for more "
            "information."
        )
        return 1
    rows = process.files.text(path).splitlines()
    if not keys:
        process.write("".join(row + "\n" for row in rows))
        return 0
    missing = 0
    for key in keys:
        found = next(
            (row for row in rows if key in (row.split(":")[0], *row.split(":")[2:3])), None
        )
        missing |= found is None
        process.write(f"{found}\n" if found is not None else "")
    return 2 if missing else 0


def _hosts_rows(process: Process) -> list[str]:
    lines = (
        process.files.text("/etc/hosts").splitlines() if process.files.exists("/etc/hosts") else []
    )
    rows = [line.partition("#")[0].split() for line in lines]
    return [f"{row[0]:<15} {' '.join(row[1:])}\n" for row in rows if len(row) > 1]


async def _hosts(process: Process, key: str, database: str) -> list[tuple[str, str]]:
    """Addresses with their canonical name."""
    context = process.context
    if is_ip_address(key) and database == "hosts":
        for row in _hosts_rows(process):
            if row.split()[0] == key:
                return [(key, row.split(maxsplit=1)[1].rstrip("\n"))]
        return [(key, name.strip()) for name in [await _name_of(process, key, "")] if name]
    listed = in_hosts_file(key.rstrip(".").lower(), context.os, context.files)
    if (
        listed
        or is_ip_address(key)
        or key.lower() in ("localhost", context.network.hostname.lower())
    ):
        try:
            return [(address, key) for address in listed or await context.network.resolve(key)]
        except socket.gaierror:
            return []
    types = _GETENT_TYPES.get(database) or address_families(context.network.ips)
    try:
        replies = await container_resolver(context).search(key, *types)
    except (OSError, ValueError):
        return []
    names = {
        address: canonical_name(reply.message, key)
        for reply in replies
        for address in addresses_in(reply.message)
    }
    return [(address, names[address]) for address in preferred_addresses(list(names))]


def _show_hosts(found: Sequence[tuple[str, str]], _key: str) -> str:
    return "".join(f"{address:<15} {name}\n" for address, name in found)


def _show_ahosts(found: Sequence[tuple[str, str]], _key: str) -> str:
    named = found[0][1] if found else ""
    rows = [
        f"{address:<15} {kind:<6} " for address, _ in found for kind in ("STREAM", "DGRAM", "RAW")
    ]
    return "".join(row + (named if i == 0 else "") + "\n" for i, row in enumerate(rows))


_GETENT_HOSTS: dict[str, Callable[[Sequence[tuple[str, str]], str], str]] = {
    "hosts": _show_hosts,
    "ahosts": _show_ahosts,
    "ahostsv4": _show_ahosts,
    "ahostsv6": _show_ahosts,
}
_GETENT_TYPES = {"ahostsv4": (wire.A,), "ahostsv6": (wire.AAAA,)}


COMMANDS: dict[str, Command] = {
    "dig": dig,
    "getent": getent,
    "host": host,
    "nslookup": linux_nslookup,
}
