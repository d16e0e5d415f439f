"""Preemption: the nodes where evicting pods of lower priority would make room for a pod, and the
best of them.

On each candidate node all pods of lower priority are removed from the snapshot. If the pod then
fits, as many of them as possible are added back, those with the highest priority first. The others
are the victims.
"""

from __future__ import annotations

import asyncio
import logging

from transom.client.informer import Informer
from transom.kit.clock import parse_rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.machinery import selectors
from transom.machinery.objects import Object
from transom.machinery.selectors import SelectorError
from transom.scheduler.arrays import np
from transom.scheduler.errors import SchedulingError
from transom.scheduler.framework import (
    CycleState,
    FitError,
    Handle,
    NodeStatuses,
    NodeToStatusMap,
    Status,
    unresolvable,
)
from transom.scheduler.pods import PodInfo

log = logging.getLogger("transom.scheduler")

_TURN_SECONDS = 0.003  # how long nodes are evaluated before other tasks get the event loop
_NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")
_NOT_HELPFUL = unresolvable("Preemption is not helpful for scheduling")


class Candidate(NamedTuple):
    """A node and the pods to evict from it, those with the highest priority first."""

    node_name: str
    victims: list[PodInfo]
    num_pdb_violations: int


class PreemptionEvaluator:
    """Finds candidates for preemption."""

    def __init__(
        self, handle: Handle, disruption_budgets: Informer, min_percentage: int, min_absolute: int
    ) -> None:
        self._handle = handle
        self._disruption_budgets = disruption_budgets
        self._min_percentage = min_percentage
        self._min_absolute = min_absolute

    async def find_candidates(
        self, state: CycleState, pod: PodInfo, filtered_nodes: NodeToStatusMap
    ) -> tuple[list[Candidate], NodeStatuses]:
        """Nodes where preemption helps; if there are none, why it does not help on those where it
        might.
        """
        snapshot, clock = self._handle.snapshot, self._handle.clock
        order = snapshot.order
        rows = order[np.isin(order, filtered_nodes.nodes_where_preemption_might_help())].tolist()
        if not rows:
            return [], []
        budgets = self._disruption_budgets.list()
        wanted = min(max(len(rows) * self._min_percentage // 100, self._min_absolute), len(rows))
        start = self._handle.rng.randrange(len(rows))
        violating: list[Candidate] = []
        non_violating: list[Candidate] = []
        statuses: NodeStatuses = []
        names = [snapshot.name(row) for row in (*rows[start:], *rows[:start])]
        turn_ends = clock.monotonic() + _TURN_SECONDS
        for name in names:
            if clock.monotonic() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = clock.monotonic() + _TURN_SECONDS
            found = self._select_victims_on_node(state, pod, name, budgets)
            if isinstance(found, Status):
                node = snapshot.nodes.get(name)
                if node is not None:
                    statuses.append((found, np.array([node.row], np.intp)))
            elif found is not None:
                (violating if found.num_pdb_violations else non_violating).append(found)
                if non_violating and len(non_violating) + len(violating) >= wanted:
                    break
        return non_violating + violating[:wanted], statuses

    def explain(self, statuses: NodeStatuses) -> str:
        """Why there is no candidate; "" in releases that do not report it."""
        if not self._handle.rules.post_filter_message:
            return ""
        order = self._handle.snapshot.order
        seen = {int(row) for _, rows in statuses for row in rows}
        others = np.array([row for row in order.tolist() if row not in seen], np.intp)
        absent: NodeStatuses = [(_NOT_HELPFUL, others)] if len(others) else []
        return str(FitError(len(order), [*statuses, *absent]))

    def _select_victims_on_node(
        self, state: CycleState, pod: PodInfo, node_name: str, budgets: list[Object]
    ) -> Candidate | Status | None:
        """A status: why the pod would not fit even without all pods of lower priority."""
        handle, snapshot = self._handle, self._handle.snapshot
        node = snapshot.nodes.get(node_name)
        if node is None or node.node is None:
            return None  # deleted while other nodes were evaluated
        potential_victims = [p for p in node.pods.values() if p.priority < pod.priority]
        if not potential_victims:
            return _NO_VICTIMS
        state = handle.clone_state(state)
        now = handle.clock.time()
        removed: dict[str, PodInfo] = {}
        victims: list[PodInfo] = []

        def reprieve(victim: PodInfo) -> bool:
            del removed[victim.uid]
            handle.add_pod(state, pod, victim, node_name)
            if handle.pod_passes_filters(state, pod, node.row, filters):
                return True
            removed[victim.uid] = victim
            handle.remove_pod(state, pod, victim, node)
            victims.append(victim)
            return False

        try:
            filters = handle.filters_depending_on_pods(state, pod, node.row)
            for victim in potential_victims:
                removed[victim.uid] = victim
                handle.remove_pod(state, pod, victim, node)
            if not handle.pod_passes_filters(state, pod, node.row, filters):
                if not handle.rules.post_filter_message:
                    return None
                return handle.node_status(state, pod, node.row)
            potential_victims.sort(key=lambda p: (-p.priority, pod_start_time(p, now)))
            violating, non_violating = split_by_disruption_budgets(potential_victims, budgets)
            num_violations = sum(not reprieve(victim) for victim in violating)
            for victim in non_violating:
                reprieve(victim)
            return Candidate(node_name, victims, num_violations)
        except SchedulingError as error:
            log.warning("looking for victims on node %s: %s", node_name, error)
            return None
        finally:
            for victim in removed.values():
                snapshot.add_pod(victim, node_name)


def pod_start_time(pod: PodInfo, now: float) -> float:
    """A pod that has not started counts as starting now."""
    text = (pod.pod.get("status") or {}).get("startTime")
    return parse_rfc3339(text) if text else now


def split_by_disruption_budgets(
    pods: list[PodInfo], budgets: list[Object]
) -> tuple[list[PodInfo], list[PodInfo]]:
    """Pods whose eviction would violate a PodDisruptionBudget, and the others. Each pod uses up its
    budgets in turn.
    """
    known = []
    for budget in budgets:
        try:
            selector = selectors.owner_selector(budget)
        except SelectorError:
            continue
        if not selector.empty:
            known.append((budget, selector))
    allowed = [(b.get("status") or {}).get("disruptionsAllowed", 0) for b, _ in known]
    violating: list[PodInfo] = []
    non_violating: list[PodInfo] = []
    for pod in pods:
        violates = False
        for i, (budget, selector) in enumerate(known):
            if not pod.identity.labels or budget["metadata"]["namespace"] != pod.namespace:
                continue
            if not selector.matches(pod.identity.labels):
                continue
            if pod.name in ((budget.get("status") or {}).get("disruptedPods") or {}):
                continue
            allowed[i] -= 1
            violates |= allowed[i] < 0
        (violating if violates else non_violating).append(pod)
    return violating, non_violating


def pick_one_node_for_preemption(candidates: list[Candidate], now: float) -> Candidate:
    """The candidate with the fewest PodDisruptionBudget violations; then the one whose most
    important victim has the lowest priority, the lowest sum of priorities, the fewest victims, and
    the latest start of its most important victims.
    """

    def cost(candidate: Candidate) -> tuple[float, ...]:
        victims = candidate.victims
        if not victims:
            return candidate.num_pdb_violations, float("-inf"), 0, 0, 0
        highest = max(p.priority for p in victims)
        earliest = min(pod_start_time(p, now) for p in victims if p.priority == highest)
        return (
            candidate.num_pdb_violations,
            victims[0].priority,
            sum(p.priority + (1 << 31) for p in victims),
            len(victims),
            -earliest,
        )

    return min(candidates, key=cost)
