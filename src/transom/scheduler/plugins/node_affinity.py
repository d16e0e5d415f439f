"""NodeAffinity: the node selector and the node affinity of the pod, and the affinity that the
configuration adds.
"""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows, np
from transom.scheduler.errors import SchedulerConfigError
from transom.scheduler.framework import (
    BatchFilterPlugin,
    BatchScorePlugin,
    CycleState,
    Handle,
    NodeStatuses,
    Score,
    ScoreExtensions,
    check_args,
    default_normalize_score,
    unresolvable,
)
from transom.scheduler.labels import (
    PREFERRED,
    REQUIRED,
    LabelColumns,
    PreferredTerms,
    any_term,
    has_labels,
    node_terms,
    parsed_required_terms,
    preferred_terms,
)
from transom.scheduler.pods import PodInfo, PodShape

ERR_REASON_ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
_REJECTED_BY_CONFIGURATION = unresolvable(ERR_REASON_ENFORCED)


def matches_pod(shape: PodShape, labels: LabelColumns, rows: Rows) -> Mask | None:
    """The rows that match the node selector and the required node affinity of the pod; None: all."""
    terms = parsed_required_terms(shape)
    if not shape.node_selector and terms is None:
        return None
    out = has_labels(shape.node_selector, labels, rows)
    if terms is not None:
        out &= any_term(terms, labels, rows)
    return out


class NodeAffinity(BatchFilterPlugin, BatchScorePlugin, ScoreExtensions):
    name = "NodeAffinity"
    static = True

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("addedAffinity",), self.name)
        self._snapshot = handle.snapshot
        self._rejected_by_pod = unresolvable(handle.rules.node_affinity)
        added = args.get("addedAffinity") or {}
        required = added.get(REQUIRED)
        self._required = (
            node_terms(required.get("nodeSelectorTerms")) if required is not None else None
        )
        self._preferred = PreferredTerms(added.get(PREFERRED) or [])
        problems = [("required", t.problem) for t in self._required or () if t.problem]
        if self._preferred.problem:
            problems.append(("preferred", self._preferred.problem))
        if problems:
            kind, text = problems[0]
            raise SchedulerConfigError(
                f'initializing plugin "{self.name}": parsing addedAffinity.'
                f"{REQUIRED if kind == 'required' else PREFERRED}: {text}"
            )

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        own = matches_pod(pod.shape, self._snapshot.labels, rows)
        if self._required is None:
            return own
        added = any_term(self._required, self._snapshot.labels, rows)
        return added if own is None else added & own

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        out: NodeStatuses = []
        if self._required is not None:
            matches = any_term(self._required, self._snapshot.labels, rows)
            rows, rejected = rows[matches], rows[~matches]
            if len(rejected):
                out.append((_REJECTED_BY_CONFIGURATION, rejected))
        if len(rows):
            out.append((self._rejected_by_pod, rows))
        return out

    def score_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Score:
        own = preferred_terms(pod.shape)
        if not own.terms and not self._preferred.terms:
            return 0
        scores = np.zeros(len(rows), np.int64)
        self._preferred.add_to(scores, self._snapshot.labels, rows)
        own.add_to(scores, self._snapshot.labels, rows)
        return scores

    def normalize_score(self, state: CycleState, pod: PodInfo, rows: Rows, scores: Score) -> Score:
        return default_normalize_score(scores)
