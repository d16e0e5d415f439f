"""The names of a cluster: services, their endpoints and pods, as the Kubernetes DNS specification 1.1.0 has them.

A table that is told of services, endpoint slices and namespaces one by one, and answers questions in memory. It knows nothing
of packets, caches or other servers: each answer says which things it depends on, and listeners hear which have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from transom.dns.questions import Query
from transom.dns.records import Endpoint, Found, Service, canonical, endpoints_of, key_of, owner_of, ready_addresses, service_of
from transom.kit import dnswire as wire
from transom.kit.dnswire import Record

DEFAULT_TTL: Final = 30
_REFRESH, _RETRY, _EXPIRE = 7200, 1800, 86400
_REVERSE = ((b"in-addr", b"arpa"), (b"ip6", b"arpa"))


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
        self._services: dict[str, Service] = {}
        self._slices: dict[str, dict[str, Mapping[str, Any]]] = {}  # service -> name of slice -> slice
        self._owners: dict[str, str] = {}  # slice -> service
        self._endpoints: dict[str, tuple[Endpoint, ...]] = {}  # of services that somebody has asked for
        self._by_host: dict[str, dict[str, list[Endpoint]]] = {}
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
        key = key_of(service)
        new, old = service_of(service), self._services.get(key)
        if new == old:
            return
        self._services[key] = new
        if old is None:
            self._count(new.namespace, 1)
        self._index(self._cluster_ips, key, set(old.addresses) if old else set(), set(new.addresses))
        self._changed(key)

    def remove_service(self, service: Mapping[str, Any]) -> None:
        key = key_of(service)
        old = self._services.pop(key, None)
        if old is not None:
            self._count(old.namespace, -1)
            self._index(self._cluster_ips, key, set(old.addresses), set())
            self._changed(key)

    def put_slice(self, found: Mapping[str, Any]) -> None:
        key, name = owner_of(found), found["metadata"]["name"]
        if self._owners.get(key_of(found), key) != key:
            self.remove_slice(found)
        if not key or found.get("addressType") == "FQDN":
            return
        self._owners[key_of(found)] = key
        slices = self._slices.setdefault(key, {})
        old = slices.get(name)
        slices[name] = found
        self._slice_changed(key, name, old, found)

    def remove_slice(self, found: Mapping[str, Any]) -> None:
        key, name = self._owners.pop(key_of(found), ""), found["metadata"]["name"]
        slices = self._slices.get(key, {})
        old = slices.pop(name, None)
        if not slices:
            self._slices.pop(key, None)
        if old is not None:
            self._slice_changed(key, name, old, None)

    def _slice_changed(self, key: str, name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        self._endpoints.pop(key, None)
        self._by_host.pop(key, None)
        self._index(self._endpoint_ips, (key, name), ready_addresses(old), ready_addresses(new))
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
        query = Query(self, asked, type, labels, asked[-len(wire.from_labels(labels[-size:])) :])
        found = query.forward() if own else query.reverse()
        if found.rcode == wire.NXDOMAIN and not self.synced:
            return found._replace(rcode=wire.SERVFAIL, depends=None, through=False)
        return found

    def exposed(self, namespace: str) -> bool:
        return namespace in self._namespaces or namespace in self._counts

    def endpoints(self, key: str) -> tuple[Endpoint, ...]:
        """The ready ones."""
        found = self._endpoints.get(key)
        if found is None:
            found = self._endpoints[key] = tuple(endpoints_of(self._slices.get(key, {}).values()))
        return found

    def endpoints_named(self, key: str, host: str) -> Sequence[Endpoint]:
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
            if canonical(endpoint.address) == address
        ]  # fmt: skip

    def service_name(self, service: Service, host: str = "") -> bytes:
        return self._under(f"{service.namespace}/{service.name}", host)

    def _under(self, key: str, host: str) -> bytes:
        namespace, _, name = key.partition("/")
        return wire.name(f"{host + '.' if host else ''}{name}.{namespace}.svc.{self.domain}")

    def service(self, key: str) -> Service | None:
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
