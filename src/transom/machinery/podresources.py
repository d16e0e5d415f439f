"""Resources of a pod as a whole: what its containers add up to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.machinery.quantity import ZERO, Quantity, parse_quantity

HUGE_PAGES = "hugepages-"
Amounts = dict[str, Quantity]


def is_pod_level_resource(name: str) -> bool:
    """Whether requests of the whole pod can replace those of its containers."""
    return name in ("cpu", "memory") or name.startswith(HUGE_PAGES)


def aggregate_containers(spec: Mapping[str, Any], kind: str) -> Amounts:
    """The `requests` or `limits` of all containers: the sum of those that run together, or the
    largest that an init container needs.
    """
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _amounts(container, kind))
    most: Amounts = {}
    sidecars: Amounts = {}
    for container in spec.get("initContainers") or ():
        needed = _amounts(container, kind)
        if container.get("restartPolicy") == "Always":
            _add(total, needed)
            _add(sidecars, needed)
            needed = dict(sidecars)
        else:
            _add(needed, sidecars)
        _raise(most, needed)
    _raise(total, most)
    return total


def pod_amounts(spec: Mapping[str, Any], kind: str) -> Amounts:
    """The `requests` or `limits` of the pod as a whole, with its overhead."""
    amounts = aggregate_containers(spec, kind)
    own: Mapping[str, str] = (spec.get("resources") or {}).get(kind) or {}
    amounts |= {
        name: parse_quantity(text) for name, text in own.items() if is_pod_level_resource(name)
    }
    for name, text in (spec.get("overhead") or {}).items():
        if kind == "requests" or name in amounts:
            amounts[name] = amounts.get(name, ZERO) + parse_quantity(text)
    return amounts


def _amounts(container: Mapping[str, Any], kind: str) -> Amounts:
    found = (container.get("resources") or {}).get(kind) or {}
    return {name: parse_quantity(text) for name, text in found.items()}


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise(total: Amounts, least: Amounts) -> None:
    for name, amount in least.items():
        if name not in total or amount > total[name]:
            total[name] = amount


def default_pod_resources(spec: dict[str, Any]) -> None:
    """Completes the resources of a pod from those of its containers."""
    resources = spec.get("resources")
    if not resources or not (resources.get("limits") or resources.get("requests")):
        return
    limits: dict[str, str] = dict(resources.get("limits") or {})
    requests: dict[str, str] = dict(resources.get("requests") or {})
    for name, amount in aggregate_containers(spec, "limits").items():
        if name.startswith(HUGE_PAGES) and name not in requests:
            limits.setdefault(name, str(amount))
    if limits:
        resources["limits"] = limits
        for name, amount in aggregate_containers(spec, "requests").items():
            if name in ("cpu", "memory"):
                requests.setdefault(name, str(amount))
        for name, text in limits.items():
            if is_pod_level_resource(name):
                requests.setdefault(name, text)
        if requests:
            resources["requests"] = requests
