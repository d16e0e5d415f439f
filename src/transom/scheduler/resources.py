"""What a pod asks of a node, and what a node has, as integers: milli-CPUs, bytes, counts.

The rules are the scheduler's own: containers add up, an init container counts when it alone asks for more, the overhead
of a RuntimeClass comes on top. Pure functions on objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from transom.machinery import quantity
from transom.machinery.objects import Object
from transom.machinery.resourcenames import CPU, EPHEMERAL, MEMORY, PODS, amount, is_scalar

# What a container without a request counts as when nodes are scored: a pod without requests still costs something.
DEFAULT_CPU, DEFAULT_MEMORY = 100, 200 * 1024 * 1024


class Requests(NamedTuple):
    """`scalars` is sorted; a scalar that is asked for with zero is in it too."""

    cpu: int = 0
    memory: int = 0
    ephemeral: int = 0
    scalars: tuple[tuple[str, int], ...] = ()
    pods: int = 0

    @property
    def nothing(self) -> bool:
        return not (self.cpu or self.memory or self.ephemeral or self.scalars)


def resource_list(resources: Mapping[str, str] | None) -> dict[str, int]:
    """A ResourceList as integers, without resources that the scheduler does not know."""
    return {
        name: amount(name, text) for name, text in (resources or {}).items()
        if name in (CPU, MEMORY, EPHEMERAL, PODS) or is_scalar(name)
    }


def _requested(container: Object) -> Mapping[str, str]:
    return (container.get("resources") or {}).get("requests") or {}


def totals(amounts: Mapping[str, int]) -> Requests:
    scalars = tuple(sorted((k, v) for k, v in amounts.items() if k not in (CPU, MEMORY, EPHEMERAL, PODS)))
    return Requests(amounts.get(CPU, 0), amounts.get(MEMORY, 0), amounts.get(EPHEMERAL, 0), scalars, amounts.get(PODS, 0))


def pod_requests(spec: Object) -> Requests:
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for name, value in resource_list(_requested(container)).items():
            total[name] = total.get(name, 0) + value
    for container in spec.get("initContainers") or ():
        for name, value in resource_list(_requested(container)).items():
            if name != PODS and value > total.get(name, 0):
                total[name] = value
    for name, value in resource_list(spec.get("overhead")).items():
        total[name] = total.get(name, 0) + value
    return totals(total)


def _at_least_something(container: Object, name: str) -> int:
    text = _requested(container).get(name)
    if text is None:
        return DEFAULT_CPU if name == CPU else DEFAULT_MEMORY if name == MEMORY else 0
    return amount(name, text)


def counted_request(spec: Object, name: str) -> int:
    """What the pod counts as on its node when nodes are scored, for CPU and memory."""
    overhead = (spec.get("overhead") or {}).get(name)
    return _without_overhead(spec, name) + (amount(name, overhead) if overhead is not None else 0)


def score_request(spec: Object, name: str) -> int:
    """What the pod counts as while it is being scored. Kubernetes adds a CPU overhead in whole CPUs here, rounded up,
    to a sum in thousandths; so do we."""
    if name in (PODS,) or not (name in (CPU, MEMORY, EPHEMERAL) or is_scalar(name)):
        return 0
    overhead = (spec.get("overhead") or {}).get(name)
    return _without_overhead(spec, name) + (quantity.parse(overhead).value() if overhead is not None else 0)


def _without_overhead(spec: Object, name: str) -> int:
    total = sum(_at_least_something(c, name) for c in spec.get("containers") or ())
    return max([total, *(_at_least_something(c, name) for c in spec.get("initContainers") or ())])


