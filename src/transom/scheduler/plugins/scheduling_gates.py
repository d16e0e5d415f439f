"""SchedulingGates: a pod stays out of the queue until its schedulingGates are removed (Kubernetes
1.26 and later).
"""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.scheduler.framework import Handle, PreEnqueuePlugin, Status, unresolvable
from transom.scheduler.pods import PodInfo


class SchedulingGates(PreEnqueuePlugin):
    name = "SchedulingGates"

    def __init__(self, args: Object, handle: Handle) -> None:
        pass

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        gates = pod.pod["spec"].get("schedulingGates")
        if not gates:
            return None
        names = " ".join(gate.get("name", "") for gate in gates)
        return unresolvable(f"waiting for scheduling gates: [{names}]")
