"""Questions to the zone: which of its records answer a name and a type, by the specification and, where that leaves a
choice, as CoreDNS' kubernetes plugin answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from transom.dns.records import NO_PORT, Found, Port, Service
from transom.kit import dnswire as wire
from transom.kit.dnswire import Record

if TYPE_CHECKING:
    from transom.dns.zone import Zone

SCHEMA_VERSION: Final = "1.1.0"
_SCHEMA_TTL = 28800
_LONGEST_CHAIN = 7  # of names that are other names for names


class _Entry(NamedTuple):
    """What a name leads to."""

    address: str  # or, with `external`, a name
    port: int
    target: bytes
    external: bool = False


class _NameError(Exception):
    """There is no such name."""


class Query:
    """One question on its way."""

    __slots__ = ("apex", "asked", "base", "depends", "type", "zone")

    def __init__(self, zone: Zone, asked: bytes, type: int, labels: Sequence[bytes], apex: bytes) -> None:
        self.zone = zone
        self.asked = asked
        self.type = type
        self.apex = apex  # as the client spells it
        size = len(wire.labels(apex))
        self.base = [label.decode("latin-1") for label in labels[:-size]]
        self.depends: list[str] = []

    def forward(self) -> Found:
        handler = _BY_TYPE.get(self.type, Query.other)
        try:
            found = handler(self)
        except _NameError:
            return self.negative(wire.NXDOMAIN)
        return found if found is not None else self.negative(wire.NOERROR)

    def reverse(self) -> Found:
        if not self.base and self.type == wire.SOA:
            return self.positive([self.zone.soa(self.apex)])
        address = _address_of(self.base, self.apex)
        if self.type == wire.PTR and address:
            self.depends.append(address)
            names = dict.fromkeys(self.zone.names_of(address))
            if names:
                return self.positive([Record(self.asked, wire.PTR, self.zone.ttl, name) for name in names])
        if not self.base:
            return self.negative(wire.NOERROR)
        return self.negative(wire.NXDOMAIN)._replace(through=True)

    # ---- by type -----------------------------------------------------------------------------------------------------

    def addresses(self) -> Found | None:
        if self.base == ["ns", "dns"]:
            self.depends.append(self.zone.nameserver)
            return self.positive_or_nothing(
                [self.address(self.asked, address) for _, address in self.zone.servers(self.apex) if self.fits(address)]
            )
        answers, follow = self.chain(self.asked, self.base, [])
        if follow:
            return Found(wire.NOERROR, answers, depends=self.depends, follow=follow)
        return self.positive_or_nothing(answers)

    def chain(self, owner: bytes, base: Sequence[str], previous: Sequence[bytes]) -> tuple[list[Record], bytes]:
        """The addresses of a name of this zone, after the names that lead to it, or a name outside to go on with."""
        answers: dict[bytes, Record] = {}
        for entry in self.entries(base):
            if not entry.external:
                if self.fits(entry.address):
                    record = self.address(owner, entry.address)
                    answers[record.data] = record
                continue
            target = _name(entry.address)
            folded = target.lower()
            if not folded or folded == owner.lower() or folded in previous or len(previous) > _LONGEST_CHAIN:
                return [], b""
            alias = Record(owner, wire.CNAME, self.zone.ttl, target)
            labels = wire.labels(folded)
            size = len(wire.labels(self.apex))
            if labels[-size:] != wire.labels(self.apex.lower()):
                return [alias], target
            try:
                more, follow = self.chain(target, [s.decode("latin-1") for s in labels[:-size]], [*previous, folded])
            except _NameError:
                return [], b""
            return ([alias, *more], follow) if more else ([], b"")
        return list(answers.values()), b""

    def service_records(self) -> Found | None:
        entries = [entry for entry in self.entries(self.base) if not entry.external]
        weight = max(100 // len(entries), 1) if entries else 0
        answers, additional = {}, {}
        for entry in entries:
            if entry.port == NO_PORT:
                continue
            data = wire.srv(0, weight, entry.port, entry.target)
            answers[entry.target, entry.port] = Record(self.asked, wire.SRV, self.zone.ttl, data)
            additional[entry.target, entry.address] = self.address(entry.target, entry.address)
        return self.positive(list(answers.values()), list(additional.values())) if answers else None

    def alias(self) -> Found | None:
        for entry in self.entries(self.base)[:1]:
            if entry.external and (target := _name(entry.address)):
                return self.positive([Record(self.asked, wire.CNAME, self.zone.ttl, target)])
        return None

    def text(self) -> Found | None:
        if self.base == ["dns-version"]:
            return self.positive([Record(self.asked, wire.TXT, _SCHEMA_TTL, wire.txt(SCHEMA_VERSION))])
        return None  # CoreDNS does not look whether there is such a name

    def authority(self) -> Found | None:
        return self.positive([self.zone.soa(self.apex)]) if not self.base else None

    def nameservers(self) -> Found | None:
        if self.base:
            return self.other()
        self.depends.append(self.zone.nameserver)
        servers = self.zone.servers(self.apex)
        answers = [Record(self.asked, wire.NS, self.zone.ttl, name) for name in dict.fromkeys(name for name, _ in servers)]
        return self.positive(answers, [self.address(*server) for server in servers]) if answers else None

    def refused(self) -> Found:
        return Found(wire.REFUSED)

    def other(self) -> Found | None:
        self.entries(self.base)
        return None

    # ---- names -------------------------------------------------------------------------------------------------------

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
        port, protocol = (base[0].removeprefix("_"), base[1].removeprefix("_")) if len(base) == 5 else ("", "")
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
        return (_Entry(address, 0, self.asked),)

    def service(self, service: Service, key: str, host: str, port: str, protocol: str) -> list[_Entry]:
        if service.external:
            if host or port or protocol:
                return []
            return [_Entry(service.external, 0, b"", True)]
        if service.headless or host:
            endpoints = self.zone.endpoints_named(key, host) if host else self.zone.endpoints(key)
            return [
                _Entry(endpoint.address, one.number, self.zone.service_name(service, endpoint.host))
                for endpoint in endpoints for one in endpoint.ports if _matches(one, port, protocol)
            ]  # fmt: skip
        target = self.zone.service_name(service)
        return [
            _Entry(address, one.number, target)
            for one in service.ports if _matches(one, port, protocol) for address in service.addresses
        ]  # fmt: skip

    # ---- answers -----------------------------------------------------------------------------------------------------

    def fits(self, address: str) -> bool:
        return (":" in address) == (self.type == wire.AAAA)

    def address(self, owner: bytes, address: str) -> Record:
        return Record(owner, wire.AAAA if ":" in address else wire.A, self.zone.ttl, wire.address(address))

    def positive(self, answers: Sequence[Record], additional: Sequence[Record] = ()) -> Found:
        return Found(wire.NOERROR, answers, (), additional, self.depends)

    def positive_or_nothing(self, answers: Sequence[Record]) -> Found | None:
        return self.positive(answers) if answers else None

    def negative(self, rcode: int) -> Found:
        return Found(rcode, (), [self.zone.soa(self.apex)], (), self.depends)


_BY_TYPE: Final[Mapping[int, Callable[[Query], Found | None]]] = {
    wire.A: Query.addresses,
    wire.AAAA: Query.addresses,
    wire.SRV: Query.service_records,
    wire.CNAME: Query.alias,
    wire.TXT: Query.text,
    wire.SOA: Query.authority,
    wire.NS: Query.nameservers,
    wire.AXFR: Query.refused,
    wire.IXFR: Query.refused,
}


def _matches(port: Port, name: str, protocol: str) -> bool:
    return (not name or port.name == name) and (not protocol or port.protocol == protocol)


def _name(text: str) -> bytes:
    try:
        return wire.name(text)
    except ValueError:
        return b""


def _address_of(base: Sequence[str], apex: bytes) -> str:
    """The address that a name under in-addr.arpa or ip6.arpa is of, "" if it is none."""
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
