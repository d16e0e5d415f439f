"""PodGroup: bind the pods of a group only when enough of them have been given a node."""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.scheduler.framework import (
    Code,
    CycleState,
    FilterPlugin,
    Handle,
    PermitPlugin,
    Status,
    check_args,
    unschedulable,
)
from transom.scheduler.pods import PodInfo
from transom.scheduler.snapshot import NodeInfo

GROUP = "example.org/pod-group"
NO_GROUPS = "example.org/no-groups"
ERR_REASON = "node(s) did not accept pod groups"


class PodGroup(FilterPlugin, PermitPlugin):
    name = "PodGroup"

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("minMembers", "timeoutSeconds"), self.name)
        self._handle = handle
        self._min_members: int = args.get("minMembers", 2)
        self._timeout: float = args.get("timeoutSeconds", 60)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if GROUP in pod.labels and NO_GROUPS in node.labels:
            return unschedulable(ERR_REASON)
        return None

    def permit(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> tuple[Status | None, float]:
        group = pod.labels.get(GROUP)
        if group is None:
            return None, 0
        waiting = [w for w in self._handle.waiting_pods() if w.pod.labels.get(GROUP) == group]
        if len(waiting) + 1 < self._min_members:
            return Status(Code.WAIT), self._timeout
        for member in waiting:
            member.allow(self.name)
        return None, 0
