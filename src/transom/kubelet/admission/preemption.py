"""Selects the pods that a critical pod preempts: as few as possible, best-effort pods before
burstable before guaranteed.
"""

from __future__ import annotations

from collections.abc import Sequence

from transom.kubelet.admission.predicates import Insufficient
from transom.kubelet.admission.requests import preempted
from transom.kubelet.labels import is_critical
from transom.machinery.objects import Object
from transom.machinery.podutil import qos_class
from transom.machinery.resourcenames import CPU, MEMORY

MESSAGE = "Preempted in order to admit critical pod"
REASON = "Preempting"

Needs = dict[str, int]


class NoVictims(Exception):
    """No pods can be preempted to free enough resources; the text is the kubelet's."""


def _preemptable(by: Object, pod: Object) -> bool:
    if is_critical(by) and not is_critical(pod):
        return True
    mine, theirs = by["spec"].get("priority"), pod["spec"].get("priority")
    return mine is not None and theirs is not None and mine > theirs


def pods_to_preempt(
    pod: Object, active: Sequence[Object], missing: Sequence[Insufficient]
) -> list[Object]:
    """Raises NoVictims."""
    needs = {entry.resource: entry.missing for entry in missing}
    classes: dict[str, list[Object]] = {"BestEffort": [], "Burstable": [], "Guaranteed": []}
    for other in active:
        if _preemptable(pod, other):
            classes[qos_class(other)].append(other)
    best, burstable, guaranteed = classes.values()
    _require(_without(needs, [*best, *burstable, *guaranteed]))
    of_guaranteed = _choose(guaranteed, _without(needs, [*best, *burstable]))
    of_burstable = _choose(burstable, _without(needs, [*best, *of_guaranteed]))
    of_best = _choose(best, _without(needs, [*of_burstable, *of_guaranteed]))
    return [*of_best, *of_burstable, *of_guaranteed]


def _choose(pods: Sequence[Object], needs: Needs) -> list[Object]:
    """Repeatedly picks the pod that comes closest to what is still needed; of equals, the smaller
    one.
    """
    left, chosen = list(pods), []
    while needs:
        if not left:
            _require(needs)
        best, nearest = 0, float(len(needs) + 1)
        for at, pod in enumerate(left):
            distance = _distance(needs, pod)
            if distance < nearest or (distance == nearest and _size(pod) <= _size(left[best])):
                best, nearest = at, distance
        chosen.append(left[best])
        needs = _without(needs, [left[best]])
        left[best] = left[-1]
        left.pop()
    return chosen


def _without(needs: Needs, pods: Sequence[Object]) -> Needs:
    """What is still needed after these pods are removed."""
    rest = {name: need - sum(preempted(pod, name) for pod in pods) for name, need in needs.items()}
    return {name: need for name, need in rest.items() if need > 0}


def _distance(needs: Needs, pod: Object) -> float:
    """Each resource has the same weight, whatever its unit."""
    return sum(max(0, need - preempted(pod, name)) ** 2 / need**2 for name, need in needs.items())


def _size(pod: Object) -> tuple[int, int]:
    return preempted(pod, MEMORY), preempted(pod, CPU)


def _require(needs: Needs) -> None:
    if needs:
        text = "".join(f"(res: {name}, q: {need}), " for name, need in needs.items())
        raise NoVictims(
            "preemption: error finding a set of pods to preempt: no set of running pods "
            "found to reclaim resources: "
            f"[{text}]"
        )
