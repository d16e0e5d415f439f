"""NodeResourcesLeastAllocated prefers nodes with few allocated resources,
NodeResourcesMostAllocated the opposite.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import cast

from transom.machinery.objects import Object
from transom.scheduler.arrays import Ints, Rows, Some, np
from transom.scheduler.framework import (
    MAX_NODE_SCORE,
    BatchScorePlugin,
    CycleState,
    Handle,
    Score,
    check_args,
)
from transom.scheduler.plugins.allocation import (
    allocated_amounts,
    check_weights,
    read_resources,
    requests_of,
)
from transom.scheduler.pods import PodInfo
from transom.scheduler.snapshot import Snapshot


class _Allocated(BatchScorePlugin):
    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("resources",), self.name)
        self._snapshot = handle.snapshot
        # The last weight of a resource that is listed twice wins.
        self._resources = tuple(dict(read_resources(args)).items())
        check_weights(self._resources, self.name)
        self._weights = sum(weight for _, weight in self._resources)

    def score_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Score:
        snapshot = self._snapshot
        wanted = requests_of(pod.shape, self._resources)
        key = self.name, self._resources, wanted
        return cast(
            Ints,
            snapshot.usage.get(key, lambda some: self._scores(snapshot, wanted, some), slices=True),
        )[rows]

    def _scores(self, snapshot: Snapshot, wanted: tuple[int, ...], rows: Some) -> Ints:
        total = np.zeros_like(snapshot.alloc_cpu[rows])
        for (name, weight), want in zip(self._resources, wanted, strict=True):
            has, requested = allocated_amounts(snapshot, name, want, rows)
            total += self._score_resource(has, requested) * weight
        return total // self._weights

    @abstractmethod
    def _score_resource(self, allocatable: Ints, requested: Ints) -> Ints: ...


class LeastAllocated(_Allocated):
    name = "NodeResourcesLeastAllocated"

    def _score_resource(self, allocatable: Ints, requested: Ints) -> Ints:
        return np.maximum(allocatable - requested, 0) * MAX_NODE_SCORE // np.maximum(allocatable, 1)


class MostAllocated(_Allocated):
    name = "NodeResourcesMostAllocated"

    def _score_resource(self, allocatable: Ints, requested: Ints) -> Ints:
        return np.minimum(requested, allocatable) * MAX_NODE_SCORE // np.maximum(allocatable, 1)
