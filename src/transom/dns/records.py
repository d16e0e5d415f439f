"""What the zone keeps of services and endpoint slices, and what it says of a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from transom.kit.dnswire import Record

_SERVICE_LABEL = "kubernetes.io/service-name"
NO_PORT: Final = -1


class Found(NamedTuple):
    rcode: int
    answers: Sequence[Record] = ()
    authority: Sequence[Record] = ()
    additional: Sequence[Record] = ()
    depends: Sequence[str] | None = None  # what may change the answer; None: it is not to be kept
    follow: bytes = b""  # another name that the last answer leads to, of which this zone knows nothing
    through: bool = False  # an address of somebody else: others may know its name


class Port(NamedTuple):
    name: str
    protocol: str  # in small letters
    number: int


class Service(NamedTuple):
    namespace: str
    name: str
    addresses: tuple[str, ...]
    ports: tuple[Port, ...]
    headless: bool
    external: str


class Endpoint(NamedTuple):
    host: str
    address: str
    ports: tuple[Port, ...]


NO_PORTS: Final = (Port("", "", NO_PORT),)


def service_of(service: Mapping[str, Any]) -> Service:
    meta, spec = service["metadata"], service["spec"]
    external = spec.get("externalName", "") if spec.get("type") == "ExternalName" else ""
    addresses = () if external else tuple(
        canonical(ip) for ip in spec.get("clusterIPs") or [spec.get("clusterIP", "")] if ip and ip != "None"
    )  # fmt: skip
    ports = tuple(
        Port(p.get("name", "").lower(), p.get("protocol", "TCP").lower(), int(p["port"])) for p in spec.get("ports") or ()
    )
    headless = not external and spec.get("clusterIP") == "None"
    return Service(meta["namespace"], meta["name"], addresses, ports or NO_PORTS, headless, external)


def endpoints_of(slices: Iterable[Mapping[str, Any]]) -> Iterable[Endpoint]:
    for found in slices:
        ports = tuple(
            Port((p.get("name") or "").lower(), (p.get("protocol") or "").lower(), p.get("port") or NO_PORT)
            for p in found.get("ports") or ()
        )
        for endpoint in found.get("endpoints") or ():
            if _ready(endpoint):
                for address in endpoint["addresses"]:
                    host = endpoint.get("hostname") or address.replace(".", "-").replace(":", "-")
                    yield Endpoint(host.lower(), address, ports or NO_PORTS)


def _ready(endpoint: Mapping[str, Any]) -> bool:
    """Whoever makes slices says `ready` of every pod of a service that publishes not ready addresses."""
    return (endpoint.get("conditions") or {}).get("ready") is not False


def ready_addresses(found: Mapping[str, Any] | None) -> set[str]:
    endpoints = (found or {}).get("endpoints") or ()
    return {canonical(address) for endpoint in endpoints if _ready(endpoint) for address in endpoint["addresses"]}


def canonical(address: str) -> str:
    if ":" not in address:
        return address
    try:
        return str(ip_address(address))
    except ValueError:
        return address


def key_of(obj: Mapping[str, Any]) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def owner_of(found: Mapping[str, Any]) -> str:
    name = (found["metadata"].get("labels") or {}).get(_SERVICE_LABEL, "")
    return f"{found['metadata']['namespace']}/{name}" if name else ""
