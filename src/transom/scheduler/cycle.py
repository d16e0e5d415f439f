"""The scheduling cycle up to the choice of a node: preFilter, filter, preScore, score, select.

Nothing here waits or writes, so the live snapshot does not change during a cycle.
"""

from __future__ import annotations

import random

from transom.scheduler.arrays import Ints, Rows, np
from transom.scheduler.errors import SchedulingError
from transom.scheduler.framework import CycleState, FitError, NodeStatuses
from transom.scheduler.pods import PodInfo
from transom.scheduler.runtime import Framework, total_scores
from transom.scheduler.snapshot import Snapshot

NO_NODES_AVAILABLE = "no nodes available to schedule pods"
_MIN_FEASIBLE_NODES_TO_FIND = 100
_MIN_FEASIBLE_NODES_PERCENTAGE_TO_FIND = 5
_FIRST_BATCH = 1.25  # nodes to filter first, relative to the number of feasible nodes to find


class NoNodesAvailable(SchedulingError):
    pass


class ScheduleAlgorithm:
    """Chooses nodes. The search starts after the node where the previous one ended, so that all
    nodes have the same chance of being examined.
    """

    def __init__(
        self, snapshot: Snapshot, rng: random.Random, percentage_of_nodes_to_score: int = 0
    ) -> None:
        self._snapshot = snapshot
        self._rng = rng
        self._percentage = percentage_of_nodes_to_score
        self._next_start_node_index = 0

    def schedule(self, framework: Framework, state: CycleState, pod: PodInfo) -> str:
        """The name of the best node. Raises FitError if the pod does not fit on any node."""
        snapshot = self._snapshot
        if not len(snapshot):
            raise NoNodesAvailable(NO_NODES_AVAILABLE)
        status = framework.run_pre_filter_plugins(state, pod)
        if status is not None:
            message = status.message if framework.rules.pre_filter_message else ""
            raise FitError(len(snapshot), [(status, snapshot.order)], message)
        feasible = self._find_nodes_that_pass_filters(framework, state, pod)
        if not len(feasible):
            raise FitError(len(snapshot), filtered_nodes_statuses(framework, state, pod))
        if len(feasible) == 1:
            return snapshot.name(feasible[0])
        totals = prioritize_nodes(framework, state, pod, feasible)
        return snapshot.name(feasible[self._select_host(totals)])

    def _select_host(self, totals: Ints) -> int:
        """One of the nodes with the highest score, at random."""
        best = np.flatnonzero(totals == totals.max())
        return int(best[0] if len(best) == 1 else best[self._rng.randrange(len(best))])

    def _find_nodes_that_pass_filters(
        self, framework: Framework, state: CycleState, pod: PodInfo
    ) -> Rows:
        """Enough feasible nodes; the next search starts after the last one that was evaluated."""
        order = self._snapshot.order
        total = len(order)
        enough = num_feasible_nodes_to_find(total, self._percentage)
        start = self._next_start_node_index = self._next_start_node_index % total
        rows = np.concatenate([order[start:], order[:start]]) if start else order
        found: list[Rows] = []
        count = at = 0
        step = total if enough == total else int(enough * _FIRST_BATCH)
        while at < total and count < enough:
            batch = nodes_that_pass_filters(framework, state, pod, rows[at : at + step])
            found.append(batch)
            count += len(batch)
            at += step
        feasible = found[0] if len(found) == 1 else np.concatenate(found)
        evaluated = total
        if len(feasible) >= enough and enough < total:
            feasible = feasible[:enough]
            evaluated = (self._snapshot.position(feasible[-1]) - start) % total + 1
        self._next_start_node_index = (start + evaluated) % total
        return feasible


def num_feasible_nodes_to_find(num_all_nodes: int, percentage: int) -> int:
    """In large clusters only a part of the nodes is evaluated; the larger the cluster, the smaller
    the part.
    """
    if num_all_nodes < _MIN_FEASIBLE_NODES_TO_FIND or percentage >= 100:
        return num_all_nodes
    if percentage <= 0:
        percentage = max(50 - num_all_nodes // 125, _MIN_FEASIBLE_NODES_PERCENTAGE_TO_FIND)
    return max(num_all_nodes * percentage // 100, _MIN_FEASIBLE_NODES_TO_FIND)


def nodes_that_pass_filters(
    framework: Framework, state: CycleState, pod: PodInfo, rows: Rows
) -> Rows:
    """The rows that pass all filters, with and without the pods nominated to run there."""
    rows = framework.run_filter_plugins(state, pod, rows)
    if framework.nominator and len(rows):
        rejected = [
            row
            for row in _nominated_rows(framework)
            if row in rows and framework.filter_with_nominated_pods(state, pod, row) is not None
        ]
        if rejected:
            rows = rows[~np.isin(rows, rejected)]
    return rows


def filtered_nodes_statuses(framework: Framework, state: CycleState, pod: PodInfo) -> NodeStatuses:
    """Why no node is feasible: the status of each."""
    rows = framework.snapshot.order
    out: NodeStatuses = []
    for row in _nominated_rows(framework):
        status = framework.filter_with_nominated_pods(state, pod, row)
        if status is not None:
            out.append((status, np.array([row], np.intp)))
            rows = rows[rows != row]
    return out + framework.run_filter_plugins_for_statuses(state, pod, rows)


def _nominated_rows(framework: Framework) -> list[int]:
    """The rows of existing nodes that pods are nominated for."""
    nodes = (framework.snapshot.nodes.get(name) for name in framework.nominator.nodes)
    return [node.row for node in nodes if node is not None and node.node is not None]


def prioritize_nodes(framework: Framework, state: CycleState, pod: PodInfo, rows: Rows) -> Ints:
    """The total score of each row."""
    framework.run_pre_score_plugins(state, pod, rows)
    return total_scores(framework.run_score_plugins(state, pod, rows), len(rows))
