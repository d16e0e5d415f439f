"""Finding a node for one pod: filter, score, choose. Nothing here waits or writes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from transom.scheduler.arrays import Ints, Mask, Rows
from transom.scheduler.framework import MAX_SCORE, Cycle, Failure, SchedulingError, Verdict, Verdicts
from transom.scheduler.nominator import Nominator
from transom.scheduler.pods import PodInfo
from transom.scheduler.snapshot import Snapshot

if TYPE_CHECKING:
    from transom.scheduler.profile import Profile

NO_NODES = "no nodes available to schedule pods"
_MIN_FEASIBLE = 100
_MIN_PERCENT = 5
_FIRST_LOOK = 1.25  # of the nodes that are to be found, how many are looked at first


class Choice(NamedTuple):
    node: str
    evaluated: int
    feasible: int


class NoNodes(SchedulingError):
    pass


class Finder:
    """Keeps where the last look over the nodes ended: the next one begins there, so that all nodes get their share."""

    def __init__(
        self, snapshot: Snapshot, nominator: Nominator, rng: random.Random, percentage_of_nodes_to_score: int = 0
    ) -> None:
        self._snapshot = snapshot
        self._nominator = nominator
        self._rng = rng
        self._percentage = percentage_of_nodes_to_score
        self._start = 0

    def find(self, pod: PodInfo, profile: Profile) -> tuple[Cycle, Choice | Failure]:
        cycle = Cycle(pod, self._snapshot, profile)
        if not len(self._snapshot):
            raise NoNodes(NO_NODES)
        verdict = pre_filter(cycle)
        if verdict is not None:
            return cycle, Failure(len(self._snapshot), [(verdict, self._snapshot.order)])
        feasible, evaluated = self._feasible(cycle)
        if not len(feasible):
            return cycle, Failure(len(self._snapshot), verdicts(cycle, self._nominator))
        if len(feasible) == 1:
            return cycle, Choice(self._snapshot.name(feasible[0]), evaluated, 1)
        totals = score(cycle, feasible)
        best = np.flatnonzero(totals == totals.max())
        chosen = best[0] if len(best) == 1 else best[self._rng.randrange(len(best))]
        return cycle, Choice(self._snapshot.name(feasible[chosen]), evaluated, len(feasible))

    def _feasible(self, cycle: Cycle) -> tuple[Rows, int]:
        """Rows that will do, enough of them, beginning where the last look ended; and how many nodes were looked at."""
        order = self._snapshot.order
        total = len(order)
        enough = nodes_to_find(total, self._percentage)
        start = self._start = self._start % total
        rows = np.concatenate([order[start:], order[:start]]) if start else order
        found: list[Rows] = []
        count = at = 0
        step = total if enough == total else int(enough * _FIRST_LOOK)
        while at < total and count < enough:
            some = passing(cycle, rows[at:at + step], self._nominator)
            found.append(some)
            count += len(some)
            at += step
        feasible = found[0] if len(found) == 1 else np.concatenate(found)
        looked_at = total
        if len(feasible) >= enough and enough < total:
            feasible = feasible[:enough]
            looked_at = (self._snapshot.position(feasible[-1]) - start) % total + 1
        self._start = (start + looked_at) % total
        return feasible, looked_at


def nodes_to_find(nodes: int, percentage: int) -> int:
    """How many nodes that will do are enough: of many nodes only a part is looked at, the smaller the more there are."""
    if nodes < _MIN_FEASIBLE or percentage >= 100:
        return nodes
    if percentage <= 0:
        percentage = max(50 - nodes // 125, _MIN_PERCENT)
    return max(nodes * percentage // 100, _MIN_FEASIBLE)


def pre_filter(cycle: Cycle) -> Verdict | None:
    for plugin in cycle.profile.points["preFilter"]:
        try:
            verdict: Verdict | None = plugin.pre_filter(cycle)
        except SchedulingError as problem:
            raise SchedulingError(f'running PreFilter plugin "{plugin.name}": {problem}') from problem
        if verdict is not None:
            return verdict
    return None


def passing(cycle: Cycle, rows: Rows, nominator: Nominator) -> Rows:
    """The rows that all filters let pass, with and without the pods that were promised room there."""
    rows = rows[_static_mask(cycle)[rows]]
    for plugin in cycle.profile.dynamic_filters:
        if not len(rows):
            return rows
        mask = _run(plugin, cycle, rows)
        if mask is not None:
            rows = rows[mask]
    if nominator and len(rows):
        refused = [
            row for name in nominator.nodes
            if (row := _row(cycle, name)) >= 0 and row in rows and crowded_out(cycle, row, nominator) is not None
        ]
        if refused:
            rows = rows[~np.isin(rows, refused)]
    return rows


def _static_mask(cycle: Cycle) -> Mask:
    """What static filters say of every row; kept with the pod's shape until a node changes."""
    snapshot, shape = cycle.snapshot, cycle.pod.shape
    version = snapshot.static.version
    kept = shape.memo.get(cycle.profile)
    if kept is not None and kept[0] == version and len(kept[1]) == snapshot.capacity and kept[2] is snapshot:
        return cast(Mask, kept[1])
    rows = np.arange(snapshot.capacity)
    out = np.ones(snapshot.capacity, np.bool_)
    for plugin in cycle.profile.static_filters:
        mask = _run(plugin, cycle, rows)
        if mask is not None:
            out &= mask
    shape.memo[cycle.profile] = version, out, snapshot
    return out


def _run(plugin: Any, cycle: Cycle, rows: Rows) -> Mask | None:
    try:
        return cast("Mask | None", plugin.filter(cycle, rows))
    except SchedulingError as problem:
        text = f'running "{plugin.name}" filter plugin for pod "{cycle.pod.name}": {problem}'
        raise SchedulingError(text) from problem


def _row(cycle: Cycle, name: str) -> int:
    info = cycle.snapshot.nodes.get(name)
    return info.row if info is not None and info.node is not None else -1


def promised(cycle: Cycle, row: int, nominator: Nominator) -> list[PodInfo]:
    """The pods that were promised room in this row and that this pod may not push aside."""
    pod = cycle.pod
    name = cycle.snapshot.name(row)
    return [p for p in nominator.on(name) if p.priority >= pod.priority and p.uid != pod.uid]


def crowded_out(cycle: Cycle, row: int, nominator: Nominator) -> Verdict | None:
    """The verdict on a node if the pods that were promised room there had it already; None: the pod fits beside them."""
    pods = promised(cycle, row, nominator)
    if not pods:
        return None
    with cycle.snapshot.with_pods(pods, cycle.snapshot.name(row)):
        found = first_verdicts(cycle, np.array([row], np.intp))
    return found[0][0] if found else None


def concerned(cycle: Cycle, row: int) -> list[Any]:
    """The filters that could refuse a node because of the pods on it. One that has nothing to say of a node as it is has
    nothing to say when pods are gone either."""
    rows = np.array([row], np.intp)
    return [plugin for plugin in cycle.profile.dynamic_filters if _run(plugin, cycle, rows) is not None]


def fits(cycle: Cycle, row: int, nominator: Nominator, filters: Sequence[Any]) -> bool:
    """Whether these filters let the pod run there, as things are in the snapshot."""
    rows = np.array([row], np.intp)
    for plugin in filters:
        if hasattr(plugin, "filter_row"):
            if not plugin.filter_row(cycle, row):
                return False
            continue
        mask = _run(plugin, cycle, rows)
        if mask is not None and not mask[0]:
            return False
    return not nominator or crowded_out(cycle, row, nominator) is None


def first_verdicts(cycle: Cycle, rows: Rows) -> Verdicts:
    """For each row that is refused, the verdict of the first filter that refuses it."""
    out: Verdicts = []
    for plugin in cycle.profile.filters:
        if not len(rows):
            break
        mask = _run(plugin, cycle, rows)
        if mask is not None and not mask.all():
            out += plugin.verdicts(cycle, rows[~mask])
            rows = rows[mask]
    return out


def verdicts(cycle: Cycle, nominator: Nominator) -> Verdicts:
    """Why no node will do: the verdict on each."""
    rows = cycle.snapshot.order
    out: Verdicts = []
    for name in nominator.nodes:
        row = _row(cycle, name)
        verdict = crowded_out(cycle, row, nominator) if row >= 0 else None
        if verdict is not None:
            out.append((verdict, np.array([row], np.intp)))
            rows = rows[rows != row]
    return out + first_verdicts(cycle, rows)


def score(cycle: Cycle, rows: Rows) -> Ints:
    """The sum of all weighted scores."""
    totals = np.zeros(len(rows), np.int64)
    same = 0  # for all rows
    for _, scores, weight in scores_by_plugin(cycle, rows):
        if isinstance(scores, int):
            same += scores * weight
        else:
            totals += scores if weight == 1 else scores * weight
    totals += same
    return totals


def scores_by_plugin(cycle: Cycle, rows: Rows) -> list[tuple[str, Ints | int, int]]:
    """Each plugin's scores, 0 to 100, and its weight."""
    for plugin in cycle.profile.points["preScore"]:
        plugin.pre_score(cycle, rows)
    out = []
    for plugin, weight in cycle.profile.scores:
        scores = plugin.score(cycle, rows)
        normalize = getattr(plugin, "normalize", None)
        if normalize is not None:
            scores = normalize(cycle, rows, scores)
        if isinstance(scores, int):
            wrong = scores if not 0 <= scores <= MAX_SCORE else None
        elif scores.astype(np.uint64).max() > MAX_SCORE:  # one look for both bounds: a negative number is a large one then
            wrong = int(scores.min()) if scores.min() < 0 else int(scores.max())
        else:
            wrong = None
        if wrong is not None:
            raise SchedulingError(
                f'applying score defaultWeights on Score plugins: plugin "{plugin.name}" returns an invalid score {wrong}, '
                f"it should in the range of [0, {MAX_SCORE}] after normalizing"
            )
        out.append((plugin.name, scores, weight))
    return out
