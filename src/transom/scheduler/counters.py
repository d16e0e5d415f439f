"""The number of pods on each node that match a selector, for topology spread and pod affinity.

A counter is created when it is first read and then updated from a log of changes. `TermCounters`
count the opposite: the pods that have a term.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from transom.scheduler.arrays import Codes, Ints, np
from transom.scheduler.pods import AffinityTerm, PodIdentity, PodInfo, PodSelector

_LOGGED = 16384
_KEPT = 256


class _Counter:
    __slots__ = ("at", "counts")

    def __init__(self, counts: Ints, at: int) -> None:
        self.counts = counts
        self.at = at


class PodCounters:
    """Counts of pods by selector and row. `terminating` includes pods that are being deleted."""

    def __init__(self) -> None:
        self._capacity = 0
        self._pods: dict[str, dict[str, PodInfo]] = {}  # namespace -> uid -> pod
        # +1 or -1, row, identity, terminating. Not the pod, which would stay alive as long as the
        # log.
        self._log: list[tuple[int, int, PodIdentity, bool]] = []
        self._base = 0
        self._counters: dict[tuple[PodSelector, bool], _Counter] = {}

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
        """Replace a pod by a newer state that counts the same."""
        self._pods[pod.namespace][pod.uid] = pod

    def _note(self, delta: int, pod: PodInfo) -> None:
        if not self._counters:
            return
        self._log.append((delta, pod.row, pod.identity, pod.terminating))
        if len(self._log) > _LOGGED:
            cut = _LOGGED // 2
            del self._log[:cut]
            self._base += cut

    def counts(self, pod_selector: PodSelector, *, terminating: bool) -> Ints:
        """The number of matching pods in each row. Later calls change the array: use it at once."""
        key = pod_selector, terminating
        counter = self._counters.get(key)
        now = self._base + len(self._log)
        if counter is None or counter.at < self._base:
            if counter is None and len(self._counters) >= _KEPT:
                del self._counters[next(iter(self._counters))]
            counter = self._counters[key] = _Counter(np.zeros(self._capacity, np.int64), now)
            for pod in self._within(pod_selector):
                if (terminating or not pod.terminating) and pod_selector.matches(pod.identity):
                    counter.counts[pod.row] += 1
            return counter.counts
        if counter.at < now:
            counts = counter.counts
            for delta, row, identity, ends in self._log[counter.at - self._base :]:
                if (terminating or not ends) and pod_selector.matches(identity):
                    counts[row] += delta
            counter.at = now
        return counter.counts

    def _within(self, pod_selector: PodSelector) -> Iterator[PodInfo]:
        """All pods in the namespaces of the selector."""
        for namespace in pod_selector.pairs[0][0]:
            yield from self._pods.get(namespace, {}).values()


class TermCounters:
    """The number of pods in each row that have a term."""

    def __init__(self) -> None:
        self._capacity = 0
        self._counts: dict[AffinityTerm, Ints] = {}
        self._totals: dict[AffinityTerm, int] = {}

    def grow(self, capacity: int) -> None:
        more = capacity - self._capacity
        self._capacity = capacity
        for term, counts in self._counts.items():
            self._counts[term] = np.concatenate([counts, np.zeros(more, np.int64)])

    def change(self, terms: Iterable[AffinityTerm], row: int, delta: int) -> None:
        for term in terms:
            counts = self._counts.get(term)
            if counts is None:
                counts = self._counts[term] = np.zeros(self._capacity, np.int64)
            counts[row] += delta
            total = self._totals[term] = self._totals.get(term, 0) + delta
            if not total:
                del self._counts[term], self._totals[term]

    def counts(self, term: AffinityTerm) -> Ints:
        return self._counts[term]

    def items(self) -> Iterable[tuple[AffinityTerm, Ints]]:
        return self._counts.items()

    def __bool__(self) -> bool:
        return bool(self._counts)


def by_domain(codes: Codes, counts: Ints) -> Ints:
    """The sum of each topology domain. The entry at -1, for rows without the label, is zero."""
    sums = np.bincount(codes + 1, weights=counts, minlength=2)
    out = np.empty(len(sums), np.int64)
    out[:-1] = sums[1:]
    out[-1] = 0
    return out
