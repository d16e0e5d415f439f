"""InterPodAffinity: near some pods and away from others, as the pod wishes and as those that run already wish.

All of it is counting: pods a term takes (or pods that have the term), summed over the domains of the term's key.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from transom.machinery.objects import Object
from transom.scheduler.arrays import Ints, Mask, Rows
from transom.scheduler.counters import Carriers, by_domain
from transom.scheduler.framework import (
    MAX_SCORE,
    ConfigError,
    Cycle,
    Handle,
    SchedulingError,
    Score,
    Verdict,
    Verdicts,
    check_args,
)
from transom.scheduler.pods import Identity, Predicate, Term, predicate

_EITHER = "node(s) didn't match pod affinity/anti-affinity"
_AFFINITY = Verdict((_EITHER, "node(s) didn't match pod affinity rules"), final=True)
_ANTI_AFFINITY = Verdict((_EITHER, "node(s) didn't match pod anti-affinity rules"))
_EXISTING = Verdict((_EITHER, "node(s) didn't satisfy existing pods anti-affinity rules"))


class _Wishes(NamedTuple):
    affinity: tuple[Term, ...]
    together: Predicate | None  # pods that all terms of affinity take
    anti_affinity: tuple[Term, ...]
    existing: list[Term]  # anti-affinity of running pods that is against this one


class InterPodAffinity:
    name = "InterPodAffinity"

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("hardPodAffinityWeight",), self.name)
        weight = args.get("hardPodAffinityWeight")
        self._hard_weight: int = 1 if weight is None else weight
        if not 0 <= self._hard_weight <= 100:
            raise ConfigError(f'initializing plugin "{self.name}": hardPodAffinityWeight: Invalid value: '
                              f"{self._hard_weight}: not in valid range [0-100]")

    # ---- filter --------------------------------------------------------------------------------------------------

    def pre_filter(self, cycle: Cycle) -> Verdict | None:
        terms = cycle.pod.shape.terms
        if terms.problem:
            return Verdict((f"parsing pod: {terms.problem}",), final=True)
        together = predicate(*(pair for term in terms.affinity for pair in term.predicate.pairs)) if terms.affinity else None
        cycle.state[self.name] = terms.affinity, together, terms.anti_affinity
        return None

    def _wishes(self, cycle: Cycle) -> _Wishes:
        affinity, together, anti_affinity = cycle.state[self.name]
        identity = cycle.pod.identity
        existing = [term for term, _ in cycle.snapshot.anti_affinity.items() if term.predicate.holds(identity)]
        return _Wishes(affinity, together, anti_affinity, existing)

    def filter(self, cycle: Cycle, rows: Rows) -> Mask | None:
        wishes = self._wishes(cycle)
        if not (wishes.affinity or wishes.anti_affinity or wishes.existing):
            return None
        near = self._near(cycle, wishes, rows)
        away = self._away(cycle, wishes, rows)
        return near & away & self._accepted(cycle, wishes, rows)

    def verdicts(self, cycle: Cycle, rows: Rows) -> Verdicts:
        wishes = self._wishes(cycle)
        out: Verdicts = []
        for verdict, check in ((_AFFINITY, self._near), (_ANTI_AFFINITY, self._away), (_EXISTING, self._accepted)):
            if not len(rows):
                break
            holds = check(cycle, wishes, rows)
            if not holds.all():
                out.append((verdict, rows[~holds]))
            rows = rows[holds]
        return out

    def _near(self, cycle: Cycle, wishes: _Wishes, rows: Rows) -> Mask:
        """Where the pod's affinity holds: on nodes with all the keys, in domains where pods that it wants run. The first
        of a group that wants to be near itself may go anywhere."""
        out = np.ones(len(rows), np.bool_)
        if wishes.together is None:
            return out
        counts = cycle.snapshot.counters.counts(wishes.together, terminating=True)
        labelled, nobody = out.copy(), True
        for term in wishes.affinity:
            codes = cycle.snapshot.labels.codes(term.key)
            sums = by_domain(codes, counts)
            nobody &= not sums.any()
            labelled &= codes[rows] >= 0
            out &= sums[codes[rows]] > 0
        if nobody and wishes.together.holds(cycle.pod.identity):
            return labelled
        return out & labelled

    def _away(self, cycle: Cycle, wishes: _Wishes, rows: Rows) -> Mask:
        out = np.ones(len(rows), np.bool_)
        for term in wishes.anti_affinity:
            codes = cycle.snapshot.labels.codes(term.key)
            sums = by_domain(codes, cycle.snapshot.counters.counts(term.predicate, terminating=True))
            out &= sums[codes[rows]] <= 0
        return out

    def _accepted(self, cycle: Cycle, wishes: _Wishes, rows: Rows) -> Mask:
        """Where no running pod wants to be away from this one."""
        out = np.ones(len(rows), np.bool_)
        for term in wishes.existing:
            codes = cycle.snapshot.labels.codes(term.key)
            out &= by_domain(codes, cycle.snapshot.anti_affinity.counts(term))[codes[rows]] <= 0
        return out

    # ---- score ---------------------------------------------------------------------------------------------------

    def pre_score(self, cycle: Cycle, rows: Rows) -> None:
        if cycle.pod.shape.terms.problem:
            raise SchedulingError(f"parsing pod: {cycle.pod.shape.terms.problem}")
        snapshot, terms, identity = cycle.snapshot, cycle.pod.shape.terms, cycle.pod.identity
        weighted: list[tuple[str, Ints, int]] = []
        cycle.state[self.name + "/score"] = weighted
        if not (terms.preferred or terms.avoided or snapshot.affinity or snapshot.preferred or snapshot.avoided):
            return
        for term, sign in (*((t, 1) for t in terms.preferred), *((t, -1) for t in terms.avoided)):
            counts = snapshot.counters.counts(term.predicate, terminating=True)
            weighted.append((term.key, counts, sign * term.weight))
        if self._hard_weight > 0:
            weighted += [(t.key, c, self._hard_weight) for t, c in _against(snapshot.affinity, identity)]
        weighted += [(t.key, c, t.weight) for t, c in _against(snapshot.preferred, identity)]
        weighted += [(t.key, c, -t.weight) for t, c in _against(snapshot.avoided, identity)]

    def score(self, cycle: Cycle, rows: Rows) -> Score:
        weighted: list[tuple[str, Ints, int]] = cycle.state[self.name + "/score"]
        if not weighted:
            return 0
        out = np.zeros(len(rows), np.int64)
        for key, counts, weight in weighted:
            codes = cycle.snapshot.labels.codes(key)
            out += by_domain(codes, counts)[codes[rows]] * weight
        return out

    def normalize(self, cycle: Cycle, rows: Rows, scores: Score) -> Score:
        if not isinstance(scores, np.ndarray):
            return scores
        highest, lowest = max(int(scores.max()), 0), min(int(scores.min()), 0)
        if highest == lowest:
            return 0
        return (MAX_SCORE * ((scores - lowest) / (highest - lowest))).astype(np.int64)


def _against(carriers: Carriers, identity: Identity) -> list[tuple[Term, Ints]]:
    """Terms of running pods that take this one, and where those pods run."""
    return [(term, counts) for term, counts in carriers.items() if term.predicate.holds(identity)]
