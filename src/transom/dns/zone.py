"""The names of a cluster: services, their endpoints and pods, as the Kubernetes DNS specification 1.1.0 has them.

A table that is told of services, endpoint slices and namespaces one by one, and answers questions in memory. It answers as
CoreDNS' kubernetes plugin does where the specification leaves a choice. It knows nothing of packets, caches or other servers:
each answer says which things it depends on, and listeners hear which things have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from transom.kit import dnswire as wire
from transom.kit.dnswire import Record

SCHEMA_VERSION: Final = "1.1.0"
DEFAULT_TTL: Final = 30
_SCHEMA_TTL = 28800
_REFRESH, _RETRY, _EXPIRE = 7200, 1800, 86400
_SERVICE_LABEL = "kubernetes.io/service-name"
_NO_PORT = -1
_LONGEST_CHAIN = 7  # of names that are other names for names
_REVERSE = ((b"in-addr", b"arpa"), (b"ip6", b"arpa"))


class Found(NamedTuple):
    rcode: int
    answers: Sequence[Record] = ()
    authority: Sequence[Record] = ()
    additional: Sequence[Record] = ()
    depends: Sequence[str] | None = None  # what may change the answer; None: it is not to be kept
    follow: bytes = b""  # another name that the last answer leads to, of which this zone knows nothing
    through: bool = False  # an address of somebody else: others may know its name


class _Port(NamedTuple):
    name: str
    protocol: str  # in small letters
    number: int


class _Service(NamedTuple):
    namespace: str
    name: str
    addresses: tuple[str, ...]
    ports: tuple[_Port, ...]
    headless: bool
    external: str


class _Endpoint(NamedTuple):
    host: str
    address: str
    ports: tuple[_Port, ...]


class _Entry(NamedTuple):
    """What a name leads to."""

    address: str  # or, with `external`, a name
    port: int
    target: bytes
    external: bool = False


_NO_PORTS: Final = (_Port("", "", _NO_PORT),)


class Zone:
    def __init__(
        self, domain: str = "cluster.local", *, ttl: int = DEFAULT_TTL, now: Callable[[], float] = lambda: 0.0,
        nameserver: str = "kube-system/kube-dns", addresses: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`nameserver` is the service that this is reached by; while there is none, `addresses` are told instead."""
        self.domain = domain.strip(".").lower()
        self.synced = True  # a feeder that is still listing says no: what is not known may be there all the same
        self.listeners: list[Callable[[str], None]] = []
        self._apex = wire.name(self.domain)
        self._apex_labels = wire.labels(self._apex)
        self._ttl = ttl
        self._now = now
        self._serial = int(now())
        self._nameserver = nameserver
        self._own = tuple(addresses)
        self._namespaces: set[str] = set()
        self._counts: dict[str, int] = {}  # namespace -> services in it
        self._services: dict[str, _Service] = {}
        self._slices: dict[str, dict[str, Mapping[str, Any]]] = {}  # service -> name of slice -> slice
        self._owners: dict[str, str] = {}  # slice -> service
        self._endpoints: dict[str, tuple[_Endpoint, ...]] = {}  # of services that somebody has asked for
        self._by_host: dict[str, dict[str, list[_Endpoint]]] = {}
        self._cluster_ips: dict[str, dict[str, None]] = {}  # address -> services
        self._endpoint_ips: dict[str, dict[tuple[str, str], None]] = {}  # address -> services and slices

    # ---- what is known -----------------------------------------------------------------------------------------------

    def put_namespace(self, namespace: Mapping[str, Any]) -> None:
        name = namespace["metadata"]["name"]
        if name not in self._namespaces:
            self._namespaces.add(name)
            self._changed(name + "/")

    def remove_namespace(self, namespace: Mapping[str, Any]) -> None:
        name = namespace["metadata"]["name"]
        if name in self._namespaces:
            self._namespaces.discard(name)
            self._changed(name + "/")

    def put_service(self, service: Mapping[str, Any]) -> None:
        key = _key(service)
        new, old = _service(service), self._services.get(key)
        if new == old:
            return
        self._services[key] = new
        if old is None:
            self._count(new.namespace, 1)
        self._index(self._cluster_ips, key, set(old.addresses) if old else set(), set(new.addresses))
        self._changed(key)

    def remove_service(self, service: Mapping[str, Any]) -> None:
        key = _key(service)
        old = self._services.pop(key, None)
        if old is not None:
            self._count(old.namespace, -1)
            self._index(self._cluster_ips, key, set(old.addresses), set())
            self._changed(key)

    def put_slice(self, found: Mapping[str, Any]) -> None:
        key, name = _owner(found), found["metadata"]["name"]
        if self._owners.get(_key(found), key) != key:
            self.remove_slice(found)
        if not key or found.get("addressType") == "FQDN":
            return
        self._owners[_key(found)] = key
        slices = self._slices.setdefault(key, {})
        old = slices.get(name)
        slices[name] = found
        self._slice_changed(key, name, old, found)

    def remove_slice(self, found: Mapping[str, Any]) -> None:
        key, name = self._owners.pop(_key(found), ""), found["metadata"]["name"]
        slices = self._slices.get(key, {})
        old = slices.pop(name, None)
        if not slices:
            self._slices.pop(key, None)
        if old is not None:
            self._slice_changed(key, name, old, None)

    def _slice_changed(self, key: str, name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        self._endpoints.pop(key, None)
        self._by_host.pop(key, None)
        self._index(self._endpoint_ips, (key, name), _ready_addresses(old), _ready_addresses(new))
        self._changed(key)

    def _index(self, index: dict[str, dict[Any, None]], owner: object, old: set[str], new: set[str]) -> None:
        for address in old - new:
            owners = index[address]
            del owners[owner]
            if not owners:
                del index[address]
        for address in new - old:
            index.setdefault(address, {})[owner] = None
        for address in old ^ new:
            self._changed(address)

    def _count(self, namespace: str, step: int) -> None:
        count = self._counts[namespace] = self._counts.get(namespace, 0) + step
        if not count:
            del self._counts[namespace]
        if namespace not in self._namespaces and count <= 1:
            self._changed(namespace + "/")

    def _changed(self, what: str) -> None:
        self._serial = int(self._now())
        for listener in self.listeners:
            listener(what)

    # ---- what is asked -----------------------------------------------------------------------------------------------

    def covers(self, labels: Sequence[bytes]) -> int:
        """How many labels at the end of this name, in small letters, are the zone's; 0 when it is not in it."""
        for apex in (self._apex_labels, *map(list, _REVERSE)):
            if list(labels[-len(apex) :]) == apex:
                return len(apex)
        return 0

    def lookup(self, asked: bytes, type: int) -> Found | None:
        """None when the name is not in this zone."""
        labels = wire.labels(asked.lower())
        size = self.covers(labels)
        if not size:
            return None
        own = labels[-size:] == self._apex_labels
        query = _Query(self, asked, type, labels, asked[-len(wire.from_labels(labels[-size:])) :])
        found = query.forward() if own else query.reverse()
        if found.rcode == wire.NXDOMAIN and not self.synced:
            return found._replace(rcode=wire.SERVFAIL, depends=None, through=False)
        return found

    def exposed(self, namespace: str) -> bool:
        return namespace in self._namespaces or namespace in self._counts

    def endpoints(self, key: str) -> tuple[_Endpoint, ...]:
        """The ready ones."""
        found = self._endpoints.get(key)
        if found is None:
            found = self._endpoints[key] = tuple(_endpoints(self._slices.get(key, {}).values()))
        return found

    def endpoints_named(self, key: str, host: str) -> Sequence[_Endpoint]:
        by_host = self._by_host.get(key)
        if by_host is None:
            by_host = self._by_host[key] = {}
            for endpoint in self.endpoints(key):
                by_host.setdefault(endpoint.host, []).append(endpoint)
        return by_host.get(host, ())

    def names_of(self, address: str) -> list[bytes]:
        """The service with this address, or all endpoints."""
        for key in self._cluster_ips.get(address, ()):
            return [self.service_name(self._services[key])]
        keys = dict.fromkeys(key for key, _ in self._endpoint_ips.get(address, ()))
        return [
            self._under(key, endpoint.host) for key in keys for endpoint in self.endpoints(key)
            if _canonical(endpoint.address) == address
        ]  # fmt: skip

    def service_name(self, service: _Service, host: str = "") -> bytes:
        return self._under(f"{service.namespace}/{service.name}", host)

    def _under(self, key: str, host: str) -> bytes:
        namespace, _, name = key.partition("/")
        return wire.name(f"{host + '.' if host else ''}{name}.{namespace}.svc.{self.domain}")

    def service(self, key: str) -> _Service | None:
        return self._services.get(key)

    def soa(self, apex: bytes) -> Record:
        data = wire.soa(
            b"\x02ns\x03dns" + apex, b"\x0ahostmaster" + apex, self._serial, _REFRESH, _RETRY, _EXPIRE, self._ttl
        )
        return Record(apex, wire.SOA, min(self._ttl, 300), data)

    def servers(self, apex: bytes) -> list[tuple[bytes, str]]:
        """Names and addresses of this name server."""
        service = self._services.get(self._nameserver)
        if service is None:
            return [(b"\x02ns\x03dns" + apex, address) for address in self._own]
        if not service.headless:
            return [(self.service_name(service), address) for address in service.addresses]
        return [(self.service_name(service, e.host), e.address) for e in self.endpoints(self._nameserver)]

    @property
    def nameserver(self) -> str:
        return self._nameserver

    @property
    def ttl(self) -> int:
        return self._ttl


class _NameError(Exception):
    """There is no such name."""


class _Query:
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
        handler = _BY_TYPE.get(self.type, _Query.other)
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
            if entry.port == _NO_PORT:
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

    def service(self, service: _Service, key: str, host: str, port: str, protocol: str) -> list[_Entry]:
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


_BY_TYPE: Final[Mapping[int, Callable[[_Query], Found | None]]] = {
    wire.A: _Query.addresses,
    wire.AAAA: _Query.addresses,
    wire.SRV: _Query.service_records,
    wire.CNAME: _Query.alias,
    wire.TXT: _Query.text,
    wire.SOA: _Query.authority,
    wire.NS: _Query.nameservers,
    wire.AXFR: _Query.refused,
    wire.IXFR: _Query.refused,
}


# ---- objects -----------------------------------------------------------------------------------------------------------


def _service(service: Mapping[str, Any]) -> _Service:
    meta, spec = service["metadata"], service["spec"]
    external = spec.get("externalName", "") if spec.get("type") == "ExternalName" else ""
    addresses = () if external else tuple(
        _canonical(ip) for ip in spec.get("clusterIPs") or [spec.get("clusterIP", "")] if ip and ip != "None"
    )  # fmt: skip
    ports = tuple(
        _Port(p.get("name", "").lower(), p.get("protocol", "TCP").lower(), int(p["port"])) for p in spec.get("ports") or ()
    )
    headless = not external and spec.get("clusterIP") == "None"
    return _Service(meta["namespace"], meta["name"], addresses, ports or _NO_PORTS, headless, external)


def _endpoints(slices: Iterable[Mapping[str, Any]]) -> Iterable[_Endpoint]:
    for found in slices:
        ports = tuple(
            _Port((p.get("name") or "").lower(), (p.get("protocol") or "").lower(), p.get("port") or _NO_PORT)
            for p in found.get("ports") or ()
        )
        for endpoint in found.get("endpoints") or ():
            if _ready(endpoint):
                for address in endpoint["addresses"]:
                    host = endpoint.get("hostname") or address.replace(".", "-").replace(":", "-")
                    yield _Endpoint(host.lower(), address, ports or _NO_PORTS)


def _ready(endpoint: Mapping[str, Any]) -> bool:
    """Whoever makes slices says `ready` of every pod of a service that publishes not ready addresses."""
    return (endpoint.get("conditions") or {}).get("ready") is not False


def _ready_addresses(found: Mapping[str, Any] | None) -> set[str]:
    endpoints = (found or {}).get("endpoints") or ()
    return {_canonical(address) for endpoint in endpoints if _ready(endpoint) for address in endpoint["addresses"]}


def _matches(port: _Port, name: str, protocol: str) -> bool:
    return (not name or port.name == name) and (not protocol or port.protocol == protocol)


def _canonical(address: str) -> str:
    if ":" not in address:
        return address
    try:
        return str(ip_address(address))
    except ValueError:
        return address


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


def _key(obj: Mapping[str, Any]) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _owner(found: Mapping[str, Any]) -> str:
    name = (found["metadata"].get("labels") or {}).get(_SERVICE_LABEL, "")
    return f"{found['metadata']['namespace']}/{name}" if name else ""
