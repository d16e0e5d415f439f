"""The names of a cluster: services, their endpoints and pods, according to the Kubernetes DNS
specification 1.1.0.

A table that is updated with individual services, endpoint slices and namespaces, and answers
lookups in memory. It does not depend on packets, caches or other servers: each answer lists its
dependencies, and listeners are notified when these change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from transom.dns.records import (
    DnsEndpoint,
    DnsService,
    LookupResult,
    canonical_address,
    dns_endpoints_of,
    dns_object_key,
    dns_service_of,
    ready_addresses,
    slice_owner,
)
from transom.kit import dnswire as wire
from transom.kit.dnswire import DnsRecord
from transom.kit.lazy import lazy_import

if TYPE_CHECKING:
    from transom.dns import questions
else:
    questions = lazy_import("transom.dns.questions")

DEFAULT_TTL: Final = 30
_REFRESH, _RETRY, _EXPIRE = 7200, 1800, 86400
_REVERSE = ((b"in-addr", b"arpa"), (b"ip6", b"arpa"))


class DnsZone:
    def __init__(
        self,
        domain: str = "cluster.local",
        *,
        ttl: int = DEFAULT_TTL,
        now: Callable[[], float] = lambda: 0.0,
        nameserver: str = "kube-system/kube-dns",
        addresses: Sequence[str] = (),
    ) -> None:
        """`nameserver` is the service of this server; until it exists, `addresses` are used
        instead.
        """
        self.domain = domain.strip(".").lower()
        # False while the first lists are incomplete: unknown names may exist then
        self.synced = True
        self.listeners: list[Callable[[str], None]] = []
        self._apex = wire.encode_name(self.domain)
        self._apex_labels = wire.name_labels(self._apex)
        self._ttl = ttl
        self._now = now
        self._serial = int(now())
        self._nameserver = nameserver
        self._own = tuple(addresses)
        self._namespaces: set[str] = set()
        self._counts: dict[str, int] = {}  # namespace -> services in it
        self._services: dict[str, DnsService] = {}
        # service -> name of slice -> slice
        self._slices: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._owners: dict[str, str] = {}  # slice -> service
        self._endpoints: dict[str, tuple[DnsEndpoint, ...]] = {}  # of services that were queried
        self._by_host: dict[str, dict[str, list[DnsEndpoint]]] = {}
        self._cluster_ips: dict[str, dict[str, None]] = {}  # address -> services
        # address -> services and slices
        self._endpoint_ips: dict[str, dict[tuple[str, str], None]] = {}

    # ---- updates ----

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
        key = dns_object_key(service)
        new, old = dns_service_of(service), self._services.get(key)
        if new == old:
            return
        self._services[key] = new
        if old is None:
            self._count(new.namespace, 1)
        self._index(
            self._cluster_ips, key, set(old.addresses) if old else set(), set(new.addresses)
        )
        self._changed(key)

    def remove_service(self, service: Mapping[str, Any]) -> None:
        key = dns_object_key(service)
        old = self._services.pop(key, None)
        if old is not None:
            self._count(old.namespace, -1)
            self._index(self._cluster_ips, key, set(old.addresses), set())
            self._changed(key)

    def put_slice(self, found: Mapping[str, Any]) -> None:
        key, name = slice_owner(found), found["metadata"]["name"]
        if self._owners.get(dns_object_key(found), key) != key:
            self.remove_slice(found)
        if not key or found.get("addressType") == "FQDN":
            return
        self._owners[dns_object_key(found)] = key
        slices = self._slices.setdefault(key, {})
        old = slices.get(name)
        slices[name] = found
        self._slice_changed(key, name, old, found)

    def remove_slice(self, found: Mapping[str, Any]) -> None:
        key, name = self._owners.pop(dns_object_key(found), ""), found["metadata"]["name"]
        slices = self._slices.get(key, {})
        old = slices.pop(name, None)
        if not slices:
            self._slices.pop(key, None)
        if old is not None:
            self._slice_changed(key, name, old, None)

    def _slice_changed(
        self, key: str, name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
    ) -> None:
        self._endpoints.pop(key, None)
        self._by_host.pop(key, None)
        self._index(self._endpoint_ips, (key, name), ready_addresses(old), ready_addresses(new))
        self._changed(key)

    def _index(
        self, index: dict[str, dict[Any, None]], owner: object, old: set[str], new: set[str]
    ) -> None:
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

    # ---- lookups ----

    def covers(self, labels: Sequence[bytes]) -> int:
        """The number of trailing labels of this lower-case name that are the zone's; 0 if it is
        outside the zone.
        """
        for apex in (self._apex_labels, *map(list, _REVERSE)):
            if list(labels[-len(apex) :]) == apex:
                return len(apex)
        return 0

    def lookup(self, requested: bytes, type: int) -> LookupResult | None:
        """None if the name is outside this zone."""
        labels = wire.name_labels(requested.lower())
        size = self.covers(labels)
        if not size:
            return None
        own = labels[-size:] == self._apex_labels
        query = questions.DnsQuery(
            self, requested, type, labels, requested[-len(wire.from_labels(labels[-size:])) :]
        )
        found = query.forward() if own else query.reverse()
        if found.rcode == wire.NXDOMAIN and not self.synced:
            return found._replace(rcode=wire.SERVFAIL, depends=None, through=False)
        return found

    def exposed(self, namespace: str) -> bool:
        return namespace in self._namespaces or namespace in self._counts

    def endpoints(self, key: str) -> tuple[DnsEndpoint, ...]:
        """The ready endpoints."""
        found = self._endpoints.get(key)
        if found is None:
            found = self._endpoints[key] = tuple(
                dns_endpoints_of(self._slices.get(key, {}).values())
            )
        return found

    def endpoints_named(self, key: str, host: str) -> Sequence[DnsEndpoint]:
        by_host = self._by_host.get(key)
        if by_host is None:
            by_host = self._by_host[key] = {}
            for endpoint in self.endpoints(key):
                by_host.setdefault(endpoint.host, []).append(endpoint)
        return by_host.get(host, ())

    def names_of(self, address: str) -> list[bytes]:
        """The service with this address, or all endpoints with it."""
        for key in self._cluster_ips.get(address, ()):
            return [self.service_name(self._services[key])]
        keys = dict.fromkeys(key for key, _ in self._endpoint_ips.get(address, ()))
        return [
            self._under(key, endpoint.host)
            for key in keys
            for endpoint in self.endpoints(key)
            if canonical_address(endpoint.address) == address
        ]

    def service_name(self, service: DnsService, host: str = "") -> bytes:
        return self._under(f"{service.namespace}/{service.name}", host)

    def _under(self, key: str, host: str) -> bytes:
        namespace, _, name = key.partition("/")
        return wire.encode_name(f"{host + '.' if host else ''}{name}.{namespace}.svc.{self.domain}")

    def service(self, key: str) -> DnsService | None:
        return self._services.get(key)

    def soa(self, apex: bytes) -> DnsRecord:
        data = wire.soa_data(
            b"\x02ns\x03dns" + apex,
            b"\x0ahostmaster" + apex,
            self._serial,
            _REFRESH,
            _RETRY,
            _EXPIRE,
            self._ttl,
        )
        return DnsRecord(apex, wire.SOA, min(self._ttl, 300), data)

    def servers(self, apex: bytes) -> list[tuple[bytes, str]]:
        """Names and addresses of this name server."""
        service = self._services.get(self._nameserver)
        if service is None:
            return [(b"\x02ns\x03dns" + apex, address) for address in self._own]
        if not service.headless:
            return [(self.service_name(service), address) for address in service.addresses]
        return [
            (self.service_name(service, e.host), e.address)
            for e in self.endpoints(self._nameserver)
        ]

    @property
    def nameserver(self) -> str:
        return self._nameserver

    @property
    def ttl(self) -> int:
        return self._ttl
