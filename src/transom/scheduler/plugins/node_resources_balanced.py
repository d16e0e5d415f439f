"""NodeResourcesBalancedAllocation: prefers nodes where CPU and memory are used in the same
proportion.
"""

from __future__ import annotations

from typing import cast

from transom.machinery.objects import Object
from transom.scheduler.arrays import Floats, Ints, Rows, Some, np
from transom.scheduler.framework import MAX_NODE_SCORE, BatchScorePlugin, CycleState, Handle, Score
from transom.scheduler.plugins.allocation import DEFAULT_RESOURCES, allocated_amounts, requests_of
from transom.scheduler.pods import PodInfo
from transom.scheduler.snapshot import Snapshot


class BalancedAllocation(BatchScorePlugin):
    name = "NodeResourcesBalancedAllocation"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._snapshot = handle.snapshot

    def score_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Score:
        snapshot = self._snapshot
        wanted = requests_of(pod.shape, DEFAULT_RESOURCES)
        key = self.name, wanted
        return cast(
            Ints, snapshot.usage.get(key, lambda some: _scores(snapshot, wanted, some), slices=True)
        )[rows]


def _scores(snapshot: Snapshot, wanted: tuple[int, ...], rows: Some) -> Ints:
    cpu, memory = (
        _fraction(*allocated_amounts(snapshot, name, want, rows))
        for (name, _), want in zip(DEFAULT_RESOURCES, wanted, strict=True)
    )
    scores = ((1 - np.abs(cpu - memory)) * MAX_NODE_SCORE).astype(np.int64)
    scores[(cpu >= 1) | (memory >= 1)] = 0
    return scores


def _fraction(has: Ints, requested: Ints) -> Floats:
    return np.where(has == 0, 1.0, requested / np.maximum(has, 1))
