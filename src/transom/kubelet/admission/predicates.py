"""The predicates that a kubelet checks again: resources, node affinity, node name, host ports.

Each failure is an `Insufficient` or an `Unfit`, in the order in which Kubernetes looks; the first is what people are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from transom.kubelet.admission.requests import Asked, amounts, conflict
from transom.machinery import quantity
from transom.machinery.objects import Object
from transom.machinery.resourcenames import CPU, EPHEMERAL, MEMORY, PODS, is_extended
from transom.machinery.selectors import DOES_NOT_EXIST, EXISTS, GREATER, IN, LESS, NOT_IN, Requirement

_OPERATORS = {
    "In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": DOES_NOT_EXIST, "Gt": GREATER, "Lt": LESS
}
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
            f"Node didn't have enough resource: {self.resource}, requested: {self.requested}, used: {self.used}, "
            f"capacity: {self.capacity}"
        )


class Unfit(NamedTuple):
    reason: str
    why: str

    def message(self, release: tuple[int, int]) -> str:
        failed = f"Predicate {self.reason} failed"
        return f"{failed}: {self.why}" if release >= (1, 31) else failed


Failure = Insufficient | Unfit

_AFFINITY = Unfit("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
_NAME = Unfit("NodeName", "node(s) didn't match the requested node name")
_PORTS = Unfit("NodePorts", "node(s) didn't have free ports for the requested pod ports")
_TAINT = Unfit("TaintToleration", "node(s) had taints that the pod didn't tolerate")


def check(
    pod: Object, asked: Asked, others: Sequence[Asked], node: Object, *, taints: bool = False
) -> list[Failure]:
    """`others` are the pods that the node has. `taints`: NoExecute ones count too, as from 1.24 on."""
    failures: list[Failure] = [*_resources(asked, others, (node.get("status") or {}).get("allocatable") or {})]
    meta, spec = node["metadata"], pod["spec"]
    if not _matches_node(spec, meta["name"], meta.get("labels") or {}):
        failures.append(_AFFINITY)
    if spec.get("nodeName") and spec["nodeName"] != meta["name"]:
        failures.append(_NAME)
    if asked.ports and any(conflict(w, u) for w in asked.ports for other in others for u in other.ports):
        failures.append(_PORTS)
    if taints and not tolerates(spec, (node.get("spec") or {}).get("taints") or (), "NoExecute"):
        failures.append(_TAINT)
    return failures


def _resources(asked: Asked, others: Sequence[Asked], allocatable: Mapping[str, str]) -> Iterable[Insufficient]:
    pods = quantity.parse(allocatable[PODS]).value() if PODS in allocatable else 0
    if len(others) + 1 > pods:
        yield Insufficient(PODS, 1, len(others), pods)
    # Resources of the cluster that no node knows are somebody else's to count.
    wanted = {k: v for k, v in asked.resources.items() if k in allocatable or not is_extended(k)}
    if not any(v or k not in _PLAIN for k, v in wanted.items()):
        return
    have = amounts(allocatable)
    for name in (*_PLAIN, *sorted(k for k in wanted if k not in _PLAIN)):
        requested, capacity = wanted.get(name, 0), have.get(name, 0)
        used = sum(other.resources.get(name, 0) for other in others)
        if requested + used > capacity:
            yield Insufficient(name, requested, used, capacity)


def _matches_node(spec: Object, name: str, labels: Mapping[str, str]) -> bool:
    selector = spec.get("nodeSelector")
    if selector and not selector.items() <= labels.items():
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_matches_term(term, name, labels) for term in required.get("nodeSelectorTerms") or ())


def _matches_term(term: Object, name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    own = {"metadata.name": name}
    return all(_matches(e, labels) for e in expressions) and all(_matches(f, own) for f in fields)


def _matches(expression: Object, values: Mapping[str, str]) -> bool:
    operator = _OPERATORS.get(expression.get("operator", ""))
    if operator is None:
        return False
    return Requirement(expression["key"], operator, tuple(expression.get("values") or ())).matches(values)


def tolerates(spec: Object, taints: Iterable[Object], effect: str) -> bool:
    """Whether the pod tolerates every taint of this effect."""
    tolerations = spec.get("tolerations") or ()
    return all(any(_tolerates(t, taint) for t in tolerations) for taint in taints if taint.get("effect") == effect)


def _tolerates(toleration: Object, taint: Object) -> bool:
    effect, key = toleration.get("effect"), toleration.get("key")
    if (effect and effect != taint.get("effect")) or (key and key != taint.get("key")):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(operator == "Exists")
