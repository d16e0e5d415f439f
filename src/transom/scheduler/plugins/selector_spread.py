"""SelectorSpread: spread what one Service or owner selects over nodes and zones. PodTopologySpread does that by default;
a configuration may still ask for this older way."""

from __future__ import annotations

import numpy as np

from transom.machinery.objects import Object
from transom.scheduler.arrays import Rows
from transom.scheduler.framework import MAX_SCORE, Cycle, Handle, Score
from transom.scheduler.owners import owners
from transom.scheduler.pods import predicate
from transom.scheduler.zones import zone_of

_ZONE_WEIGHT = 2.0 / 3.0


class SelectorSpread:
    name = "SelectorSpread"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._owners = owners(handle)

    def pre_score(self, cycle: Cycle, rows: Rows) -> None:
        cycle.state[self.name] = self._owners.selector(cycle.pod.identity)

    def score(self, cycle: Cycle, rows: Rows) -> Score:
        selector = cycle.state[self.name]
        if cycle.pod.shape.spreads or selector.empty:
            return 0
        wanted = predicate((frozenset((cycle.pod.namespace,)), selector))
        return cycle.snapshot.counters.counts(wanted, terminating=False)[rows]

    def normalize(self, cycle: Cycle, rows: Rows, scores: Score) -> Score:
        if cycle.pod.shape.spreads:
            return 0
        if not isinstance(scores, np.ndarray):
            return MAX_SCORE
        highest = int(scores.max())
        out = np.full(len(rows), float(MAX_SCORE))
        if highest > 0:
            out = MAX_SCORE * ((highest - scores) / highest)
        zones = [zone_of(cycle.snapshot.at(row).labels) for row in rows]
        sums: dict[str, int] = {}
        for zone, score in zip(zones, scores.tolist(), strict=True):
            if zone:
                sums[zone] = sums.get(zone, 0) + score
        most = max(sums.values(), default=0)
        for i, zone in enumerate(zones):
            if zone:
                share = MAX_SCORE * ((most - sums[zone]) / most) if most > 0 else float(MAX_SCORE)
                out[i] = out[i] * (1.0 - _ZONE_WEIGHT) + _ZONE_WEIGHT * share
        return out.astype(np.int64)
