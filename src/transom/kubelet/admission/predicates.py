"""The predicates that the kubelet checks again: resources, node affinity, node name, host ports.

Each failure is an `Insufficient` or a `PodDoesNotFit`, in the order in which Kubernetes checks;
users see the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from transom.kit.named_tuple import NamedTuple
from transom.kubelet.admission.requests import PodRequests, host_ports_conflict, request_amounts
from transom.machinery import quantity
from transom.machinery.objects import Object
from transom.machinery.placement import matches_node
from transom.machinery.releases.kubelet import kubelet_has
from transom.machinery.resourcenames import CPU, EPHEMERAL, MEMORY, PODS, is_extended_resource_name
from transom.machinery.tolerations import untolerated_taints

_PLAIN = (CPU, MEMORY, EPHEMERAL)


class Insufficient(NamedTuple):
    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        return self.requested - (self.capacity - self.used)

    @property
    def reason(self) -> str:
        return f"OutOf{self.resource}"

    def message(self, release: tuple[int, int]) -> str:
        return (
            f"Node didn't have enough resource: {self.resource}, requested: "
            f"{self.requested}, used: {self.used}, "
            f"capacity: {self.capacity}"
        )


class PodDoesNotFit(NamedTuple):
    reason: str
    why: str

    def message(self, release: tuple[int, int]) -> str:
        failed = f"Predicate {self.reason} failed"
        return f"{failed}: {self.why}" if kubelet_has(release, "PredicateMessages") else failed


Failure = Insufficient | PodDoesNotFit

_AFFINITY = PodDoesNotFit("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
_NAME = PodDoesNotFit("NodeName", "node(s) didn't match the requested node name")
_PORTS = PodDoesNotFit("NodePorts", "node(s) didn't have free ports for the requested pod ports")
_TAINT = PodDoesNotFit("TaintToleration", "node(s) had taints that the pod didn't tolerate")


def check_predicates(
    pod: Object,
    request: PodRequests,
    others: Sequence[PodRequests],
    node: Object,
    *,
    taints: bool = False,
) -> list[Failure]:
    """`others` are the pods already on the node. `taints`: also check NoExecute taints, as
    Kubernetes does from 1.24 on.
    """
    failures: list[Failure] = [
        *_resources(
            request, others, (node.get("status") or {}).get("allocatable") or {}, _claimed(pod)
        )
    ]
    meta, spec = node["metadata"], pod["spec"]
    if not matches_node(spec, meta["name"], meta.get("labels") or {}):
        failures.append(_AFFINITY)
    if spec.get("nodeName") and spec["nodeName"] != meta["name"]:
        failures.append(_NAME)
    if request.ports and any(
        host_ports_conflict(w, u) for w in request.ports for other in others for u in other.ports
    ):
        failures.append(_PORTS)
    if taints and not tolerates(spec, (node.get("spec") or {}).get("taints") or (), "NoExecute"):
        failures.append(_TAINT)
    return failures


def _claimed(pod: Object) -> frozenset[str]:
    """The resources that the pod gets as devices of a resource claim."""
    found = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return frozenset(mapping["resourceName"] for mapping in found.get("requestMappings") or ())


def _resources(
    request: PodRequests,
    others: Sequence[PodRequests],
    allocatable: Mapping[str, str],
    claimed: frozenset[str],
) -> Iterable[Insufficient]:
    pods = quantity.parse_quantity(allocatable[PODS]).value() if PODS in allocatable else 0
    if len(others) + 1 > pods:
        yield Insufficient(PODS, 1, len(others), pods)
    # Ignore cluster-level resources, which no node provides, and devices of claims.
    wanted = {
        k: v
        for k, v in request.resources.items()
        if k not in claimed and (k in allocatable or not is_extended_resource_name(k))
    }
    if not any(v or k not in _PLAIN for k, v in wanted.items()):
        return
    have = request_amounts(allocatable)
    for name in (*_PLAIN, *sorted(k for k in wanted if k not in _PLAIN)):
        requested, capacity = wanted.get(name, 0), have.get(name, 0)
        used = sum(other.resources.get(name, 0) for other in others)
        if requested + used > capacity:
            yield Insufficient(name, requested, used, capacity)


def tolerates(spec: Object, taints: Iterable[Object], effect: str) -> bool:
    """Whether the pod tolerates every taint of this effect."""
    return not untolerated_taints(spec.get("tolerations") or (), taints, (effect,))
