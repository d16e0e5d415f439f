"""How many pods of some kind each node has: the numbers behind spreading and pod affinity.

A counter is made when somebody first asks for it; later it only reads what has changed since. `Carriers` count the other
way round: not pods that a term takes, but pods that have the term.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from transom.scheduler.arrays import Codes, Ints
from transom.scheduler.pods import Identity, PodInfo, Predicate, Term

_LOGGED = 16384
_KEPT = 256


class _Counter:
    __slots__ = ("at", "counts")

    def __init__(self, counts: Ints, at: int) -> None:
        self.counts = counts
        self.at = at


class PodCounters:
    """Counts of pods by predicate and row. `terminating` says whether pods that are being deleted count."""

    def __init__(self) -> None:
        self._capacity = 0
        self._pods: dict[str, dict[str, PodInfo]] = {}  # namespace -> uid -> pod
        # +1 or -1, row, whose, whether it is being deleted. Not the pod itself, which would live as long as the log.
        self._log: list[tuple[int, int, Identity, bool]] = []
        self._base = 0
        self._counters: dict[tuple[Predicate, bool], _Counter] = {}

    def grow(self, capacity: int) -> None:
        self._capacity = capacity
        self._counters.clear()

    def add(self, pod: PodInfo) -> None:
        self._pods.setdefault(pod.namespace, {})[pod.uid] = pod
        self._note(1, pod)

    def remove(self, pod: PodInfo) -> None:
        pods = self._pods[pod.namespace]
        del pods[pod.uid]
        if not pods:
            del self._pods[pod.namespace]
        self._note(-1, pod)

    def replace(self, pod: PodInfo) -> None:
        """The same pod, changed in nothing that is counted."""
        self._pods[pod.namespace][pod.uid] = pod

    def _note(self, delta: int, pod: PodInfo) -> None:
        if not self._counters:
            return
        self._log.append((delta, pod.row, pod.identity, pod.terminating))
        if len(self._log) > _LOGGED:
            cut = _LOGGED // 2
            del self._log[:cut]
            self._base += cut

    def counts(self, predicate: Predicate, *, terminating: bool) -> Ints:
        """Pods of the predicate in each row. The array is the counter's own: read it at once."""
        key = predicate, terminating
        counter = self._counters.get(key)
        now = self._base + len(self._log)
        if counter is None or counter.at < self._base:
            if counter is None and len(self._counters) >= _KEPT:
                del self._counters[next(iter(self._counters))]
            counter = self._counters[key] = _Counter(np.zeros(self._capacity, np.int64), now)
            for pod in self._within(predicate):
                if (terminating or not pod.terminating) and predicate.holds(pod.identity):
                    counter.counts[pod.row] += 1
            return counter.counts
        if counter.at < now:
            counts = counter.counts
            for delta, row, identity, ends in self._log[counter.at - self._base:]:
                if (terminating or not ends) and predicate.holds(identity):
                    counts[row] += delta
            counter.at = now
        return counter.counts

    def _within(self, predicate: Predicate) -> Iterator[PodInfo]:
        """All pods that can be of the predicate."""
        for namespace in predicate.pairs[0][0]:
            yield from self._pods.get(namespace, {}).values()


class Carriers:
    """Rows of the pods that have a term."""

    def __init__(self) -> None:
        self._capacity = 0
        self._counts: dict[Term, Ints] = {}
        self._totals: dict[Term, int] = {}

    def grow(self, capacity: int) -> None:
        more = capacity - self._capacity
        self._capacity = capacity
        for term, counts in self._counts.items():
            self._counts[term] = np.concatenate([counts, np.zeros(more, np.int64)])

    def change(self, terms: Iterable[Term], row: int, delta: int) -> None:
        for term in terms:
            counts = self._counts.get(term)
            if counts is None:
                counts = self._counts[term] = np.zeros(self._capacity, np.int64)
            counts[row] += delta
            total = self._totals[term] = self._totals.get(term, 0) + delta
            if not total:
                del self._counts[term], self._totals[term]

    def counts(self, term: Term) -> Ints:
        return self._counts[term]

    def items(self) -> Iterable[tuple[Term, Ints]]:
        return self._counts.items()

    def __bool__(self) -> bool:
        return bool(self._counts)


def by_domain(codes: Codes, counts: Ints) -> Ints:
    """Sums over the rows of each domain; the entry at -1 is for rows that are in none, and always zero."""
    sums = np.bincount(codes + 1, weights=counts, minlength=2)
    out = np.empty(len(sums), np.int64)
    out[:-1] = sums[1:]
    out[-1] = 0
    return out
