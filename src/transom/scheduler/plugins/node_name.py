"""NodeName: a pod with spec.nodeName fits only on that node."""

from __future__ import annotations

from transom.machinery.objects import Object
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

ERR_REASON = "node(s) didn't match the requested hostname"
_REJECTED = unresolvable(ERR_REASON)


class NodeName(BatchFilterPlugin):
    name = "NodeName"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._snapshot = handle.snapshot

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        wanted = pod.node_name
        if not wanted:
            return None
        info = self._snapshot.nodes.get(wanted)
        return rows == (info.row if info is not None else -1)

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        return all_rows(_REJECTED, rows)
