"""The environment variables that describe the Services of a container's namespace."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object

Variable = tuple[str, str]

MOST_CHARACTERS: Final = 2 << 20  # of all these variables: Linux starts no program with more
_MOST_PORTS: Final = MOST_CHARACTERS // 100  # each has four variables of 25 characters or more
_MASTER_SERVICES = frozenset({"kubernetes"})


def linked_services(
    links: bool, masters: Iterable[Object], neighbours: Iterable[Object]
) -> list[Object]:
    """The Services that get variables. `masters` are the Services of the namespace `default`, of which the API server's own
    is always included; `neighbours` those of the pod's namespace, included when enableServiceLinks
    is set.
    """
    chosen = {}
    if links:
        chosen = {s["metadata"]["name"]: s for s in neighbours if _has_address(s)}
    for service in masters:
        name = service["metadata"]["name"]
        if name in _MASTER_SERVICES and name not in chosen and _has_address(service):
            chosen[name] = service
    return [*chosen.values()]


def _has_address(service: Object) -> bool:
    return service["spec"].get("clusterIP") not in (None, "", "None")


class ServiceVariables(NamedTuple):
    pairs: tuple[Variable, ...]
    size: int  # characters, as execve counts them


def service_variables(service: Object) -> ServiceVariables:
    """None of a Service with so many ports that no container could start with its variables."""
    spec = service["spec"]
    if len(spec.get("ports") or ()) > _MOST_PORTS:
        return ServiceVariables((), MOST_CHARACTERS + 1)
    ports = tuple(
        (p["port"], p.get("name") or "", p.get("protocol") or "TCP")
        for p in spec.get("ports") or ()
    )
    return _of(service["metadata"]["name"], spec["clusterIP"], ports)


@lru_cache(maxsize=4096)  # shared by all containers of all nodes of a process
def _of(service: str, address: str, ports: tuple[tuple[int, str, str], ...]) -> ServiceVariables:
    name = service.replace("-", "_").upper()
    host = f"[{address}]" if ":" in address else address
    out = [(f"{name}_SERVICE_HOST", address)]
    if ports:
        out.append((f"{name}_SERVICE_PORT", str(ports[0][0])))
    out += [
        (f"{name}_SERVICE_PORT_{port_name.replace('-', '_').upper()}", str(port))
        for port, port_name, _ in ports
        if port_name
    ]
    for index, (port, _, protocol) in enumerate(ports):
        url = f"{protocol.lower()}://{host}:{port}"
        if index == 0:
            out.append((f"{name}_PORT", url))
        prefix = f"{name}_PORT_{port}_{protocol.upper()}"
        out += [
            (prefix, url),
            (f"{prefix}_PROTO", protocol.lower()),
            (f"{prefix}_PORT", str(port)),
            (f"{prefix}_ADDR", address),
        ]
    return ServiceVariables(tuple(out), sum(len(name) + len(value) + 2 for name, value in out))
