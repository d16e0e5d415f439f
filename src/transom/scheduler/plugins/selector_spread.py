"""SelectorSpread: spreads the pods of a Service or controller over nodes and zones.

Off by default: PodTopologySpread has replaced it.
"""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.machinery.selectors import LabelSelector
from transom.scheduler.arrays import Rows, np
from transom.scheduler.framework import (
    MAX_NODE_SCORE,
    BatchScorePlugin,
    CycleState,
    Handle,
    PreScorePlugin,
    Score,
    ScoreExtensions,
    StateKey,
)
from transom.scheduler.pods import PodInfo, intern_pod_selector
from transom.scheduler.zones import zone_key

_ZONE_WEIGHT = 2.0 / 3.0
_SELECTOR = StateKey[LabelSelector]("PreScoreSelectorSpread")


class SelectorSpread(PreScorePlugin, BatchScorePlugin, ScoreExtensions):
    name = "SelectorSpread"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._snapshot = handle.snapshot
        self._owners = handle.owners

    def pre_score(self, state: CycleState, pod: PodInfo, rows: Rows) -> None:
        state.write(_SELECTOR, self._owners.selector(pod.identity))

    def score_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Score:
        selector = state.read(_SELECTOR)
        if pod.shape.spreads or selector.empty:
            return 0
        wanted = intern_pod_selector((frozenset((pod.namespace,)), selector))
        return self._snapshot.counters.counts(wanted, terminating=False)[rows]

    def normalize_score(self, state: CycleState, pod: PodInfo, rows: Rows, scores: Score) -> Score:
        if pod.shape.spreads:
            return 0
        if not isinstance(scores, np.ndarray):
            return MAX_NODE_SCORE
        highest = int(scores.max())
        out = np.full(len(rows), float(MAX_NODE_SCORE))
        if highest > 0:
            out = MAX_NODE_SCORE * ((highest - scores) / highest)
        zones = [zone_key(self._snapshot.at(row).labels) for row in rows]
        sums: dict[str, int] = {}
        for zone, score in zip(zones, scores.tolist(), strict=True):
            if zone:
                sums[zone] = sums.get(zone, 0) + score
        most = max(sums.values(), default=0)
        for i, zone in enumerate(zones):
            if zone:
                share = (
                    MAX_NODE_SCORE * ((most - sums[zone]) / most)
                    if most > 0
                    else float(MAX_NODE_SCORE)
                )
                out[i] = out[i] * (1.0 - _ZONE_WEIGHT) + _ZONE_WEIGHT * share
        return out.astype(np.int64)
