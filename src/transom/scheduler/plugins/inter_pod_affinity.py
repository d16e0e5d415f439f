"""InterPodAffinity: pod affinity and anti-affinity of the pod, and of the pods that run already.

The pods that match a term, and the pods that have a term, are counted in each domain of its
topology key.
"""

from __future__ import annotations

from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object
from transom.scheduler.arrays import Ints, Mask, Rows, np
from transom.scheduler.counters import TermCounters, by_domain
from transom.scheduler.errors import SchedulerConfigError, SchedulingError
from transom.scheduler.framework import (
    MAX_NODE_SCORE,
    BatchFilterPlugin,
    BatchScorePlugin,
    CycleState,
    Handle,
    NodeStatuses,
    PreFilterPlugin,
    PreScorePlugin,
    Score,
    ScoreExtensions,
    StateKey,
    Status,
    check_args,
    unresolvable,
    unschedulable,
)
from transom.scheduler.pods import (
    AffinityTerm,
    PodIdentity,
    PodInfo,
    PodSelector,
    intern_pod_selector,
)

ERR_REASON_AFFINITY_RULES = "node(s) didn't match pod affinity rules"
ERR_REASON_ANTI_AFFINITY_RULES = "node(s) didn't match pod anti-affinity rules"
ERR_REASON_EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"
_ALL_AFFINITY_TERMS = StateKey["PodSelector | None"]("PreFilterInterPodAffinity")
_WEIGHTED_COUNTS = StateKey[list[tuple[str, Ints, int]]]("PreScoreInterPodAffinity")


class _PodAffinity(NamedTuple):
    affinity: tuple[AffinityTerm, ...]
    together: PodSelector | None  # matches pods that match all affinity terms
    anti_affinity: tuple[AffinityTerm, ...]
    existing: list[AffinityTerm]  # anti-affinity terms of running pods that match this one


class InterPodAffinity(
    PreFilterPlugin, BatchFilterPlugin, PreScorePlugin, BatchScorePlugin, ScoreExtensions
):
    name = "InterPodAffinity"

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("hardPodAffinityWeight",), self.name)
        self._snapshot = handle.snapshot
        before = handle.rules.pod_affinity
        self._affinity = unresolvable(*before, ERR_REASON_AFFINITY_RULES)
        self._anti_affinity = unschedulable(*before, ERR_REASON_ANTI_AFFINITY_RULES)
        self._existing = unschedulable(*before, ERR_REASON_EXISTING_ANTI_AFFINITY)
        weight = args.get("hardPodAffinityWeight")
        self._hard_weight: int = 1 if weight is None else weight
        if not 0 <= self._hard_weight <= 100:
            raise SchedulerConfigError(
                f'initializing plugin "{self.name}": hardPodAffinityWeight: Invalid value: '
                f"{self._hard_weight}: not in valid range [0-100]"
            )

    # ---- filter ----

    def pre_filter(self, state: CycleState, pod: PodInfo) -> Status | None:
        terms = pod.shape.terms
        if terms.problem:
            return unresolvable(f"parsing pod: {terms.problem}")
        together = (
            intern_pod_selector(
                *(pair for term in terms.affinity for pair in term.pod_selector.pairs)
            )
            if terms.affinity
            else None
        )
        state.write(_ALL_AFFINITY_TERMS, together)
        return None

    def _pod_affinity(self, state: CycleState, pod: PodInfo) -> _PodAffinity:
        terms, identity = pod.shape.terms, pod.identity
        together = state.read(_ALL_AFFINITY_TERMS)
        existing = [
            term
            for term, _ in self._snapshot.anti_affinity.items()
            if term.pod_selector.matches(identity)
        ]
        return _PodAffinity(terms.affinity, together, terms.anti_affinity, existing)

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        affinity = self._pod_affinity(state, pod)
        if not (affinity.affinity or affinity.anti_affinity or affinity.existing):
            return None
        near = self._satisfies_pod_affinity(pod, affinity, rows)
        away = self._satisfies_pod_anti_affinity(pod, affinity, rows)
        return near & away & self._satisfies_existing_pods_anti_affinity(pod, affinity, rows)

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        affinity = self._pod_affinity(state, pod)
        out: NodeStatuses = []
        for status, check in (
            (self._affinity, self._satisfies_pod_affinity),
            (self._anti_affinity, self._satisfies_pod_anti_affinity),
            (self._existing, self._satisfies_existing_pods_anti_affinity),
        ):
            if not len(rows):
                break
            holds = check(pod, affinity, rows)
            if not holds.all():
                out.append((status, rows[~holds]))
            rows = rows[holds]
        return out

    def _satisfies_pod_affinity(self, pod: PodInfo, affinity: _PodAffinity, rows: Rows) -> Mask:
        """Nodes with all topology keys, in domains with pods that match. The first pod of a group
        with affinity to itself can run in any domain.
        """
        out = np.ones(len(rows), np.bool_)
        if affinity.together is None:
            return out
        counts = self._snapshot.counters.counts(affinity.together, terminating=True)
        labelled, no_match = out.copy(), True
        for term in affinity.affinity:
            codes = self._snapshot.labels.codes(term.key)
            sums = by_domain(codes, counts)
            no_match &= not sums.any()
            labelled &= codes[rows] >= 0
            out &= sums[codes[rows]] > 0
        if no_match and affinity.together.matches(pod.identity):
            return labelled
        return out & labelled

    def _satisfies_pod_anti_affinity(
        self, pod: PodInfo, affinity: _PodAffinity, rows: Rows
    ) -> Mask:
        out = np.ones(len(rows), np.bool_)
        for term in affinity.anti_affinity:
            counts = self._snapshot.counters.counts(term.pod_selector, terminating=True)
            if not counts.any():
                continue
            codes = self._snapshot.labels.codes(term.key)
            out &= by_domain(codes, counts)[codes[rows]] <= 0
        return out

    def _satisfies_existing_pods_anti_affinity(
        self, pod: PodInfo, affinity: _PodAffinity, rows: Rows
    ) -> Mask:
        """Nodes in domains where no running pod has anti-affinity to this one."""
        out = np.ones(len(rows), np.bool_)
        for term in affinity.existing:
            codes = self._snapshot.labels.codes(term.key)
            out &= by_domain(codes, self._snapshot.anti_affinity.counts(term))[codes[rows]] <= 0
        return out

    # ---- score ----

    def pre_score(self, state: CycleState, pod: PodInfo, rows: Rows) -> None:
        if pod.shape.terms.problem:
            raise SchedulingError(f"parsing pod: {pod.shape.terms.problem}")
        snapshot, terms, identity = self._snapshot, pod.shape.terms, pod.identity
        weighted: list[tuple[str, Ints, int]] = []
        state.write(_WEIGHTED_COUNTS, weighted)
        if not (
            terms.preferred
            or terms.avoided
            or snapshot.affinity
            or snapshot.preferred
            or snapshot.avoided
        ):
            return
        for term, sign in (*((t, 1) for t in terms.preferred), *((t, -1) for t in terms.avoided)):
            counts = snapshot.counters.counts(term.pod_selector, terminating=True)
            weighted.append((term.key, counts, sign * term.weight))
        if self._hard_weight > 0:
            weighted += [
                (t.key, c, self._hard_weight)
                for t, c in _terms_matching(snapshot.affinity, identity)
            ]
        weighted += [(t.key, c, t.weight) for t, c in _terms_matching(snapshot.preferred, identity)]
        weighted += [(t.key, c, -t.weight) for t, c in _terms_matching(snapshot.avoided, identity)]

    def score_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Score:
        weighted = state.read(_WEIGHTED_COUNTS)
        if not weighted:
            return 0
        out = np.zeros(len(rows), np.int64)
        for key, counts, weight in weighted:
            codes = self._snapshot.labels.codes(key)
            out += by_domain(codes, counts)[codes[rows]] * weight
        return out

    def normalize_score(self, state: CycleState, pod: PodInfo, rows: Rows, scores: Score) -> Score:
        if not isinstance(scores, np.ndarray):
            return scores
        highest, lowest = max(int(scores.max()), 0), min(int(scores.min()), 0)
        if highest == lowest:
            return 0
        return (MAX_NODE_SCORE * ((scores - lowest) / (highest - lowest))).astype(np.int64)


def _terms_matching(
    carriers: TermCounters, identity: PodIdentity
) -> list[tuple[AffinityTerm, Ints]]:
    """The terms of running pods that match this one, and the number of those pods on each node."""
    return [
        (term, counts) for term, counts in carriers.items() if term.pod_selector.matches(identity)
    ]
