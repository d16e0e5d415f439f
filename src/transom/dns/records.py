"""The zone's view of services and endpoint slices, and the result of a lookup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final

from transom.kit.dnswire import DnsRecord
from transom.kit.named_tuple import NamedTuple

_SERVICE_LABEL = "kubernetes.io/service-name"
NO_PORT: Final = -1


class LookupResult(NamedTuple):
    rcode: int
    answers: Sequence[DnsRecord] = ()
    authority: Sequence[DnsRecord] = ()
    additional: Sequence[DnsRecord] = ()
    depends: Sequence[str] | None = None  # what the answer depends on; None: not cacheable
    follow: bytes = b""  # the external name at the end of a CNAME chain, to resolve elsewhere
    through: bool = False  # an external address: other servers may know its name


class DnsPort(NamedTuple):
    name: str
    protocol: str  # in lower case
    number: int


class DnsService(NamedTuple):
    namespace: str
    name: str
    addresses: tuple[str, ...]
    ports: tuple[DnsPort, ...]
    headless: bool
    external: str


class DnsEndpoint(NamedTuple):
    host: str
    address: str
    ports: tuple[DnsPort, ...]


NO_PORTS: Final = (DnsPort("", "", NO_PORT),)


def dns_service_of(service: Mapping[str, Any]) -> DnsService:
    meta, spec = service["metadata"], service["spec"]
    external = spec.get("externalName", "") if spec.get("type") == "ExternalName" else ""
    addresses = (
        ()
        if external
        else tuple(
            canonical_address(ip)
            for ip in spec.get("clusterIPs") or [spec.get("clusterIP", "")]
            if ip and ip != "None"
        )
    )
    ports = tuple(
        DnsPort(p.get("name", "").lower(), p.get("protocol", "TCP").lower(), int(p["port"]))
        for p in spec.get("ports") or ()
    )
    headless = not external and spec.get("clusterIP") == "None"
    return DnsService(
        meta["namespace"], meta["name"], addresses, ports or NO_PORTS, headless, external
    )


def dns_endpoints_of(slices: Iterable[Mapping[str, Any]]) -> Iterable[DnsEndpoint]:
    for found in slices:
        ports = tuple(
            DnsPort(
                (p.get("name") or "").lower(),
                (p.get("protocol") or "").lower(),
                p.get("port") or NO_PORT,
            )
            for p in found.get("ports") or ()
        )
        for endpoint in found.get("endpoints") or ():
            if _ready(endpoint):
                for address in endpoint["addresses"]:
                    host = endpoint.get("hostname") or address.replace(".", "-").replace(":", "-")
                    yield DnsEndpoint(host.lower(), address, ports or NO_PORTS)


def _ready(endpoint: Mapping[str, Any]) -> bool:
    """For a service with publishNotReadyAddresses, the slice controller sets `ready` on every
    pod.
    """
    return (endpoint.get("conditions") or {}).get("ready") is not False


def ready_addresses(found: Mapping[str, Any] | None) -> set[str]:
    endpoints = (found or {}).get("endpoints") or ()
    return {
        canonical_address(address)
        for endpoint in endpoints
        if _ready(endpoint)
        for address in endpoint["addresses"]
    }


def canonical_address(address: str) -> str:
    if ":" not in address:
        return address
    try:
        return str(ip_address(address))
    except ValueError:
        return address


def dns_object_key(obj: Mapping[str, Any]) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def slice_owner(found: Mapping[str, Any]) -> str:
    name = (found["metadata"].get("labels") or {}).get(_SERVICE_LABEL, "")
    return f"{found['metadata']['namespace']}/{name}" if name else ""
