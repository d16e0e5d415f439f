"""A pod's resource requests as integers, by the rules of the kubelet's predicates."""

from __future__ import annotations

from collections.abc import Mapping

from transom.kit.named_tuple import NamedTuple
from transom.machinery import quantity
from transom.machinery.objects import Object
from transom.machinery.podresources import is_pod_level_resource
from transom.machinery.podutil import is_restartable_init_container
from transom.machinery.resourcenames import (
    CPU,
    EPHEMERAL,
    MEMORY,
    PODS,
    is_scalar_resource,
    resource_amount,
)

_PLAIN = (CPU, MEMORY, EPHEMERAL)
_ANY = "0.0.0.0"


class RequestedHostPort(NamedTuple):
    address: str
    protocol: str
    port: int


class PodRequests(NamedTuple):
    """`resources` has cpu in millicores; it includes scalar resources even when the request is
    zero.
    """

    resources: Mapping[str, int]
    ports: tuple[RequestedHostPort, ...] = ()


def _counts(name: str) -> bool:
    return name in _PLAIN or is_scalar_resource(name)


def request_amounts(resources: Mapping[str, str] | None) -> dict[str, int]:
    return {
        name: resource_amount(name, text)
        for name, text in (resources or {}).items()
        if _counts(name)
    }


def requests_of_pod(pod: Object) -> PodRequests:
    spec = pod["spec"]
    total: dict[str, int] = {}
    ports: list[RequestedHostPort] = []
    for container in spec.get("containers") or ():
        for name, value in request_amounts(_requests(container)).items():
            total[name] = total.get(name, 0) + value
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                ports.append(
                    RequestedHostPort(
                        port.get("hostIP") or _ANY, port.get("protocol") or "TCP", port["hostPort"]
                    )
                )
    _add_init_containers(total, spec)
    for name, value in request_amounts((spec.get("resources") or {}).get("requests")).items():
        if is_pod_level_resource(name):
            total[name] = value
    for name, value in request_amounts(spec.get("overhead")).items():
        total[name] = total.get(name, 0) + value
    return PodRequests(total, tuple(ports))


def _add_init_containers(total: dict[str, int], spec: Object) -> None:
    """Sidecars run beside the containers; others need their requests and those of the sidecars
    before them.
    """
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        requested = request_amounts(_requests(container))
        if is_restartable_init_container(container):
            for name, value in requested.items():
                total[name] = total.get(name, 0) + value
                sidecars[name] = sidecars.get(name, 0) + value
            requested = sidecars
        else:
            requested = {
                n: requested.get(n, 0) + sidecars.get(n, 0) for n in (*sidecars, *requested)
            }
        for name, value in requested.items():
            most[name] = max(most.get(name, 0), value)
    for name, value in most.items():
        total[name] = max(total.get(name, 0), value)


def preempted(pod: Object, name: str) -> int:
    """How much of a resource stopping the pod frees: like `requests_of_pod`, but an overhead alone
    frees nothing.
    """
    if name == PODS:
        return 1
    spec = pod["spec"]
    parts = [
        quantity.parse_quantity(r[name])
        for c in spec.get("containers") or ()
        if name in (r := _requests(c))
    ]
    total = sum(parts[1:], parts[0]) if parts else quantity.ZERO
    for container in spec.get("initContainers") or ():
        text = _requests(container).get(name)
        if text is not None:
            total = max(total, quantity.parse_quantity(text))
    overhead = (spec.get("overhead") or {}).get(name)
    if overhead is not None and not total.is_zero:
        total = total + quantity.parse_quantity(overhead)
    return total.milli_value() if name == CPU else total.value()


def host_ports_conflict(wanted: RequestedHostPort, used: RequestedHostPort) -> bool:
    same = wanted.port == used.port and wanted.protocol == used.protocol
    return same and (wanted.address == used.address or _ANY in (wanted.address, used.address))


def _requests(container: Object) -> Mapping[str, str]:
    return (container.get("resources") or {}).get("requests") or {}
