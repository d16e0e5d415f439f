"""NodeAffinity: the node selector and node affinity of a pod, and what the configuration adds for all pods."""

from __future__ import annotations

import numpy as np

from transom.machinery.objects import Object
from transom.scheduler.arrays import Ints, Mask, Rows
from transom.scheduler.framework import ConfigError, Cycle, Handle, Score, Verdict, Verdicts, check_args, scaled, split
from transom.scheduler.labels import LabelColumns, NodeTerm, any_term, has_labels, node_terms
from transom.scheduler.pods import Shape

_POD = Verdict(("node(s) didn't match Pod's node affinity",), final=True)
_ENFORCED = Verdict(("node(s) didn't match scheduler-enforced node affinity",), final=True)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def matches_pod(shape: Shape, labels: LabelColumns, rows: Rows) -> Mask | None:
    """Where the pod's own node selector and required node affinity hold; None: everywhere."""
    required = (shape.node_affinity or {}).get(_REQUIRED)
    if not shape.node_selector and required is None:
        return None
    out = has_labels(shape.node_selector, labels, rows)
    if required is not None:
        terms = shape.memo.get(_REQUIRED)
        if terms is None:
            terms = shape.memo[_REQUIRED] = node_terms(required.get("nodeSelectorTerms"))
        out &= any_term(terms, labels, rows)
    return out


class _Weighted:
    """Terms that are only preferred, with their weights."""

    def __init__(self, terms: list[Object]) -> None:
        wanted = [t for t in terms if t.get("weight") and (
            (t.get("preference") or {}).get("matchExpressions") or (t.get("preference") or {}).get("matchFields"))]
        self.terms = [(NodeTerm(t["preference"]), t["weight"]) for t in wanted]
        self.problem = next((term.problem for term, _ in self.terms if term.problem), "")

    def add_to(self, scores: Ints, labels: LabelColumns, rows: Rows) -> None:
        for term, weight in self.terms:
            scores += term.mask(labels, rows) * weight


class NodeAffinity:
    name = "NodeAffinity"
    static = True

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("addedAffinity",), self.name)
        added = args.get("addedAffinity") or {}
        required = added.get(_REQUIRED)
        self._required = node_terms(required.get("nodeSelectorTerms")) if required is not None else None
        self._preferred = _Weighted(added.get(_PREFERRED) or [])
        problems = [("required", t.problem) for t in self._required or () if t.problem]
        if self._preferred.problem:
            problems.append(("preferred", self._preferred.problem))
        if problems:
            kind, text = problems[0]
            raise ConfigError(f'initializing plugin "{self.name}": parsing addedAffinity.'
                              f"{_REQUIRED if kind == 'required' else _PREFERRED}: {text}")

    def filter(self, cycle: Cycle, rows: Rows) -> Mask | None:
        own = matches_pod(cycle.pod.shape, cycle.snapshot.labels, rows)
        if self._required is None:
            return own
        added = any_term(self._required, cycle.snapshot.labels, rows)
        return added if own is None else added & own

    def verdicts(self, cycle: Cycle, rows: Rows) -> Verdicts:
        out: Verdicts = []
        if self._required is not None:
            rows, refused = split(any_term(self._required, cycle.snapshot.labels, rows), rows)
            if len(refused):
                out.append((_ENFORCED, refused))
        if len(rows):
            out.append((_POD, rows))
        return out

    def score(self, cycle: Cycle, rows: Rows) -> Score:
        shape = cycle.pod.shape
        own = shape.memo.get(_PREFERRED)
        if own is None:
            own = shape.memo[_PREFERRED] = _Weighted((shape.node_affinity or {}).get(_PREFERRED) or [])
        if not own.terms and not self._preferred.terms:
            return 0
        scores = np.zeros(len(rows), np.int64)
        self._preferred.add_to(scores, cycle.snapshot.labels, rows)
        own.add_to(scores, cycle.snapshot.labels, rows)
        return scores

    def normalize(self, cycle: Cycle, rows: Rows, scores: Score) -> Score:
        return scaled(scores)
