"""NodeUnschedulable: rejects cordoned nodes unless the pod tolerates the unschedulable taint."""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.machinery.tolerations import find_toleration
from transom.scheduler.arrays import Mask, Rows
from transom.scheduler.framework import (
    BatchFilterPlugin,
    CycleState,
    Handle,
    NodeStatuses,
    all_rows,
    unresolvable,
)
from transom.scheduler.pods import PodInfo

ERR_REASON = "node(s) were unschedulable"
_REJECTED = unresolvable(ERR_REASON)
_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


class NodeUnschedulable(BatchFilterPlugin):
    name = "NodeUnschedulable"
    static = True

    def __init__(self, args: Object, handle: Handle) -> None:
        self._snapshot = handle.snapshot

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        if find_toleration(pod.shape.tolerations, _TAINT) is not None:
            return None
        return ~self._snapshot.unschedulable[rows]

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        return all_rows(_REJECTED, rows)
