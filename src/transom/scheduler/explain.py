"""Explains a scheduling decision: the result of each filter and score plugin for each node, for the
current state of the cluster.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from transom.client.api import ApiClient
from transom.client.resources import PODS
from transom.kit.lazy_dataclass import dataclass
from transom.machinery.objects import Object
from transom.scheduler.arrays import np
from transom.scheduler.cycle import (
    NO_NODES_AVAILABLE,
    filtered_nodes_statuses,
    nodes_that_pass_filters,
)
from transom.scheduler.errors import SchedulingError
from transom.scheduler.framework import CycleState, FitError
from transom.scheduler.pods import PodInfo
from transom.scheduler.runtime import Framework
from transom.scheduler.scheduler import Scheduler


@dataclass(slots=True)
class NodeExplanation:
    """`reasons`: why filter plugins reject the node. `scores`: score and weight by plugin, if none
    rejects it.
    """

    name: str
    reasons: dict[str, list[str]] = field(default_factory=dict)
    scores: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(score * weight for score, weight in self.scores.values())


@dataclass(slots=True)
class SchedulingExplanation:
    """`message` is that of the FailedScheduling event; `node` is the node that the pod is bound to,
    if any.
    """

    namespace: str
    pod: str
    scheduler: str
    node: str = ""
    message: str = ""
    filters: list[str] = field(default_factory=list)
    nodes: list[NodeExplanation] = field(default_factory=list)

    def best(self) -> list[NodeExplanation]:
        """The nodes with the highest score. The scheduler selects one of them at random."""
        feasible = [node for node in self.nodes if not node.reasons]
        highest = max((node.total for node in feasible), default=0)
        return [node for node in feasible if node.total == highest]

    def document(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "pod": self.pod,
            "schedulerName": self.scheduler,
            "nodeName": self.node,
            "message": self.message,
            "best": [node.name for node in self.best()],
            "nodes": [
                {
                    "name": node.name,
                    "feasible": not node.reasons,
                    "reasons": node.reasons,
                    "scores": {
                        name: {"score": score, "weight": weight}
                        for name, (score, weight) in node.scores.items()
                    },
                    "total": node.total,
                }
                for node in self.nodes
            ],
        }


async def explain_pod(
    scheduler: Scheduler, client: ApiClient, namespace: str, name: str
) -> SchedulingExplanation:
    """Uses the informers of a scheduler that is not running."""
    pod = await client.get(PODS, namespace, name)
    scheduler.informers.start()
    try:
        await scheduler.informers.synced()
        return explain_scheduling(scheduler, pod)
    finally:
        await scheduler.informers.stop()


def explain_scheduling(scheduler: Scheduler, pod: Object) -> SchedulingExplanation:
    profile_name = pod["spec"].get("schedulerName", "")
    meta = pod["metadata"]
    out = SchedulingExplanation(
        meta["namespace"], meta["name"], profile_name, node=pod["spec"].get("nodeName", "")
    )
    framework = scheduler.profiles.get(profile_name)
    if framework is None:
        out.message = f'profile not found for scheduler name "{profile_name}"'
        return out
    out.filters = [plugin.name for plugin in framework.filter_plugins]
    # Restore the state before the pod was bound.
    scheduler.cache.remove_pod(meta["uid"])
    spec = {k: v for k, v in pod["spec"].items() if k != "nodeName"}
    try:
        _evaluate(framework, PodInfo({**pod, "spec": spec}), out)
    except SchedulingError as error:
        out.message = str(error)
    return out


def _evaluate(framework: Framework, pod: PodInfo, out: SchedulingExplanation) -> None:
    snapshot, state = framework.snapshot, CycleState()
    if not len(snapshot):
        out.message = NO_NODES_AVAILABLE
        return
    rows = snapshot.order
    nodes = {row: NodeExplanation(snapshot.name(row)) for row in rows.tolist()}
    out.nodes = [*nodes.values()]
    rejected = framework.run_pre_filter_plugins(state, pod)
    if rejected is not None:
        for node in nodes.values():
            node.reasons["PreFilter"] = list(rejected.reasons)
        message = rejected.message if framework.rules.pre_filter_message else ""
        out.message = str(FitError(len(snapshot), [(rejected, rows)], message))
        return
    for plugin, statuses in framework.run_all_filter_plugins(state, pod, rows):
        for status, some in statuses:
            for row in some.tolist():
                nodes[row].reasons[plugin] = list(status.reasons)
    feasible = nodes_that_pass_filters(framework, state, pod, rows)
    for row in [r for r in rows.tolist() if not nodes[r].reasons and r not in feasible]:
        nodes[row].reasons["nominated pods"] = _nominated_pods_reasons(framework, state, pod, row)
    if not len(feasible):
        statuses = filtered_nodes_statuses(framework, state, pod)
        out.message = str(FitError(len(snapshot), statuses))
        return
    framework.run_pre_score_plugins(state, pod, feasible)
    for plugin, scores, weight in framework.run_score_plugins(state, pod, feasible):
        values = np.broadcast_to(scores, len(feasible)).tolist()
        for row, value in zip(feasible.tolist(), values, strict=True):
            nodes[row].scores[plugin] = (value, weight)


def _nominated_pods_reasons(
    framework: Framework, state: CycleState, pod: PodInfo, row: int
) -> list[str]:
    status = framework.filter_with_nominated_pods(state, pod, row)
    nominated = ", ".join(p.key for p in framework.nominated_pods(pod, row))
    return [*(status.reasons if status else ()), f"beside {nominated}"]
