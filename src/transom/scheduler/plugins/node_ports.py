"""NodePorts: the host ports of the pod must be free on the node."""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows, np
from transom.scheduler.framework import (
    BatchFilterPlugin,
    CycleState,
    Handle,
    NodeStatuses,
    PreFilterPlugin,
    Status,
    all_rows,
    unschedulable,
)
from transom.scheduler.pods import PodInfo

ERR_REASON = "node(s) didn't have free ports for the requested pod ports"
_REJECTED = unschedulable(ERR_REASON)


class NodePorts(PreFilterPlugin, BatchFilterPlugin):
    name = "NodePorts"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._snapshot = handle.snapshot

    def pre_filter(self, state: CycleState, pod: PodInfo) -> Status | None:
        return None

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        ports = pod.shape.ports
        if not ports:
            return None
        users = {row for port in ports for row in self._snapshot.port_users(port)}
        return ~np.isin(rows, list(users)) if users else None

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        return all_rows(_REJECTED, rows)
