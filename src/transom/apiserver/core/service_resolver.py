"""Resolves a service to the address of an endpoint, for the API server's own calls.

The server is not a node, so there is no kube-proxy: it connects to an endpoint directly. Error
messages are Kubernetes'.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import ResourceRegistry
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object
from transom.machinery.validation.names import parse_ip

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
_ROUTED = ("ClusterIP", "LoadBalancer", "NodePort")


class ServiceAddress(NamedTuple):
    host: str
    port: int


def own_service_address(text: str) -> ServiceAddress:
    """The address with which a server that listens on `text` can be called from its own machine."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    return ServiceAddress({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(port))


class UnresolvedService(Exception):
    """No address, with the reason."""


# (namespace, name, port) -> address; raises Unresolved.
Resolve = Callable[[str, str, int], ServiceAddress]


class ServiceResolver:
    def __init__(
        self,
        objects: ObjectStore,
        resources: ResourceRegistry,
        own: ServiceAddress,
        rng: random.Random,
    ) -> None:
        """`own` is the API server's own address, for the service `kubernetes`."""
        self._objects = objects
        self._services = resources.require("", "v1", "services")
        self._endpoints = resources.require("", "v1", "endpoints")
        self._slices = resources.require("discovery.k8s.io", "v1", "endpointslices")
        self._own = own
        self._rng = rng

    def __call__(self, namespace: str, name: str, port: int) -> ServiceAddress:
        if (namespace, name, port) == ("default", "kubernetes", 443):
            return self._own
        service = self.service(namespace, name)
        if service is None:
            raise UnresolvedService(f'service "{name}" not found')
        spec = service.get("spec") or {}
        kind = spec.get("type", "ClusterIP")
        if kind == "ExternalName":
            return ServiceAddress(spec.get("externalName", ""), port)
        if kind not in _ROUTED:
            raise UnresolvedService(f'unsupported service type "{kind}"')
        wanted = service_port(service, port)
        if wanted is None:
            raise UnresolvedService(f'no service port {port} found for service "{name}"')
        found = list(self.addresses(namespace, name, wanted.get("name", "")))
        if not found:
            raise UnresolvedService(f'no endpoints available for service "{name}"')
        return self._rng.choice(found)

    def service(self, namespace: str, name: str) -> Object | None:
        return self._objects.find(self._services, namespace, name)

    def has_endpoints(self, namespace: str, name: str) -> bool:
        found = self._objects.find(self._endpoints, namespace, name)
        return found is not None or any(self._slices_of(namespace, name))

    def addresses(self, namespace: str, name: str, port_name: str) -> Iterator[ServiceAddress]:
        """The ready addresses, from the service's Endpoints or, if it has none, from its
        EndpointSlices.
        """
        endpoints = self._objects.find(self._endpoints, namespace, name)
        if endpoints is not None:
            yield from _of_endpoints(endpoints, port_name)
            return
        for one in self._slices_of(namespace, name):
            yield from _of_slice(one, port_name)

    def _slices_of(self, namespace: str, name: str) -> Iterator[Object]:
        for one in self._objects.objects(self._slices, namespace):
            if (one["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL) == name:
                yield one


def service_port(service: Object, port: int) -> Object | None:
    ports: list[Object] = (service.get("spec") or {}).get("ports") or []
    return next((p for p in ports if p.get("port") == port), None)


def _of_endpoints(endpoints: Object, port_name: str) -> Iterator[ServiceAddress]:
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            if port.get("name", "") == port_name:
                for address in subset.get("addresses") or ():
                    yield from _address(address["ip"], port["port"])
                break


def _of_slice(one: Object, port_name: str) -> Iterator[ServiceAddress]:
    port = next(
        (p for p in one.get("ports") or () if p.get("name", "") == port_name and p.get("port")),
        None,
    )
    if port is None:
        return
    for endpoint in one.get("endpoints") or ():
        if (endpoint.get("conditions") or {}).get("ready", True) is not False:
            for address in endpoint.get("addresses") or ():
                yield from _address(address, port["port"])


def _address(text: str, port: int) -> Iterator[ServiceAddress]:
    """The canonical notation: a resolver would read leading zeros as octal, but validation reads
    them as decimal. Host names (of slices of type FQDN) are not supported.
    """
    address = parse_ip(text)
    if address is not None:
        yield ServiceAddress(str(address), port)
