"""NodeResourcesLeastAllocated and NodeResourcesMostAllocated: prefer empty nodes, or full ones."""

from __future__ import annotations

from typing import cast

import numpy as np

from transom.machinery.objects import Object
from transom.scheduler.arrays import Ints, Rows, Some
from transom.scheduler.framework import MAX_SCORE, Cycle, Handle, Score, check_args
from transom.scheduler.plugins.allocation import amounts, check_weights, read_resources, requests_of
from transom.scheduler.snapshot import Snapshot


class _Allocated:
    name = ""

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("resources",), self.name)
        # A resource named twice counts with its last weight.
        self._resources = tuple(dict(read_resources(args)).items())
        check_weights(self._resources, self.name)
        self._weights = sum(weight for _, weight in self._resources)

    def score(self, cycle: Cycle, rows: Rows) -> Score:
        snapshot = cycle.snapshot
        wanted = requests_of(cycle.pod.shape, self._resources)
        key = self.name, self._resources, wanted
        return cast(Ints, snapshot.usage.get(key, lambda some: self._scores(snapshot, wanted, some), slices=True))[rows]

    def _scores(self, snapshot: Snapshot, wanted: tuple[int, ...], rows: Some) -> Ints:
        total = np.zeros_like(snapshot.alloc_cpu[rows])
        for (name, weight), want in zip(self._resources, wanted, strict=True):
            has, requested = amounts(snapshot, name, want, rows)
            total += self._one(has, requested) * weight
        return total // self._weights

    def _one(self, has: Ints, requested: Ints) -> Ints:
        raise NotImplementedError


class LeastAllocated(_Allocated):
    name = "NodeResourcesLeastAllocated"

    def _one(self, has: Ints, requested: Ints) -> Ints:
        return np.maximum(has - requested, 0) * MAX_SCORE // np.maximum(has, 1)


class MostAllocated(_Allocated):
    name = "NodeResourcesMostAllocated"

    def _one(self, has: Ints, requested: Ints) -> Ints:
        return np.minimum(requested, has) * MAX_SCORE // np.maximum(has, 1)
