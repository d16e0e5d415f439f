"""NodeUnschedulable: no pods on cordoned nodes, unless they tolerate just that."""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows
from transom.scheduler.framework import Cycle, Handle, Verdict, Verdicts, everywhere
from transom.scheduler.plugins.taint_toleration import tolerated

_CORDONED = Verdict(("node(s) were unschedulable",), final=True)
_TAINT = ("node.kubernetes.io/unschedulable", "", "NoSchedule")


class NodeUnschedulable:
    name = "NodeUnschedulable"
    static = True

    def __init__(self, args: Object, handle: Handle) -> None:
        pass

    def filter(self, cycle: Cycle, rows: Rows) -> Mask | None:
        if tolerated(_TAINT, cycle.pod.shape.tolerations):
            return None
        return ~cycle.snapshot.unschedulable[rows]

    def verdicts(self, cycle: Cycle, rows: Rows) -> Verdicts:
        return everywhere(_CORDONED, rows)
