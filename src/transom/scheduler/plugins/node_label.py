"""NodeLabel: requires or prefers nodes with some labels and without others. Off by default."""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows, np
from transom.scheduler.errors import SchedulerConfigError
from transom.scheduler.framework import (
    MAX_NODE_SCORE,
    BatchFilterPlugin,
    BatchScorePlugin,
    CycleState,
    Handle,
    NodeStatuses,
    Score,
    all_rows,
    check_args,
    unresolvable,
)
from transom.scheduler.pods import PodInfo

ERR_REASON_PRESENCE_VIOLATED = "node(s) didn't have the requested labels"
_REJECTED = unresolvable(ERR_REASON_PRESENCE_VIOLATED)
_ARGS = ("presentLabels", "absentLabels", "presentLabelsPreference", "absentLabelsPreference")


class NodeLabel(BatchFilterPlugin, BatchScorePlugin):
    name = "NodeLabel"
    static = True

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, _ARGS, self.name)
        self._snapshot = handle.snapshot
        self._present, self._absent, self._preferred, self._avoided = (
            list(args.get(name) or ()) for name in _ARGS
        )
        for present, absent in ((self._present, self._absent), (self._preferred, self._avoided)):
            for label in absent:
                if label in present:
                    raise SchedulerConfigError(
                        f'initializing plugin "{self.name}": detecting at least one label (e.g., "{label}") that exist in '
                        f"both the present([{' '.join(present)}]) and absent([{' '.join(absent)}]) label list"
                    )

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        out = np.ones(len(rows), np.bool_)
        for label in self._present:
            out &= self._snapshot.labels.codes(label)[rows] >= 0
        for label in self._absent:
            out &= self._snapshot.labels.codes(label)[rows] < 0
        return out

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        return all_rows(_REJECTED, rows)

    def score_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Score:
        requested = len(self._preferred) + len(self._avoided)
        if not requested:
            return 0
        total = np.zeros(len(rows), np.int64)
        for label in self._preferred:
            total += self._snapshot.labels.codes(label)[rows] >= 0
        for label in self._avoided:
            total += self._snapshot.labels.codes(label)[rows] < 0
        return total * MAX_NODE_SCORE // requested
