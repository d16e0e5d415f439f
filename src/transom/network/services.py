"""Services in the modelled network: which address leads to which pod, and which name to which address.

A table kept up by whoever watches services and endpoint slices. It stands in for a service proxy and a cluster DNS where
no node runs its own: every node sees the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from transom.network.api import DnsConfig

Place = tuple[str, int]
_UNREACHABLE: Place = ("", 0)  # a service that has nobody behind it: no listener there, so it is refused


class _Service(NamedTuple):
    places: tuple[Place, ...]  # addresses and ports it is reached at
    addresses: tuple[str, ...]  # what its name leads to; empty for a headless one
    headless: bool
    external: str


class ServiceTable:
    def __init__(self, rng: random.Random, domain: str = "cluster.local") -> None:
        self._rng = rng
        self._domain = domain
        self._services: dict[str, _Service] = {}
        self._slices: dict[str, dict[str, Mapping[str, Any]]] = {}  # service -> slice name -> slice
        self._places: dict[Place, tuple[str, str]] = {}  # -> service, name of its port
        self._node_ports: dict[int, tuple[str, str]] = {}
        self.node_addresses: set[str] = set()

    # ---- what is known -------------------------------------------------------------------------------------------

    def put_service(self, service: Mapping[str, Any]) -> None:
        key = _key(service)
        self.remove_service(service)
        spec = service["spec"]
        addresses = [ip for ip in spec.get("clusterIPs") or [spec.get("clusterIP", "")] if ip and ip != "None"]
        ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        reached = [*addresses, *(spec.get("externalIPs") or ()), *(i["ip"] for i in ingress if i.get("ip"))]
        places = []
        for port in spec.get("ports") or ():
            if port.get("protocol", "TCP") != "TCP":
                continue
            name = port.get("name", "")
            for address in reached:
                place = (address, int(port["port"]))
                places.append(place)
                self._places[place] = (key, name)
            if port.get("nodePort"):
                self._node_ports[int(port["nodePort"])] = (key, name)
        self._services[key] = _Service(
            tuple(places), tuple(addresses), spec.get("clusterIP") == "None", spec.get("externalName", "")
        )

    def remove_service(self, service: Mapping[str, Any]) -> None:
        key = _key(service)
        old = self._services.pop(key, None)
        if old is not None:
            for place in old.places:
                self._places.pop(place, None)
            for port in [port for port, (owner, _) in self._node_ports.items() if owner == key]:
                del self._node_ports[port]

    def put_slice(self, found: Mapping[str, Any]) -> None:
        owner = _owner(found)
        if owner:
            self._slices.setdefault(owner, {})[found["metadata"]["name"]] = found

    def remove_slice(self, found: Mapping[str, Any]) -> None:
        owner = _owner(found)
        slices = self._slices.get(owner, {})
        slices.pop(found["metadata"]["name"], None)
        if not slices:
            self._slices.pop(owner, None)

    # ---- what is asked -------------------------------------------------------------------------------------------

    def translate(self, address: str, port: int, _source: str) -> Place | None:
        found = self._places.get((address, port))
        if found is None and address in self.node_addresses:
            found = self._node_ports.get(port)
        if found is None:
            return None
        backends = list(self._backends(*found))
        return self._rng.choice(backends) if backends else _UNREACHABLE

    def _backends(self, service: str, port_name: str) -> Iterable[Place]:
        for found in self._slices.get(service, {}).values():
            ports = [p["port"] for p in found.get("ports") or () if (p.get("name") or "") == port_name and p.get("port")]
            for endpoint in found.get("endpoints") or ():
                if (endpoint.get("conditions") or {}).get("ready", True):
                    for port in ports:
                        yield endpoint["addresses"][0], port

    async def lookup(self, name: str, _dns: DnsConfig) -> Sequence[str]:
        """The addresses of a whole name: services, pods of headless ones by their hostname, pods by their address."""
        labels = name.lower().rstrip(".")
        if not labels.endswith("." + self._domain):
            return ()
        match labels.removesuffix("." + self._domain).split("."):
            case [service, namespace, "svc"]:
                return await self._of_service(f"{namespace}/{service}")
            case [host, service, namespace, "svc"]:
                return [
                    e["addresses"][0] for e in self._endpoints(f"{namespace}/{service}") if e.get("hostname") == host
                ]
            case [dashed, _namespace, "pod"] if dashed.count("-") == 3:
                return [dashed.replace("-", ".")]
        return ()

    async def _of_service(self, key: str) -> Sequence[str]:
        service = self._services.get(key)
        if service is None:
            return ()
        if service.external:
            return await self.lookup(service.external, DnsConfig())
        if service.headless:
            return [e["addresses"][0] for e in self._endpoints(key)]
        return service.addresses

    def _endpoints(self, key: str) -> Iterable[Mapping[str, Any]]:
        for found in self._slices.get(key, {}).values():
            for endpoint in found.get("endpoints") or ():
                if (endpoint.get("conditions") or {}).get("ready", True):
                    yield endpoint


def _key(obj: Mapping[str, Any]) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _owner(found: Mapping[str, Any]) -> str:
    name = (found["metadata"].get("labels") or {}).get("kubernetes.io/service-name", "")
    return f"{found['metadata']['namespace']}/{name}" if name else ""
