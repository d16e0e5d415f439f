"""NodeName: a pod that names its node fits only there."""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows
from transom.scheduler.framework import Cycle, Handle, Verdict, Verdicts, everywhere

_OTHER = Verdict(("node(s) didn't match the requested hostname",), final=True)


class NodeName:
    name = "NodeName"

    def __init__(self, args: Object, handle: Handle) -> None:
        pass

    def filter(self, cycle: Cycle, rows: Rows) -> Mask | None:
        wanted = cycle.pod.node_name
        if not wanted:
            return None
        info = cycle.snapshot.nodes.get(wanted)
        return rows == (info.row if info is not None else -1)

    def verdicts(self, cycle: Cycle, rows: Rows) -> Verdicts:
        return everywhere(_OTHER, rows)
