"""Resource requests of pods and allocatable resources of nodes as integers: milli-CPUs, bytes,
counts.

The rules of the scheduler: requests of containers and sidecars add up, a larger request of an init
container (with the sidecars before it) replaces the sum, requests of the pod as a whole replace
those of its containers, and the overhead of the RuntimeClass is added. Pure functions on objects.
"""

from __future__ import annotations

from collections.abc import Mapping

from transom.kit.named_tuple import NamedTuple
from transom.machinery import quantity
from transom.machinery.objects import Object
from transom.machinery.podresources import is_pod_level_resource
from transom.machinery.resourcenames import (
    CPU,
    EPHEMERAL,
    MEMORY,
    PODS,
    is_scalar_resource,
    resource_amount,
)

# The requests that scores assume for containers without any (GetNonzeroRequests).
DEFAULT_CPU, DEFAULT_MEMORY = 100, 200 * 1024 * 1024


class ResourceRequests(NamedTuple):
    """`scalars` is sorted and includes requests of zero."""

    cpu: int = 0
    memory: int = 0
    ephemeral: int = 0
    scalars: tuple[tuple[str, int], ...] = ()
    pods: int = 0

    @property
    def nothing(self) -> bool:
        return not (self.cpu or self.memory or self.ephemeral or self.scalars)


def resource_list_values(resources: Mapping[str, str] | None) -> dict[str, int]:
    """A ResourceList as integers, without resources that the scheduler does not know."""
    return {
        name: resource_amount(name, text)
        for name, text in (resources or {}).items()
        if name in (CPU, MEMORY, EPHEMERAL, PODS) or is_scalar_resource(name)
    }


def _requested(container: Object) -> Mapping[str, str]:
    return (container.get("resources") or {}).get("requests") or {}


def resource_totals(amounts: Mapping[str, int]) -> ResourceRequests:
    scalars = tuple(
        sorted((k, v) for k, v in amounts.items() if k not in (CPU, MEMORY, EPHEMERAL, PODS))
    )
    return ResourceRequests(
        amounts.get(CPU, 0),
        amounts.get(MEMORY, 0),
        amounts.get(EPHEMERAL, 0),
        scalars,
        amounts.get(PODS, 0),
    )


def _add_amounts(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def is_sidecar(container: Object) -> bool:
    """Whether an init container keeps running beside the containers."""
    return container.get("restartPolicy") == "Always"


def pod_requests(spec: Object) -> ResourceRequests:
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        _add_amounts(total, resource_list_values(_requested(container)))
    sidecars: dict[str, int] = {}
    largest: dict[str, int] = {}  # while the init containers run
    for container in spec.get("initContainers") or ():
        wanted = resource_list_values(_requested(container))
        if is_sidecar(container):
            _add_amounts(sidecars, wanted)
            _add_amounts(total, wanted)
            during = sidecars
        else:
            during = dict(wanted)
            _add_amounts(during, sidecars)
        for name, value in during.items():
            largest[name] = max(largest.get(name, 0), value)
    for name, value in largest.items():
        if name != PODS and value > total.get(name, 0):
            total[name] = value
    for name, value in resource_list_values(_requested(spec)).items():
        if is_pod_level_resource(name):
            total[name] = value
    for name, value in resource_list_values(spec.get("overhead")).items():
        total[name] = total.get(name, 0) + value
    return resource_totals(total)


def _at_least_something(container: Object, name: str) -> int:
    text = _requested(container).get(name)
    if text is None:
        return DEFAULT_CPU if name == CPU else DEFAULT_MEMORY if name == MEMORY else 0
    return resource_amount(name, text)


def counted_request(spec: Object, name: str) -> int:
    """The CPU or memory request of a scheduled pod for the scores of its node."""
    overhead = (spec.get("overhead") or {}).get(name)
    return _without_overhead(spec, name) + (
        resource_amount(name, overhead) if overhead is not None else 0
    )


def score_request(spec: Object, name: str) -> int:
    """The request of the pod to schedule for scores. As in Kubernetes, a CPU overhead is added in
    whole CPUs, rounded up, to a sum of milli-CPUs.
    """
    if name in (PODS,) or not (name in (CPU, MEMORY, EPHEMERAL) or is_scalar_resource(name)):
        return 0
    overhead = (spec.get("overhead") or {}).get(name)
    return _without_overhead(spec, name) + (
        quantity.parse_quantity(overhead).value() if overhead is not None else 0
    )


def _without_overhead(spec: Object, name: str) -> int:
    whole = _requested(spec).get(name)
    if whole is not None and is_pod_level_resource(name):
        return resource_amount(name, whole)
    total = sum(_at_least_something(c, name) for c in spec.get("containers") or ())
    sidecars = largest = 0
    for container in spec.get("initContainers") or ():
        wanted = _at_least_something(container, name)
        if is_sidecar(container):
            sidecars += wanted
            largest = max(largest, sidecars)
        else:
            largest = max(largest, sidecars + wanted)
    return max(total + sidecars, largest)
