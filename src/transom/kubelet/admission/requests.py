"""What a pod asks of its node, as integers, by the rules of the kubelet's predicates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from transom.machinery import quantity
from transom.machinery.objects import Object
from transom.machinery.resourcenames import CPU, EPHEMERAL, MEMORY, PODS, amount, is_scalar

_PLAIN = (CPU, MEMORY, EPHEMERAL)
_ANY = "0.0.0.0"


class HostPort(NamedTuple):
    address: str
    protocol: str
    port: int


class Asked(NamedTuple):
    """`resources` has cpu in thousandths; scalar resources are in it even when zero of them is asked for."""

    resources: Mapping[str, int]
    ports: tuple[HostPort, ...] = ()


def _counts(name: str) -> bool:
    return name in _PLAIN or is_scalar(name)


def amounts(resources: Mapping[str, str] | None) -> dict[str, int]:
    return {name: amount(name, text) for name, text in (resources or {}).items() if _counts(name)}


def asked(pod: Object) -> Asked:
    spec = pod["spec"]
    total: dict[str, int] = {}
    ports: list[HostPort] = []
    for container in spec.get("containers") or ():
        for name, value in amounts(_requests(container)).items():
            total[name] = total.get(name, 0) + value
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                ports.append(HostPort(port.get("hostIP") or _ANY, port.get("protocol") or "TCP", port["hostPort"]))
    for container in spec.get("initContainers") or ():
        for name, value in amounts(_requests(container)).items():
            total[name] = max(total.get(name, 0), value)
    for name, value in amounts(spec.get("overhead")).items():
        total[name] = total.get(name, 0) + value
    return Asked(total, tuple(ports))


def preempted(pod: Object, name: str) -> int:
    """What stopping the pod frees of a resource: as `asked`, but an overhead alone frees nothing."""
    if name == PODS:
        return 1
    spec = pod["spec"]
    parts = [quantity.parse(r[name]) for c in spec.get("containers") or () if name in (r := _requests(c))]
    total = sum(parts[1:], parts[0]) if parts else quantity.ZERO
    for container in spec.get("initContainers") or ():
        text = _requests(container).get(name)
        if text is not None:
            total = max(total, quantity.parse(text))
    overhead = (spec.get("overhead") or {}).get(name)
    if overhead is not None and not total.is_zero:
        total = total + quantity.parse(overhead)
    return total.milli_value() if name == CPU else total.value()


def conflict(wanted: HostPort, used: HostPort) -> bool:
    same = wanted.port == used.port and wanted.protocol == used.protocol
    return same and (wanted.address == used.address or _ANY in (wanted.address, used.address))


def _requests(container: Object) -> Mapping[str, str]:
    return (container.get("resources") or {}).get("requests") or {}
