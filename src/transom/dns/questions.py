"""Answers queries from the zone's records, by the specification and, where that leaves a choice,
like CoreDNS' kubernetes plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple, Protocol

from transom.dns.records import NO_PORT, DnsEndpoint, DnsPort, DnsService, LookupResult
from transom.kit import dnswire as wire
from transom.kit.dnswire import DnsRecord

SCHEMA_VERSION: Final = "1.1.0"
_SCHEMA_TTL = 28800
_LONGEST_CHAIN = 7  # the maximum length of a CNAME chain


class _Entry(NamedTuple):
    """The target of a name."""

    address: str  # or, if `external` is set, a name
    port: int
    target: bytes
    external: bool = False


class _NameError(Exception):
    """The name does not exist."""


class ZoneData(Protocol):
    """The parts of the zone that a query reads."""

    @property
    def ttl(self) -> int: ...
    @property
    def nameserver(self) -> str: ...
    def soa(self, apex: bytes) -> DnsRecord: ...
    def servers(self, apex: bytes) -> list[tuple[bytes, str]]: ...
    def exposed(self, namespace: str) -> bool: ...
    def service(self, key: str) -> DnsService | None: ...
    def service_name(self, service: DnsService, host: str = "") -> bytes: ...
    def endpoints(self, key: str) -> tuple[DnsEndpoint, ...]: ...
    def endpoints_named(self, key: str, host: str) -> Sequence[DnsEndpoint]: ...
    def names_of(self, address: str) -> list[bytes]: ...


class DnsQuery:
    """One query."""

    __slots__ = ("apex", "base", "depends", "requested", "type", "zone")

    def __init__(
        self, zone: ZoneData, requested: bytes, type: int, labels: Sequence[bytes], apex: bytes
    ) -> None:
        self.zone = zone
        self.requested = requested
        self.type = type
        self.apex = apex  # in the client's spelling
        size = len(wire.name_labels(apex))
        self.base = [label.decode("latin-1") for label in labels[:-size]]
        self.depends: list[str] = []

    def forward(self) -> LookupResult:
        handler = _BY_TYPE.get(self.type, DnsQuery.other)
        try:
            found = handler(self)
        except _NameError:
            return self.negative(wire.NXDOMAIN)
        return found if found is not None else self.negative(wire.NOERROR)

    def reverse(self) -> LookupResult:
        if not self.base and self.type == wire.SOA:
            return self.positive([self.zone.soa(self.apex)])
        address = _address_of(self.base, self.apex)
        if self.type == wire.PTR and address:
            self.depends.append(address)
            names = dict.fromkeys(self.zone.names_of(address))
            if names:
                return self.positive(
                    [DnsRecord(self.requested, wire.PTR, self.zone.ttl, name) for name in names]
                )
        if not self.base:
            return self.negative(wire.NOERROR)
        return self.negative(wire.NXDOMAIN)._replace(through=True)

    # ---- by type ----

    def addresses(self) -> LookupResult | None:
        if self.base == ["ns", "dns"]:
            self.depends.append(self.zone.nameserver)
            return self.positive_or_nothing(
                [
                    self.address(self.requested, address)
                    for _, address in self.zone.servers(self.apex)
                    if self.fits(address)
                ]
            )
        answers, follow = self.chain(self.requested, self.base, [])
        if follow:
            return LookupResult(wire.NOERROR, answers, depends=self.depends, follow=follow)
        return self.positive_or_nothing(answers)

    def chain(
        self, owner: bytes, base: Sequence[str], previous: Sequence[bytes]
    ) -> tuple[list[DnsRecord], bytes]:
        """The addresses of a name of this zone, after its aliases, or an external name to continue
        with.
        """
        answers: dict[bytes, DnsRecord] = {}
        for entry in self.entries(base):
            if not entry.external:
                if self.fits(entry.address):
                    record = self.address(owner, entry.address)
                    answers[record.data] = record
                continue
            target = _name(entry.address)
            folded = target.lower()
            if (
                not folded
                or folded == owner.lower()
                or folded in previous
                or len(previous) > _LONGEST_CHAIN
            ):
                return [], b""
            alias = DnsRecord(owner, wire.CNAME, self.zone.ttl, target)
            labels = wire.name_labels(folded)
            size = len(wire.name_labels(self.apex))
            if labels[-size:] != wire.name_labels(self.apex.lower()):
                return [alias], target
            try:
                more, follow = self.chain(
                    target, [s.decode("latin-1") for s in labels[:-size]], [*previous, folded]
                )
            except _NameError:
                return [], b""
            return ([alias, *more], follow) if more else ([], b"")
        return list(answers.values()), b""

    def service_records(self) -> LookupResult | None:
        entries = [entry for entry in self.entries(self.base) if not entry.external]
        weight = max(100 // len(entries), 1) if entries else 0
        answers, additional = {}, {}
        for entry in entries:
            if entry.port == NO_PORT:
                continue
            data = wire.srv_data(0, weight, entry.port, entry.target)
            answers[entry.target, entry.port] = DnsRecord(
                self.requested, wire.SRV, self.zone.ttl, data
            )
            additional[entry.target, entry.address] = self.address(entry.target, entry.address)
        return self.positive(list(answers.values()), list(additional.values())) if answers else None

    def alias(self) -> LookupResult | None:
        for entry in self.entries(self.base)[:1]:
            if entry.external and (target := _name(entry.address)):
                return self.positive([DnsRecord(self.requested, wire.CNAME, self.zone.ttl, target)])
        return None

    def text(self) -> LookupResult | None:
        if self.base == ["dns-version"]:
            return self.positive(
                [DnsRecord(self.requested, wire.TXT, _SCHEMA_TTL, wire.txt_data(SCHEMA_VERSION))]
            )
        return None  # CoreDNS does not check whether such a name exists

    def authority(self) -> LookupResult | None:
        return self.positive([self.zone.soa(self.apex)]) if not self.base else None

    def nameservers(self) -> LookupResult | None:
        if self.base:
            return self.other()
        self.depends.append(self.zone.nameserver)
        servers = self.zone.servers(self.apex)
        answers = [
            DnsRecord(self.requested, wire.NS, self.zone.ttl, name)
            for name in dict.fromkeys(name for name, _ in servers)
        ]
        return (
            self.positive(answers, [self.address(*server) for server in servers])
            if answers
            else None
        )

    def refused(self) -> LookupResult:
        return LookupResult(wire.REFUSED)

    def other(self) -> LookupResult | None:
        self.entries(self.base)
        return None

    # ---- names ----

    def entries(self, base: Sequence[str]) -> Sequence[_Entry]:
        if not base or base in (["svc"], ["pod"]):
            return ()
        kind = base[-1]
        if kind not in ("svc", "pod") or len(base) > 5:
            raise _NameError
        namespace = base[-2]
        self.depends.append(namespace + "/")
        if not self.zone.exposed(namespace):
            raise _NameError
        if len(base) == 2:
            return ()
        if kind == "pod":
            return self.pod(base[-3])
        key = f"{namespace}/{base[-3]}"
        self.depends.append(key)
        service = self.zone.service(key)
        host = base[0] if len(base) == 4 else ""
        port, protocol = (
            (base[0].removeprefix("_"), base[1].removeprefix("_")) if len(base) == 5 else ("", "")
        )
        found = self.service(service, key, host, port, protocol) if service is not None else []
        if not found:
            raise _NameError
        return found

    def pod(self, dashed: str) -> Sequence[_Entry]:
        four = dashed.count("-") == 3 and "--" not in dashed
        try:
            address = str(ip_address(dashed.replace("-", "." if four else ":")))
        except ValueError:
            raise _NameError from None
        return (_Entry(address, 0, self.requested),)

    def service(
        self, service: DnsService, key: str, host: str, port: str, protocol: str
    ) -> list[_Entry]:
        if service.external:
            if host or port or protocol:
                return []
            return [_Entry(service.external, 0, b"", True)]
        if service.headless or host:
            endpoints = self.zone.endpoints_named(key, host) if host else self.zone.endpoints(key)
            return [
                _Entry(endpoint.address, one.number, self.zone.service_name(service, endpoint.host))
                for endpoint in endpoints
                for one in endpoint.ports
                if _matches(one, port, protocol)
            ]
        target = self.zone.service_name(service)
        return [
            _Entry(address, one.number, target)
            for one in service.ports
            if _matches(one, port, protocol)
            for address in service.addresses
        ]

    # ---- answers ----

    def fits(self, address: str) -> bool:
        return (":" in address) == (self.type == wire.AAAA)

    def address(self, owner: bytes, address: str) -> DnsRecord:
        return DnsRecord(
            owner,
            wire.AAAA if ":" in address else wire.A,
            self.zone.ttl,
            wire.address_data(address),
        )

    def positive(
        self, answers: Sequence[DnsRecord], additional: Sequence[DnsRecord] = ()
    ) -> LookupResult:
        return LookupResult(wire.NOERROR, answers, (), additional, self.depends)

    def positive_or_nothing(self, answers: Sequence[DnsRecord]) -> LookupResult | None:
        return self.positive(answers) if answers else None

    def negative(self, rcode: int) -> LookupResult:
        return LookupResult(rcode, (), [self.zone.soa(self.apex)], (), self.depends)


_BY_TYPE: Final[Mapping[int, Callable[[DnsQuery], LookupResult | None]]] = {
    wire.A: DnsQuery.addresses,
    wire.AAAA: DnsQuery.addresses,
    wire.SRV: DnsQuery.service_records,
    wire.CNAME: DnsQuery.alias,
    wire.TXT: DnsQuery.text,
    wire.SOA: DnsQuery.authority,
    wire.NS: DnsQuery.nameservers,
    wire.AXFR: DnsQuery.refused,
    wire.IXFR: DnsQuery.refused,
}


def _matches(port: DnsPort, name: str, protocol: str) -> bool:
    return (not name or port.name == name) and (not protocol or port.protocol == protocol)


def _name(text: str) -> bytes:
    try:
        return wire.encode_name(text)
    except ValueError:
        return b""


def _address_of(base: Sequence[str], apex: bytes) -> str:
    """The address of a name under in-addr.arpa or ip6.arpa; "" if it is not one."""
    pieces = list(reversed(base))
    try:
        if len(apex) == len(b"\x07in-addr\x04arpa\0"):
            return str(ip_address(".".join(pieces))) if len(pieces) == 4 else ""
        digits = "".join(pieces)
        if len(pieces) != 32 or len(digits) != 32:
            return ""
        return str(ip_address(":".join(digits[i : i + 4] for i in range(0, 32, 4))))
    except ValueError:
        return ""
