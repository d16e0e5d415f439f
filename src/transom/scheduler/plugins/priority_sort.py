"""PrioritySort: pods with a higher priority first, then in the order of their arrival."""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.scheduler.framework import Handle, QueuedPodInfo, QueueSortPlugin


class PrioritySort(QueueSortPlugin):
    name = "PrioritySort"

    def __init__(self, args: Object, handle: Handle) -> None:
        pass

    def less(self, a: QueuedPodInfo, b: QueuedPodInfo) -> bool:
        first, second = a.pod_info.priority, b.pod_info.priority
        return first > second or (first == second and a.timestamp < b.timestamp)
