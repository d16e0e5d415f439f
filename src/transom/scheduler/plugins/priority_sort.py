"""PrioritySort: the order of the queue. The queue itself knows it; being here lets a configuration name it."""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.scheduler.framework import Handle
from transom.scheduler.pods import PodInfo


class PrioritySort:
    name = "PrioritySort"

    def __init__(self, args: Object, handle: Handle) -> None:
        pass

    def queue_sort(self, pod: PodInfo, since: float) -> tuple[float, float]:
        """Highest priority first, then first come."""
        return -pod.priority, since
