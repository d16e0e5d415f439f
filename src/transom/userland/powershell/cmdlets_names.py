"""Resolve-DnsName: Windows' own resolver, with records as objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.kit import dnswire as wire
from transom.kit.ip_addresses import is_ip_address
from transom.network.resolver import ResolverReply
from transom.userland.dns import (
    container_resolver,
    in_hosts_file,
    record_type,
    reverse_text,
    server_address,
)
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.values import PsObject

_BOTH = (wire.A, wire.AAAA)
_IN_HOSTS_FILE_TTL = 86400
_TIMEOUT = (
    "This operation returned because the timeout period expired",
    "OperationTimeout",
    "ERROR_TIMEOUT",
)
_FAILURES = {
    wire.NXDOMAIN: ("DNS name does not exist", "ResourceUnavailable", "DNS_ERROR_RCODE_NAME_ERROR"),
    wire.SERVFAIL: ("DNS server failure", "ResourceUnavailable", "DNS_ERROR_RCODE_SERVER_FAILURE"),
    wire.REFUSED: ("DNS operation refused", "ResourceUnavailable", "DNS_ERROR_RCODE_REFUSED"),
    wire.NOTIMP: (
        "DNS request not supported by name server",
        "ResourceUnavailable",
        "DNS_ERROR_RCODE_NOT_IMPLEMENTED",
    ),
    wire.FORMERR: (
        "DNS server unable to interpret format",
        "ResourceUnavailable",
        "DNS_ERROR_RCODE_FORMAT_ERROR",
    ),
}


async def _resolve_dns(call: CmdletCall) -> None:
    name, context = call.text("Name"), call.process.context
    wanted = call.text("Type", "A_AAAA").upper()
    types = (
        _BOTH
        if wanted in ("A_AAAA", "UNKNOWN")
        else (wire.ANY,)
        if wanted == "ALL"
        else (record_type(wanted) or wire.A,)
    )
    requested = name
    if is_ip_address(name) and types == _BOTH:
        requested, types = reverse_text(name), (wire.PTR,)
    listed = (
        in_hosts_file(name.rstrip(".").lower(), context.os, context.files)
        if types == _BOTH
        and not (call.has("DnsOnly") or call.has("NoHostsFile") or call.has("Server"))
        else []
    )
    if listed:
        for address in listed:
            type = wire.AAAA if ":" in address else wire.A
            _emit(
                call,
                wire.DnsRecord(
                    wire.encode_name(name), type, _IN_HOSTS_FILE_TTL, wire.address_data(address)
                ),
                "Answer",
            )
        return
    try:
        server = await server_address(context, call.text("Server"))
        replies = await container_resolver(context, server).search(requested, *types)
    except ValueError:
        _fail(
            call,
            name,
            "DNS name contains an invalid character",
            "ResourceUnavailable",
            "DNS_ERROR_INVALID_NAME_CHAR",
        )
        return
    except OSError:
        _fail(call, name, *_TIMEOUT)
        return
    _emit_all(call, name, replies)


def _emit_all(call: CmdletCall, name: str, replies: list[ResolverReply]) -> None:
    failed = next((reply.message.rcode for reply in replies if reply.message.rcode), wire.NOERROR)
    # IPv6 first
    found = dict.fromkeys(record for reply in reversed(replies) for record in reply.message.answers)
    if failed and not found:
        _fail(call, name, *_FAILURES.get(failed, _FAILURES[wire.SERVFAIL]))
        return
    for record in found:
        _emit(call, record, "Answer")
    if not found:
        for record in dict.fromkeys(
            record for reply in replies for record in reply.message.authority
        ):
            _emit(call, record, "Authority")
    for record in dict.fromkeys(record for reply in replies for record in reply.message.additional):
        _emit(call, record, "Additional")


def _fail(call: CmdletCall, name: str, text: str, category: str, identity: str) -> None:
    call.fail(
        f"{name} : {text}",
        f"{category}: ({name}:String) [Resolve-DnsName], Win32Exception",
        f"{identity},Microsoft.DnsClient.Commands.ResolveDnsName",
    )


def _emit(call: CmdletCall, record: wire.DnsRecord, section: str) -> None:
    type = wire.TYPE_NAMES.get(record.type, str(record.type))
    kind, properties = _SHAPES.get(record.type, _unknown)(record)
    common = {
        "Name": wire.name_text(record.name),
        "Type": type,
        "TTL": record.ttl,
        "Section": section,
    }
    call.emit(
        PsObject(
            f"Microsoft.DnsClient.Commands.DnsRecord_{kind}",
            {**common, **properties, "QueryType": type},
        )
    )


def _address(record: wire.DnsRecord) -> tuple[str, dict[str, Any]]:
    value = wire.data_text(record)
    return "A", {"IPAddress": value, "IP6Address" if ":" in value else "IP4Address": value}


def _host(record: wire.DnsRecord) -> tuple[str, dict[str, Any]]:
    return "PTR", {"NameHost": wire.data_text(record).rstrip(".")}


def _service(record: wire.DnsRecord) -> tuple[str, dict[str, Any]]:
    priority, weight, port, target = wire.data_text(record).rstrip(".").split()
    return "SRV", {
        "NameTarget": target,
        "Priority": int(priority),
        "Weight": int(weight),
        "Port": int(port),
    }


def _text(record: wire.DnsRecord) -> tuple[str, dict[str, Any]]:
    return "TXT", {
        "Strings": [piece.decode("utf-8", "replace") for piece in wire.txt_strings(record.data)]
    }


def _authority(record: wire.DnsRecord) -> tuple[str, dict[str, Any]]:
    primary, mail, serial, refresh, retry, expire, ttl = wire.data_text(record).split()
    return "SOA", {
        "PrimaryServer": primary.rstrip("."),
        "NameAdministrator": mail.rstrip("."),
        "SerialNumber": int(serial),
        "TimeToZoneRefresh": int(refresh),
        "TimeToZoneFailureRetry": int(retry),
        "TimeToExpiration": int(expire),
        "DefaultTTL": int(ttl),
    }


def _mail(record: wire.DnsRecord) -> tuple[str, dict[str, Any]]:
    preference, target = wire.data_text(record).rstrip(".").split()
    return "MX", {"NameExchange": target, "Preference": int(preference)}


def _unknown(record: wire.DnsRecord) -> tuple[str, dict[str, Any]]:
    return "UNKNOWN", {"Data": wire.data_text(record)}


_SHAPES: dict[int, Callable[[wire.DnsRecord], tuple[str, dict[str, Any]]]] = {
    wire.A: _address,
    wire.AAAA: _address,
    wire.CNAME: _host,
    wire.PTR: _host,
    wire.NS: _host,
    wire.SRV: _service,
    wire.TXT: _text,
    wire.SOA: _authority,
    wire.MX: _mail,
}


def _clear(_call: CmdletCall) -> None:
    """There is no cache to clear."""


CMDLETS = (
    cmdlet_row(
        "Resolve-DnsName",
        _resolve_dns,
        "Name Type",
        "CacheOnly DnsOnly DnssecCd DnssecOk LlmnrFallback LlmnrNetbiosOnly LlmnrOnly "
        "NetbiosFallback NoHostsFile NoIdn "
        "NoRecursion QuickTimeout TcpOnly",
        "Server",
    ),
    cmdlet_row("Clear-DnsClientCache", _clear),
)
