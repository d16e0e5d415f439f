"""Resolve-DnsName: the resolver of Windows itself, with its records as objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.kit import dnswire as wire
from transom.network.resolver import Reply, is_address
from transom.runtime.sim.programs.names import resolver, reverse_text, server_address, type_of
from transom.runtime.sim.programs.powershell.cmdlets import Call, row
from transom.runtime.sim.programs.powershell.values import PsObject
from transom.runtime.sim.resolve import in_hosts_file

_BOTH = (wire.A, wire.AAAA)
_IN_HOSTS_FILE_TTL = 86400
_TIMEOUT = ("This operation returned because the timeout period expired", "OperationTimeout", "ERROR_TIMEOUT")
_FAILURES = {
    wire.NXDOMAIN: ("DNS name does not exist", "ResourceUnavailable", "DNS_ERROR_RCODE_NAME_ERROR"),
    wire.SERVFAIL: ("DNS server failure", "ResourceUnavailable", "DNS_ERROR_RCODE_SERVER_FAILURE"),
    wire.REFUSED: ("DNS operation refused", "ResourceUnavailable", "DNS_ERROR_RCODE_REFUSED"),
    wire.NOTIMP: ("DNS request not supported by name server", "ResourceUnavailable", "DNS_ERROR_RCODE_NOT_IMPLEMENTED"),
    wire.FORMERR: ("DNS server unable to interpret format", "ResourceUnavailable", "DNS_ERROR_RCODE_FORMAT_ERROR"),
}


async def _resolve_dns(call: Call) -> None:
    name, context = call.text("Name"), call.process.context
    wanted = call.text("Type", "A_AAAA").upper()
    types = _BOTH if wanted in ("A_AAAA", "UNKNOWN") else (wire.ANY,) if wanted == "ALL" else (type_of(wanted) or wire.A,)
    asked = name
    if is_address(name) and types == _BOTH:
        asked, types = reverse_text(name), (wire.PTR,)
    listed = (
        in_hosts_file(name.rstrip(".").lower(), context.os, context.files)
        if types == _BOTH and not (call.has("DnsOnly") or call.has("NoHostsFile") or call.has("Server")) else []
    )  # fmt: skip
    if listed:
        for address in listed:
            type = wire.AAAA if ":" in address else wire.A
            _emit(call, wire.Record(wire.name(name), type, _IN_HOSTS_FILE_TTL, wire.address(address)), "Answer")
        return
    try:
        server = await server_address(context, call.text("Server"))
        replies = await resolver(context, server).search(asked, *types)
    except ValueError:
        _fail(call, name, "DNS name contains an invalid character", "ResourceUnavailable", "DNS_ERROR_INVALID_NAME_CHAR")
        return
    except OSError:
        _fail(call, name, *_TIMEOUT)
        return
    _emit_all(call, name, replies)


def _emit_all(call: Call, name: str, replies: list[Reply]) -> None:
    failed = next((reply.message.rcode for reply in replies if reply.message.rcode), wire.NOERROR)
    found = dict.fromkeys(record for reply in reversed(replies) for record in reply.message.answers)  # IPv6 first
    if failed and not found:
        _fail(call, name, *_FAILURES.get(failed, _FAILURES[wire.SERVFAIL]))
        return
    for record in found:
        _emit(call, record, "Answer")
    if not found:
        for record in dict.fromkeys(record for reply in replies for record in reply.message.authority):
            _emit(call, record, "Authority")
    for record in dict.fromkeys(record for reply in replies for record in reply.message.additional):
        _emit(call, record, "Additional")


def _fail(call: Call, name: str, text: str, category: str, identity: str) -> None:
    call.fail(
        f"{name} : {text}", f"{category}: ({name}:String) [Resolve-DnsName], Win32Exception",
        f"{identity},Microsoft.DnsClient.Commands.ResolveDnsName",
    )  # fmt: skip


def _emit(call: Call, record: wire.Record, section: str) -> None:
    type = wire.TYPE_NAMES.get(record.type, str(record.type))
    kind, properties = _SHAPES.get(record.type, _unknown)(record)
    common = {"Name": wire.text(record.name), "Type": type, "TTL": record.ttl, "Section": section}
    call.emit(PsObject(f"Microsoft.DnsClient.Commands.DnsRecord_{kind}", {**common, **properties, "QueryType": type}))


def _address(record: wire.Record) -> tuple[str, dict[str, Any]]:
    value = wire.data_text(record)
    return "A", {"IPAddress": value, "IP6Address" if ":" in value else "IP4Address": value}


def _host(record: wire.Record) -> tuple[str, dict[str, Any]]:
    return "PTR", {"NameHost": wire.data_text(record).rstrip(".")}


def _service(record: wire.Record) -> tuple[str, dict[str, Any]]:
    priority, weight, port, target = wire.data_text(record).rstrip(".").split()
    return "SRV", {"NameTarget": target, "Priority": int(priority), "Weight": int(weight), "Port": int(port)}


def _text(record: wire.Record) -> tuple[str, dict[str, Any]]:
    return "TXT", {"Strings": [piece.decode("utf-8", "replace") for piece in wire.strings(record.data)]}


def _authority(record: wire.Record) -> tuple[str, dict[str, Any]]:
    primary, mail, serial, refresh, retry, expire, ttl = wire.data_text(record).split()
    return "SOA", {
        "PrimaryServer": primary.rstrip("."), "NameAdministrator": mail.rstrip("."), "SerialNumber": int(serial),
        "TimeToZoneRefresh": int(refresh), "TimeToZoneFailureRetry": int(retry), "TimeToExpiration": int(expire),
        "DefaultTTL": int(ttl),
    }  # fmt: skip


def _mail(record: wire.Record) -> tuple[str, dict[str, Any]]:
    preference, target = wire.data_text(record).rstrip(".").split()
    return "MX", {"NameExchange": target, "Preference": int(preference)}


def _unknown(record: wire.Record) -> tuple[str, dict[str, Any]]:
    return "UNKNOWN", {"Data": wire.data_text(record)}


_SHAPES: dict[int, Callable[[wire.Record], tuple[str, dict[str, Any]]]] = {
    wire.A: _address, wire.AAAA: _address, wire.CNAME: _host, wire.PTR: _host, wire.NS: _host, wire.SRV: _service,
    wire.TXT: _text, wire.SOA: _authority, wire.MX: _mail,
}  # fmt: skip


def _clear(_call: Call) -> None:
    """Nothing is kept that could be thrown away."""


CMDLETS = (
    row(
        "Resolve-DnsName", _resolve_dns, "Name Type",
        "CacheOnly DnsOnly DnssecCd DnssecOk LlmnrFallback LlmnrNetbiosOnly LlmnrOnly NetbiosFallback NoHostsFile NoIdn "
        "NoRecursion QuickTimeout TcpOnly",
        "Server",
    ),
    row("Clear-DnsClientCache", _clear),
)  # fmt: skip
