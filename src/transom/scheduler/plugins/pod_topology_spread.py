"""PodTopologySpread: spreads pods evenly over zones, nodes or other topology domains.

Pods without constraints get the default constraints of the configuration, which spread the pods of
a Service or controller over nodes and zones if possible.
"""

from __future__ import annotations

import math

from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object
from transom.machinery.selectors import LabelSelector
from transom.machinery.validation.names import is_qualified_name
from transom.scheduler.arrays import Codes, Ints, Mask, Rows, np
from transom.scheduler.counters import by_domain
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
from transom.scheduler.plugins.node_affinity import matches_pod
from transom.scheduler.plugins.taint_toleration import tolerated_rows
from transom.scheduler.pods import (
    PodInfo,
    PodSelector,
    SpreadConstraint,
    intern_pod_selector,
    parse_spread_constraint,
)
from transom.scheduler.snapshot import Snapshot
from transom.scheduler.zones import ZONE

HOSTNAME = "kubernetes.io/hostname"
ERR_REASON_CONSTRAINTS_NOT_MATCH = "node(s) didn't match pod topology spread constraints"
ERR_REASON_NODE_LABEL_NOT_MATCH = ERR_REASON_CONSTRAINTS_NOT_MATCH + " (missing required label)"
_UNEVEN = unschedulable(ERR_REASON_CONSTRAINTS_NOT_MATCH)
_NO_LABEL = unresolvable(ERR_REASON_NODE_LABEL_NOT_MATCH)
_SYSTEM = (SpreadConstraint(3, HOSTNAME, False, None), SpreadConstraint(5, ZONE, False, None))


class _Constraint(NamedTuple):
    max_skew: int
    key: str
    pod_selector: PodSelector
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


class _Scoring(NamedTuple):
    constraints: list[_Constraint]
    ignored: Mask | None  # of the rows to be scored
    counts: list[Ints]  # for each constraint, of the rows
    weights: list[float]


_HARD_CONSTRAINTS = StateKey[list[_Constraint]]("PreFilterPodTopologySpread")
_SCORING = StateKey["_Scoring | None"]("PreScorePodTopologySpread")


class PodTopologySpread(
    PreFilterPlugin, BatchFilterPlugin, PreScorePlugin, BatchScorePlugin, ScoreExtensions
):
    name = "PodTopologySpread"

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("defaultConstraints", "defaultingType"), self.name)
        given = args.get("defaultConstraints") or []
        kind = args.get("defaultingType") or ("List" if given else "System")
        problem = _wrong_args(kind, given)
        if problem:
            raise SchedulerConfigError(f'initializing plugin "{self.name}": {problem}')
        self._system = kind == "System"
        self._defaults = (
            _SYSTEM
            if self._system
            else tuple(parse_spread_constraint(c)._replace(selector=None) for c in given)
        )
        self._snapshot = handle.snapshot
        self._counts_eligible = handle.rules.spread_counts_eligible_nodes
        self._owners = handle.owners

    def _constraints(self, pod: PodInfo, hard: bool) -> list[_Constraint]:
        own = pod.shape.spreads
        spreads = [s for s in own or self._defaults if s.hard == hard]
        if not spreads:
            return []
        shared: LabelSelector | None = None
        if not own:
            shared = self._owners.selector(pod.identity)
            if shared.empty:
                return []
        out = []
        for spread in spreads:
            if spread.problem:
                kind = "hard" if hard else "soft"
                raise SchedulingError(
                    f"obtaining pod's {kind} topology spread constraints: {spread.problem}"
                )
            selector = shared if shared is not None else spread.selector
            assert selector is not None
            out.append(
                _Constraint(
                    spread.max_skew,
                    spread.key,
                    intern_pod_selector((frozenset((pod.namespace,)), selector)),
                    spread.min_domains,
                    spread.honors_affinity,
                    spread.honors_taints,
                )
            )
        return out

    # ---- filter ----

    def pre_filter(self, state: CycleState, pod: PodInfo) -> Status | None:
        state.write(_HARD_CONSTRAINTS, self._constraints(pod, hard=True))
        return None

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        constraints = state.read(_HARD_CONSTRAINTS)
        if not constraints:
            return None
        out = np.ones(len(rows), np.bool_)
        for codes, skew, constraint in self._skews(pod, constraints):
            out &= (codes[rows] >= 0) & (skew[codes[rows]] <= constraint.max_skew)
        return out

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        missing, uneven = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        for codes, skew, constraint in self._skews(pod, state.read(_HARD_CONSTRAINTS)):
            # The first constraint that fails determines the reason.
            fresh = ~(missing | uneven)
            missing |= fresh & (codes[rows] < 0)
            uneven |= fresh & (codes[rows] >= 0) & (skew[codes[rows]] > constraint.max_skew)
        return [
            (status, rows[mask])
            for status, mask in ((_NO_LABEL, missing), (_UNEVEN, uneven))
            if mask.any()
        ]

    def _skews(
        self, pod: PodInfo, constraints: list[_Constraint]
    ) -> list[tuple[Codes, Ints, _Constraint]]:
        """For each constraint: the domain of each row, and the skew of each domain with the pod."""
        snapshot = self._snapshot
        keys = [c.key for c in constraints]
        out = []
        for constraint in constraints:
            eligible = _eligible(snapshot, pod, keys, constraint)
            codes = snapshot.labels.codes(constraint.key)
            domains = np.zeros(int(codes.max(initial=-1)) + 2, np.int64)
            present = np.zeros(len(domains), np.bool_)
            present[codes[eligible]] = True
            present[-1] = False
            per_row = snapshot.counters.counts(constraint.pod_selector, terminating=False)
            if self._counts_eligible:
                inside = np.zeros(snapshot.capacity, np.int64)
                inside[eligible] = per_row[eligible]
                per_row = inside
            # Before 1.24, all pods of a domain with an eligible node count, also those on its other
            # nodes.
            counts = by_domain(codes, per_row)
            domains[:-1] = np.where(present[:-1], counts[: len(domains) - 1], 0)
            lowest = int(domains[present].min()) if present.any() else np.iinfo(np.int32).max
            if int(present.sum()) < constraint.min_domains:
                lowest = 0
            own = 1 if constraint.pod_selector.matches(pod.identity) else 0
            out.append((codes, domains + own - lowest, constraint))
        return out

    # ---- score ----

    def pre_score(self, state: CycleState, pod: PodInfo, rows: Rows) -> None:
        constraints = self._constraints(pod, hard=False)
        scoring = self._prepare(pod, constraints, rows) if constraints else None
        state.write(_SCORING, scoring)

    def _prepare(self, pod: PodInfo, constraints: list[_Constraint], rows: Rows) -> _Scoring:
        snapshot = self._snapshot
        all_keys = bool(pod.shape.spreads) or not self._system
        keys = [c.key for c in constraints]
        ignored = ~_labelled(snapshot, keys, rows) if all_keys else None
        scored = rows if ignored is None else rows[~ignored]
        counted, counts, weights = [], [], []
        for constraint in constraints:
            column = snapshot.labels.column(constraint.key)
            if not column.values:
                continue  # no node has the label: the constraint does not affect the scores
            codes = column.codes
            per_row = snapshot.counters.counts(constraint.pod_selector, terminating=False)
            if constraint.key == HOSTNAME:
                size = len(scored)
                counts.append(per_row[rows])
            else:
                eligible = _eligible(snapshot, pod, keys if all_keys else [], constraint)
                size = _domains(snapshot, constraint.key, scored)
                inside = np.zeros(snapshot.capacity, np.int64)
                inside[eligible] = per_row[eligible]
                counts.append(by_domain(codes, inside)[codes[rows]])
            counted.append(constraint)
            weights.append(math.log(size + 2))
        return _Scoring(counted, ignored, counts, weights)

    def score_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Score:
        scoring = state.read(_SCORING)
        if scoring is None:
            return 0
        total = np.zeros(len(rows), np.float64)
        for constraint, counts, weight in zip(
            scoring.constraints, scoring.counts, scoring.weights, strict=True
        ):
            labelled = self._snapshot.labels.codes(constraint.key)[rows] >= 0
            total += np.where(labelled, counts * weight + float(constraint.max_skew - 1), 0.0)
        out = total.astype(np.int64)
        if scoring.ignored is not None:
            out[scoring.ignored] = 0
        return out

    def normalize_score(self, state: CycleState, pod: PodInfo, rows: Rows, scores: Score) -> Score:
        scoring = state.read(_SCORING)
        if scoring is None or not isinstance(scores, np.ndarray):
            return MAX_NODE_SCORE
        seen = scores if scoring.ignored is None else scores[~scoring.ignored]
        highest = int(seen.max(initial=0))
        if highest == 0:
            out = np.full(len(rows), MAX_NODE_SCORE, np.int64)
        else:
            out = MAX_NODE_SCORE * (highest + int(seen.min()) - scores) // highest
        if scoring.ignored is not None:
            out[scoring.ignored] = 0
        return out


def _labelled(snapshot: Snapshot, keys: list[str], rows: Rows) -> Mask:
    out = np.ones(len(rows), np.bool_)
    for key in keys:
        out &= snapshot.labels.codes(key)[rows] >= 0
    return out


def _eligible(snapshot: Snapshot, pod: PodInfo, keys: list[str], constraint: _Constraint) -> Rows:
    """The nodes that have all topology keys and that the policies of the constraint include."""
    rows = snapshot.order
    mask = _labelled(snapshot, keys, rows)
    if constraint.honors_affinity:
        own = matches_pod(pod.shape, snapshot.labels, rows)
        if own is not None:
            mask &= own
    if constraint.honors_taints:
        mask &= tolerated_rows(snapshot, pod, rows)
    return rows[mask]


def _domains(snapshot: Snapshot, key: str, rows: Rows) -> int:
    """The number of domains of these nodes. A missing label counts as an empty one."""
    column = snapshot.labels.column(key)
    codes = set(np.unique(column.codes[rows]).tolist())
    if -1 in codes and column.index.get("") in codes:
        codes.discard(-1)
    return len(codes)


def _wrong_args(kind: str, constraints: list[Object]) -> str:
    if kind not in ("System", "List"):
        return f'defaultingType: Invalid value: "{kind}": must be one of {{"System", "List"}}'
    if kind == "System" and constraints:
        return 'defaultingType: Invalid value: "System": when .defaultConstraints are not empty'
    seen = set()
    for i, constraint in enumerate(constraints):
        where = f"defaultConstraints[{i}]"
        skew, key, action = (
            constraint.get(k) for k in ("maxSkew", "topologyKey", "whenUnsatisfiable")
        )
        if (skew or 0) <= 0:
            return f"{where}.maxSkew: Invalid value: {skew or 0}: must be greater than zero"
        if not key:
            return f"{where}.topologyKey: Required value: can not be empty"
        if problems := is_qualified_name(key):
            return f'{where}.topologyKey: Invalid value: "{key}": {"; ".join(problems)}'
        if not action:
            return f"{where}.whenUnsatisfiable: Required value: can not be empty"
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            return (
                f'{where}.whenUnsatisfiable: Unsupported value: "{action}": '
                'supported values: "DoNotSchedule", "ScheduleAnyway"'
            )
        if constraint.get("labelSelector") is not None:
            return f"{where}.labelSelector: Forbidden: constraint must not define a selector, as they deduced for each pod"
        if (key, action) in seen:
            return f'{where}: Duplicate value: "{{{key}, {action}}}"'
        seen.add((key, action))
    return ""
