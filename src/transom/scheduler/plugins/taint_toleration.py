"""TaintToleration: rejects nodes with taints that the pod does not tolerate, and avoids
PreferNoSchedule taints.

Nodes with the same taints share a number; tolerations are matched once for each set of taints.
"""

from __future__ import annotations

from collections.abc import Iterable

from transom.machinery.objects import Object
from transom.machinery.tolerations import DO_NOT_SCHEDULE, TolerationIndex
from transom.scheduler.arrays import Ints, Mask, Rows, np
from transom.scheduler.framework import (
    BatchFilterPlugin,
    BatchScorePlugin,
    CycleState,
    Handle,
    NodeStatuses,
    PreScorePlugin,
    Score,
    ScoreExtensions,
    StateKey,
    default_normalize_score,
    unresolvable,
)
from transom.scheduler.pods import PodInfo
from transom.scheduler.snapshot import Snapshot, Taint

_SOFT = "PreferNoSchedule"


_TOLERATIONS = StateKey[TolerationIndex]("PreScoreTaintToleration")


def first_untolerated(taints: Iterable[Taint], tolerations: TolerationIndex) -> Taint | None:
    """The first NoSchedule or NoExecute taint that is not tolerated."""
    return next(
        (t for t in taints if t[2] in DO_NOT_SCHEDULE and not tolerations.tolerates(*t)), None
    )


def tolerated_rows(snapshot: Snapshot, pod: PodInfo, rows: Rows) -> Mask:
    """The rows without a NoSchedule or NoExecute taint that the pod does not tolerate."""
    tolerations = TolerationIndex(pod.shape.tolerations)
    free = np.array(
        [first_untolerated(taints, tolerations) is None for taints in snapshot.taint_sets], np.bool_
    )
    return free[snapshot.taints[rows]]


class TaintToleration(BatchFilterPlugin, PreScorePlugin, BatchScorePlugin, ScoreExtensions):
    name = "TaintToleration"
    static = True

    def __init__(self, args: Object, handle: Handle) -> None:
        self._snapshot = handle.snapshot
        self._reason = handle.rules.untolerated_taint

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        if len(self._snapshot.taint_sets) == 1:
            return None
        return tolerated_rows(self._snapshot, pod, rows)

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        codes = self._snapshot.taints[rows]
        tolerations = TolerationIndex(pod.shape.tolerations)
        out: NodeStatuses = []
        for code in np.unique(codes):
            taint = first_untolerated(self._snapshot.taint_sets[code], tolerations)
            assert taint is not None
            reason = self._reason.format(key=taint[0], value=taint[1])
            out.append((unresolvable(reason), rows[codes == code]))
        return out

    def pre_score(self, state: CycleState, pod: PodInfo, rows: Rows) -> None:
        soft = [t for t in pod.shape.tolerations if not t.get("effect") or t["effect"] == _SOFT]
        state.write(_TOLERATIONS, TolerationIndex(soft))

    def score_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Score:
        """How many soft taints the pod does not tolerate."""
        sets = self._snapshot.taint_sets
        if not any(t[2] == _SOFT for taints in sets for t in taints):
            return 0
        tolerations = state.read(_TOLERATIONS)
        counts: Ints = np.array(
            [
                sum(t[2] == _SOFT and not tolerations.tolerates(*t) for t in taints)
                for taints in sets
            ],
            np.int64,
        )
        return counts[self._snapshot.taints[rows]] if counts.any() else 0

    def normalize_score(self, state: CycleState, pod: PodInfo, rows: Rows, scores: Score) -> Score:
        return default_normalize_score(scores, reverse=True)
