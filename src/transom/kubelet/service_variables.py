"""The environment variables that describe the Services of a container's namespace."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from transom.machinery.objects import Object

Variable = tuple[str, str]

_MASTER_SERVICES = frozenset({"kubernetes"})


def service_variables(
    namespace: str, links: bool, masters: Iterable[Object], neighbours: Iterable[Object]
) -> dict[str, Variable]:
    """By name. `masters` are the Services of the namespace `default`, of which the API server's own
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
    out = {}
    for service in chosen.values():
        for pair in _variables(service):
            out[pair[0]] = pair
    return out


def _has_address(service: Object) -> bool:
    return service["spec"].get("clusterIP") not in (None, "", "None")


def _variables(service: Object) -> tuple[Variable, ...]:
    spec = service["spec"]
    ports = tuple(
        (p["port"], p.get("name") or "", p.get("protocol") or "TCP")
        for p in spec.get("ports") or ()
    )
    return _of(service["metadata"]["name"], spec["clusterIP"], ports)


@lru_cache(maxsize=4096)  # shared by all containers of all nodes of a process
def _of(
    service: str, address: str, ports: tuple[tuple[int, str, str], ...]
) -> tuple[Variable, ...]:
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
    return tuple(out)
