"""From a service to an address that answers for it, for whatever the API server itself has to call.

A service stands for one of its endpoints: the server is no node, so no proxy stands between the two. The texts of failures
are Kubernetes'.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from transom.apiserver.resources import Resource
from transom.apiserver.storage import Storage
from transom.machinery.objects import Object

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
_ROUTED = ("ClusterIP", "LoadBalancer", "NodePort")


class Address(NamedTuple):
    host: str
    port: int


def own_address(text: str) -> Address:
    """Where a server that listens on `text` can be called from its own machine."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    return Address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(port))


class Unresolved(Exception):
    """No address, and why."""


# (namespace, name, port) -> where to connect; raises Unresolved.
Resolve = Callable[[str, str, int], Address]


class ServiceResolver:
    def __init__(
        self, storage: Storage, resource: Callable[[str, str, str], Resource], own: Address, rng: random.Random
    ) -> None:
        """`own` is where the API server itself listens: the service `kubernetes` leads there."""
        self._storage = storage
        self._services = resource("", "v1", "services")
        self._endpoints = resource("", "v1", "endpoints")
        self._slices = resource("discovery.k8s.io", "v1", "endpointslices")
        self._own = own
        self._rng = rng

    def __call__(self, namespace: str, name: str, port: int) -> Address:
        if (namespace, name, port) == ("default", "kubernetes", 443):
            return self._own
        service = self.service(namespace, name)
        if service is None:
            raise Unresolved(f'service "{name}" not found')
        spec = service.get("spec") or {}
        kind = spec.get("type", "ClusterIP")
        if kind == "ExternalName":
            return Address(spec.get("externalName", ""), port)
        if kind not in _ROUTED:
            raise Unresolved(f'unsupported service type "{kind}"')
        wanted = service_port(service, port)
        if wanted is None:
            raise Unresolved(f'no service port {port} found for service "{name}"')
        found = list(self.addresses(namespace, name, wanted.get("name", "")))
        if not found:
            raise Unresolved(f'no endpoints available for service "{name}"')
        return self._rng.choice(found)

    def service(self, namespace: str, name: str) -> Object | None:
        return self._storage.find(self._services, namespace, name)

    def has_endpoints(self, namespace: str, name: str) -> bool:
        found = self._storage.find(self._endpoints, namespace, name)
        return found is not None or any(self._slices_of(namespace, name))

    def addresses(self, namespace: str, name: str, port_name: str) -> Iterator[Address]:
        """Those that are ready, by the service's Endpoints or, when it has none, by its EndpointSlices."""
        endpoints = self._storage.find(self._endpoints, namespace, name)
        if endpoints is not None:
            yield from _of_endpoints(endpoints, port_name)
            return
        for one in self._slices_of(namespace, name):
            yield from _of_slice(one, port_name)

    def _slices_of(self, namespace: str, name: str) -> Iterator[Object]:
        for one in self._storage.objects(self._slices, namespace):
            if (one["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL) == name:
                yield one


def service_port(service: Object, port: int) -> Object | None:
    ports: list[Object] = (service.get("spec") or {}).get("ports") or []
    return next((p for p in ports if p.get("port") == port), None)


def _of_endpoints(endpoints: Object, port_name: str) -> Iterator[Address]:
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            if port.get("name", "") == port_name:
                for address in subset.get("addresses") or ():
                    yield Address(address["ip"], port["port"])
                break


def _of_slice(one: Object, port_name: str) -> Iterator[Address]:
    port = next((p for p in one.get("ports") or () if p.get("name", "") == port_name and p.get("port")), None)
    if port is None:
        return
    for endpoint in one.get("endpoints") or ():
        if (endpoint.get("conditions") or {}).get("ready", True) is not False:
            for address in endpoint.get("addresses") or ():
                yield Address(address, port["port"])
