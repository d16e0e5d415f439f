"""PodTopologySpread: keep pods of a kind evenly over zones, nodes or whatever a label divides nodes into.

A pod without constraints of its own gets those of the configuration: by default Services, ReplicaSets and the like are
spread over nodes and zones as far as that costs nothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from transom.machinery.objects import Object
from transom.machinery.selectors import LabelSelector
from transom.machinery.validation.names import is_qualified_name
from transom.scheduler.arrays import Codes, Ints, Mask, Rows
from transom.scheduler.counters import by_domain
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
from transom.scheduler.owners import owners
from transom.scheduler.plugins.node_affinity import matches_pod
from transom.scheduler.pods import Predicate, Spread, predicate, read_spread
from transom.scheduler.snapshot import Snapshot
from transom.scheduler.zones import ZONE

HOSTNAME = "kubernetes.io/hostname"
_UNEVEN = Verdict(("node(s) didn't match pod topology spread constraints",))
_NO_LABEL = Verdict(("node(s) didn't match pod topology spread constraints (missing required label)",), final=True)
_SYSTEM = (Spread(3, HOSTNAME, False, None), Spread(5, ZONE, False, None))


class _Constraint(NamedTuple):
    max_skew: int
    key: str
    predicate: Predicate


class _Scoring(NamedTuple):
    constraints: list[_Constraint]
    ignored: Mask | None  # of the rows to be scored
    counts: list[Ints]  # for each constraint, of the rows
    weights: list[float]


class PodTopologySpread:
    name = "PodTopologySpread"

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("defaultConstraints", "defaultingType"), self.name)
        given = args.get("defaultConstraints") or []
        kind = args.get("defaultingType") or ("List" if given else "System")
        problem = _wrong_args(kind, given)
        if problem:
            raise ConfigError(f'initializing plugin "{self.name}": {problem}')
        self._system = kind == "System"
        self._defaults = _SYSTEM if self._system else tuple(read_spread(c)._replace(selector=None) for c in given)
        self._owners = owners(handle) if self._defaults else None

    def _constraints(self, cycle: Cycle, hard: bool) -> list[_Constraint]:
        pod = cycle.pod
        own = pod.shape.spreads
        spreads = [s for s in own or self._defaults if s.hard == hard]
        if not spreads:
            return []
        shared: LabelSelector | None = None
        if not own:
            assert self._owners is not None
            shared = self._owners.selector(pod.identity)
            if shared.empty:
                return []
        out = []
        for spread in spreads:
            if spread.problem:
                kind = "hard" if hard else "soft"
                raise SchedulingError(f"obtaining pod's {kind} topology spread constraints: {spread.problem}")
            selector = shared if shared is not None else spread.selector
            assert selector is not None
            out.append(_Constraint(spread.max_skew, spread.key, predicate((frozenset((pod.namespace,)), selector))))
        return out

    # ---- filter --------------------------------------------------------------------------------------------------

    def pre_filter(self, cycle: Cycle) -> Verdict | None:
        cycle.state[self.name] = self._constraints(cycle, hard=True)
        return None

    def filter(self, cycle: Cycle, rows: Rows) -> Mask | None:
        constraints: list[_Constraint] = cycle.state[self.name]
        if not constraints:
            return None
        out = np.ones(len(rows), np.bool_)
        for codes, skew, constraint in self._skews(cycle, constraints):
            out &= (codes[rows] >= 0) & (skew[codes[rows]] <= constraint.max_skew)
        return out

    def verdicts(self, cycle: Cycle, rows: Rows) -> Verdicts:
        missing, uneven = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        for codes, skew, constraint in self._skews(cycle, cycle.state[self.name]):
            # The first constraint that fails gives the reason.
            fresh = ~(missing | uneven)
            missing |= fresh & (codes[rows] < 0)
            uneven |= fresh & (codes[rows] >= 0) & (skew[codes[rows]] > constraint.max_skew)
        return [(verdict, rows[mask]) for verdict, mask in ((_NO_LABEL, missing), (_UNEVEN, uneven)) if mask.any()]

    def _skews(self, cycle: Cycle, constraints: list[_Constraint]) -> list[tuple[Codes, Ints, _Constraint]]:
        """For each constraint: the domain of each row, and by how much each domain would lie above the emptiest."""
        snapshot = cycle.snapshot
        eligible = _eligible(cycle, [c.key for c in constraints])
        out = []
        for constraint in constraints:
            codes = snapshot.labels.codes(constraint.key)
            domains = np.zeros(int(codes.max(initial=-1)) + 2, np.int64)
            present = np.zeros(len(domains), np.bool_)
            present[codes[eligible]] = True
            present[-1] = False
            counts = by_domain(codes, snapshot.counters.counts(constraint.predicate, terminating=False))
            # Pods count in every domain that has an eligible node, even those on other nodes of it.
            domains[:-1] = np.where(present[:-1], counts[:len(domains) - 1], 0)
            lowest = int(domains[present].min()) if present.any() else np.iinfo(np.int32).max
            own = 1 if constraint.predicate.holds(cycle.pod.identity) else 0
            out.append((codes, domains + own - lowest, constraint))
        return out

    # ---- score ---------------------------------------------------------------------------------------------------

    def pre_score(self, cycle: Cycle, rows: Rows) -> None:
        constraints = self._constraints(cycle, hard=False)
        cycle.state[self.name + "/score"] = self._prepare(cycle, constraints, rows) if constraints else None

    def _prepare(self, cycle: Cycle, constraints: list[_Constraint], rows: Rows) -> _Scoring:
        snapshot = cycle.snapshot
        all_keys = bool(cycle.pod.shape.spreads) or not self._system
        keys = [c.key for c in constraints]
        ignored = ~_labelled(snapshot, keys, rows) if all_keys else None
        scored = rows if ignored is None else rows[~ignored]
        eligible: Rows | None = None
        counted, counts, weights = [], [], []
        for constraint in constraints:
            column = snapshot.labels.column(constraint.key)
            if not column.values:
                continue  # no node has the label: its constraint says the same of all, which is nothing
            codes = column.codes
            per_row = snapshot.counters.counts(constraint.predicate, terminating=False)
            if constraint.key == HOSTNAME:
                size = len(scored)
                counts.append(per_row[rows])
            else:
                if eligible is None:
                    eligible = _eligible(cycle, keys if all_keys else [])
                size = _domains(snapshot, constraint.key, scored)
                inside = np.zeros(snapshot.capacity, np.int64)
                inside[eligible] = per_row[eligible]
                counts.append(by_domain(codes, inside)[codes[rows]])
            counted.append(constraint)
            weights.append(math.log(size + 2))
        return _Scoring(counted, ignored, counts, weights)

    def score(self, cycle: Cycle, rows: Rows) -> Score:
        state: _Scoring | None = cycle.state[self.name + "/score"]
        if state is None:
            return 0
        total = np.zeros(len(rows), np.float64)
        for constraint, counts, weight in zip(state.constraints, state.counts, state.weights, strict=True):
            labelled = cycle.snapshot.labels.codes(constraint.key)[rows] >= 0
            total += np.where(labelled, counts * weight + float(constraint.max_skew - 1), 0.0)
        out = total.astype(np.int64)
        if state.ignored is not None:
            out[state.ignored] = 0
        return out

    def normalize(self, cycle: Cycle, rows: Rows, scores: Score) -> Score:
        state: _Scoring | None = cycle.state[self.name + "/score"]
        if state is None or not isinstance(scores, np.ndarray):
            return MAX_SCORE
        seen = scores if state.ignored is None else scores[~state.ignored]
        highest = int(seen.max(initial=0))
        if highest == 0:
            out = np.full(len(rows), MAX_SCORE, np.int64)
        else:
            out = MAX_SCORE * (highest + int(seen.min()) - scores) // highest
        if state.ignored is not None:
            out[state.ignored] = 0
        return out


def _labelled(snapshot: Snapshot, keys: list[str], rows: Rows) -> Mask:
    out = np.ones(len(rows), np.bool_)
    for key in keys:
        out &= snapshot.labels.codes(key)[rows] >= 0
    return out


def _eligible(cycle: Cycle, keys: list[str]) -> Rows:
    """The nodes that the pod's node selector takes and that have all the labels."""
    rows = cycle.snapshot.order
    mask = _labelled(cycle.snapshot, keys, rows)
    own = matches_pod(cycle.pod.shape, cycle.snapshot.labels, rows)
    return rows[mask if own is None else mask & own]


def _domains(snapshot: Snapshot, key: str, rows: Rows) -> int:
    """How many there are among these nodes. To lack the label counts as having it empty."""
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
        skew, key, action = (constraint.get(k) for k in ("maxSkew", "topologyKey", "whenUnsatisfiable"))
        if (skew or 0) <= 0:
            return f"{where}.maxSkew: Invalid value: {skew or 0}: must be greater than zero"
        if not key:
            return f"{where}.topologyKey: Required value: can not be empty"
        if problems := is_qualified_name(key):
            return f'{where}.topologyKey: Invalid value: "{key}": {"; ".join(problems)}'
        if not action:
            return f"{where}.whenUnsatisfiable: Required value: can not be empty"
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            return (f'{where}.whenUnsatisfiable: Unsupported value: "{action}": '
                    'supported values: "DoNotSchedule", "ScheduleAnyway"')
        if constraint.get("labelSelector") is not None:
            return f"{where}.labelSelector: Forbidden: constraint must not define a selector, as they deduced for each pod"
        if (key, action) in seen:
            return f'{where}: Duplicate value: "{{{key}, {action}}}"'
        seen.add((key, action))
    return ""
