"""The topology manager: on which NUMA nodes a container gets its resources, and which pods are
rejected because their resources would be on different ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from transom.kubelet.cm.hints import NumaMask, TopologyHint, mask_bits

Hints = Sequence[TopologyHint] | None
"""Of one resource: None without a preference, empty when no NUMA nodes can provide it."""


class TopologyPolicy:
    """One of best-effort, restricted and single-numa-node."""

    __slots__ = ("_all", "_name")

    def __init__(self, name: str, numa_nodes: int) -> None:
        self._name = name
        self._all: NumaMask = frozenset(range(numa_nodes))

    def merge(self, hints: Iterable[Hints]) -> tuple[TopologyHint, bool]:
        """The NUMA nodes to use, and whether the pod is admitted."""
        every = [
            [TopologyHint(None, True)] if h is None else [*h] or [TopologyHint(None, False)]
            for h in hints
        ]
        single = self._name == "single-numa-node"
        if single:
            every = [
                [h for h in found if h.preferred and (h.affinity is None or len(h.affinity) == 1)]
                for found in every
            ]
        best = self._best(every)
        if single and best.affinity == self._all:
            best = TopologyHint(None, best.preferred)
        return best, self._name == "best-effort" or best.preferred

    def _best(self, hints: Sequence[Sequence[TopologyHint]]) -> TopologyHint:
        widest = max(
            (min((len(h.affinity) for h in found if h.affinity), default=0) for found in hints),
            default=0,
        )
        best: TopologyHint | None = None
        for permutation in product(*hints):
            merged = self._merged(permutation)
            if merged.affinity and (best is None or self._better(best, merged, widest)):
                best = merged
        return best or TopologyHint(self._all, False)

    def _merged(self, permutation: Sequence[TopologyHint]) -> TopologyHint:
        given = [hint.affinity for hint in permutation if hint.affinity is not None]
        preferred = all(hint.preferred for hint in permutation) and len(set(given)) <= 1
        return TopologyHint(self._all.intersection(*given), preferred)

    @staticmethod
    def _better(current: TopologyHint, candidate: TopologyHint, widest: int) -> bool:
        if current.preferred != candidate.preferred:
            return candidate.preferred
        now, new = current.affinity or frozenset(), candidate.affinity or frozenset()
        narrower = (len(new), mask_bits(new)) < (len(now), mask_bits(now))
        if current.preferred or len(now) > widest:
            return narrower
        if len(now) == widest:
            return len(new) == widest and narrower
        if len(new) != len(now):
            return len(new) <= widest and len(new) > len(now)
        return narrower
