"""Why a pod goes where it goes: each plugin's verdict and score on each node, as things are now."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from transom.client.api import Client
from transom.client.resources import PODS
from transom.machinery.objects import Object
from transom.scheduler import cycle as cycles
from transom.scheduler.arrays import Rows
from transom.scheduler.framework import Cycle, Failure, SchedulingError
from transom.scheduler.pods import PodInfo
from transom.scheduler.profile import Profile
from transom.scheduler.scheduler import Scheduler


@dataclass(slots=True)
class NodeView:
    """`reasons`: what each filter that refuses the node says. `scores`: score and weight by plugin, if none does."""

    name: str
    reasons: dict[str, list[str]] = field(default_factory=dict)
    scores: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(score * weight for score, weight in self.scores.values())


@dataclass(slots=True)
class Explanation:
    """`message` is what an event would say if no node will do; `node` is where the pod runs already, if it does."""

    namespace: str
    pod: str
    scheduler: str
    node: str = ""
    message: str = ""
    filters: list[str] = field(default_factory=list)
    nodes: list[NodeView] = field(default_factory=list)

    def best(self) -> list[NodeView]:
        """The nodes with the highest score: one of them is chosen, by lot."""
        able = [node for node in self.nodes if not node.reasons]
        highest = max((node.total for node in able), default=0)
        return [node for node in able if node.total == highest]


async def explain_pod(scheduler: Scheduler, client: Client, namespace: str, name: str) -> Explanation:
    """Looks with the informers of a scheduler that does not run."""
    pod = await client.get(PODS, namespace, name)
    scheduler.informers.start()
    try:
        await scheduler.informers.synced()
        return explain(scheduler, pod)
    finally:
        await scheduler.informers.stop()


def explain(scheduler: Scheduler, pod: Object) -> Explanation:
    wanted = pod["spec"].get("schedulerName", "")
    meta = pod["metadata"]
    out = Explanation(meta["namespace"], meta["name"], wanted, node=pod["spec"].get("nodeName", ""))
    profile = scheduler.profiles.get(wanted)
    if profile is None:
        out.message = f'profile not found for scheduler name "{wanted}"'
        return out
    out.filters = [plugin.name for plugin in profile.filters]
    # As it was before the pod had a node.
    scheduler.cache.delete(meta["uid"])
    spec = {k: v for k, v in pod["spec"].items() if k != "nodeName"}
    cycle = Cycle(PodInfo({**pod, "spec": spec}), scheduler.snapshot, profile)
    try:
        _look(scheduler, cycle, profile, out)
    except SchedulingError as problem:
        out.message = str(problem)
    return out


def _look(scheduler: Scheduler, cycle: Cycle, profile: Profile, out: Explanation) -> None:
    snapshot = scheduler.snapshot
    if not len(snapshot):
        out.message = cycles.NO_NODES
        return
    rows = snapshot.order
    views = {row: NodeView(snapshot.name(row)) for row in rows.tolist()}
    out.nodes = [*views.values()]
    verdict = cycles.pre_filter(cycle)
    if verdict is not None:
        for view in views.values():
            view.reasons["PreFilter"] = list(verdict.reasons)
        out.message = Failure(len(snapshot), [(verdict, rows)]).message
        return
    refused: set[int] = set()
    for plugin in profile.filters:
        mask = plugin.filter(cycle, rows)
        if mask is None or mask.all():
            continue
        for verdict, some in plugin.verdicts(cycle, rows[~mask]):
            for row in some.tolist():
                views[row].reasons[plugin.name] = list(verdict.reasons)
                refused.add(row)
    able = cycles.passing(cycle, rows, scheduler.nominator)
    for row in set(rows.tolist()) - refused - set(able.tolist()):
        verdict = cycles.crowded_out(cycle, row, scheduler.nominator)
        promised = [pod.key for pod in cycles.promised(cycle, row, scheduler.nominator)]
        views[row].reasons["nominated pods"] = [*(verdict.reasons if verdict else ()), f"beside {', '.join(promised)}"]
    if len(able):
        _score(cycle, able, views)
    else:
        out.message = Failure(len(snapshot), cycles.verdicts(cycle, scheduler.nominator)).message


def _score(cycle: Cycle, rows: Rows, views: dict[int, NodeView]) -> None:
    for name, scores, weight in cycles.scores_by_plugin(cycle, rows):
        values = np.broadcast_to(scores, len(rows)).tolist()
        for row, value in zip(rows.tolist(), values, strict=True):
            views[row].scores[name] = (value, weight)
