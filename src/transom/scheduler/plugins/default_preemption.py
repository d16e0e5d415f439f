"""DefaultPreemption: room for a pod that fits nowhere, by ending pods of lower priority.

On each node that could do, all pods of lower priority are taken out; if the pod then fits, as many as possible come back,
the important ones first. The node with the least harm wins, and the pod is promised the room there.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

import numpy as np

from transom.client.api import STRATEGIC_PATCH
from transom.client.resources import POD_DISRUPTION_BUDGETS, PODS
from transom.kit.clock import parse_rfc3339
from transom.machinery import selectors
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.selectors import SelectorError
from transom.scheduler import cycle as cycles
from transom.scheduler.framework import ConfigError, Cycle, Failure, Handle, SchedulingError, check_args
from transom.scheduler.pods import PodInfo

log = logging.getLogger("transom.scheduler")

_PERCENT, _ABSOLUTE = 10, 100
_TURN_SECONDS = 0.003  # how long nodes are looked at before others get the loop


class Candidate(NamedTuple):
    """A node and the pods that would have to go; the most important first. `violations`: how many of them a disruption
    budget protects."""

    node: str
    victims: list[PodInfo]
    violations: int


class DefaultPreemption:
    name = "DefaultPreemption"

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("minCandidateNodesPercentage", "minCandidateNodesAbsolute"), self.name)
        self._percent: int = args.get("minCandidateNodesPercentage", _PERCENT)
        self._absolute: int = args.get("minCandidateNodesAbsolute", _ABSOLUTE)
        problem = ""
        if not 0 <= self._percent <= 100:
            problem = "minCandidateNodesPercentage is not in the range [0, 100]"
        elif self._absolute < 0:
            problem = "minCandidateNodesAbsolute is not in the range [0, inf)"
        elif not self._percent and not self._absolute:
            problem = "both minCandidateNodesPercentage and minCandidateNodesAbsolute cannot be zero"
        if problem:
            raise ConfigError(f'initializing plugin "{self.name}": {problem}')
        self._handle = handle
        self._budgets = handle.informers(POD_DISRUPTION_BUDGETS)

    async def post_filter(self, cycle: Cycle, failure: Failure) -> str:
        """The node where room was made, or "". """
        pod = self._handle.pods.by_key(cycle.pod.key)
        if pod is None:
            raise SchedulingError(f'pod "{cycle.pod.name}" not found')
        if not self._may_preempt(cycle, pod, failure):
            return ""
        candidates = await self._candidates(cycle, pod, failure)
        if not candidates:
            return ""
        best = least_harm(candidates, self._handle.clock.time())
        await self._carry_out(cycle, best)
        return best.node

    def _may_preempt(self, cycle: Cycle, pod: Object, failure: Failure) -> bool:
        if pod["spec"].get("preemptionPolicy") == "Never":
            return False
        promised = (pod.get("status") or {}).get("nominatedNodeName", "")
        info = cycle.snapshot.nodes.get(promised) if promised else None
        if info is None:
            return True
        verdict = failure.verdict_on(info.row)
        if verdict is not None and verdict.final:
            return True
        # Victims that are on their way out will make room soon.
        return not any(p.terminating and p.priority < cycle.pod.priority for p in info.pods.values())

    async def _candidates(self, cycle: Cycle, pod: Object, failure: Failure) -> list[Candidate]:
        snapshot = cycle.snapshot
        order = snapshot.order
        rows = order[np.isin(order, failure.open_rows())].tolist()
        if not rows:
            await self._clear_nomination(pod)
            return []
        budgets = self._budgets.list()
        wanted = min(max(len(rows) * self._percent // 100, self._absolute), len(rows))
        start = self._handle.rng.randrange(len(rows))
        harmless: list[Candidate] = []
        harmful: list[Candidate] = []
        names = [snapshot.name(row) for row in (*rows[start:], *rows[:start])]
        turn_ends = self._handle.clock.monotonic() + _TURN_SECONDS
        for name in names:
            if self._handle.clock.monotonic() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = self._handle.clock.monotonic() + _TURN_SECONDS
            found = self._victims(cycle, name, budgets)
            if found is not None:
                (harmful if found.violations else harmless).append(found)
                if harmless and len(harmless) + len(harmful) >= wanted:
                    break
        return harmless + harmful[:wanted]

    def _victims(self, cycle: Cycle, name: str, budgets: list[Object]) -> Candidate | None:
        """Who would have to go from this node; None if that would not help."""
        snapshot, nominator = cycle.snapshot, self._handle.nominator
        info = snapshot.nodes.get(name)
        if info is None or info.node is None:
            return None  # it went while others were looked at
        row = info.row
        lower = [p for p in info.pods.values() if p.priority < cycle.pod.priority]
        if not lower:
            return None
        now = self._handle.clock.time()
        out: dict[str, PodInfo] = {}
        victims: list[PodInfo] = []
        violations = 0

        def reprieved(pod: PodInfo) -> bool:
            snapshot.add_pod(pod, name)
            if cycles.fits(cycle, row, nominator, filters):
                del out[pod.uid]
                return True
            snapshot.remove_pod(pod)
            victims.append(pod)
            return False

        try:
            filters = cycles.concerned(cycle, row)
            for pod in lower:
                snapshot.remove_pod(pod)
                out[pod.uid] = pod
            if not cycles.fits(cycle, row, nominator, filters):
                return None
            lower.sort(key=lambda p: (-p.priority, started(p, now)))
            protected, free = split_by_budgets(lower, budgets)
            violations = sum(not reprieved(pod) for pod in protected)
            for pod in free:
                reprieved(pod)
            return Candidate(name, victims, violations)
        except SchedulingError as problem:
            log.warning("looking for victims on node %s: %s", name, problem)
            return None
        finally:
            for pod in out.values():
                snapshot.add_pod(pod, name)

    async def _carry_out(self, cycle: Cycle, best: Candidate) -> None:
        node = best.node
        announcer = self._handle.announcer(cycle.profile.name)
        for victim in best.victims:
            try:
                await self._handle.client.delete(PODS, victim.namespace, victim.name)
            except (ApiError, OSError) as problem:
                log.warning("cannot preempt pod %s: %s", victim.key, problem)
                raise SchedulingError(str(problem)) from problem
            announcer.event(
                victim.pod, "Normal", "Preempted", "Preempting",
                f"Preempted by {cycle.pod.namespace}/{cycle.pod.name} on node {node}", related=cycle.pod.pod,
            )
        # Pods of lower priority that were promised room there have to look elsewhere.
        for pod in self._handle.nominator.on(node):
            if pod.priority < cycle.pod.priority:
                await self._clear_nomination(pod.pod)

    async def _clear_nomination(self, pod: Object) -> None:
        if not (pod.get("status") or {}).get("nominatedNodeName"):
            return
        meta = pod["metadata"]
        patch = {"status": {"nominatedNodeName": None}}
        try:
            await self._handle.client.patch(
                PODS, meta["namespace"], meta["name"], patch, STRATEGIC_PATCH, subresource="status"
            )
        except (ApiError, OSError) as problem:
            log.warning("cannot clear nominatedNodeName of pod %s/%s: %s", meta["namespace"], meta["name"], problem)


def started(pod: PodInfo, now: float) -> float:
    """When the pod started; one that has not yet counts as starting now."""
    text = (pod.pod.get("status") or {}).get("startTime")
    return parse_rfc3339(text) if text else now


def split_by_budgets(pods: list[PodInfo], budgets: list[Object]) -> tuple[list[PodInfo], list[PodInfo]]:
    """Pods whose end would break a disruption budget, and the others. Each pod uses up its budgets in turn."""
    known = []
    for budget in budgets:
        try:
            selector = selectors.from_object(budget["spec"].get("selector"))
        except SelectorError:
            continue
        if not selector.empty:
            known.append((budget, selector))
    left = [(b.get("status") or {}).get("disruptionsAllowed", 0) for b, _ in known]
    protected: list[PodInfo] = []
    free: list[PodInfo] = []
    for pod in pods:
        violated = False
        for i, (budget, selector) in enumerate(known):
            if not pod.identity.labels or budget["metadata"]["namespace"] != pod.namespace:
                continue
            if not selector.matches(pod.identity.labels):
                continue
            if pod.name in ((budget.get("status") or {}).get("disruptedPods") or {}):
                continue
            left[i] -= 1
            violated |= left[i] < 0
        (protected if violated else free).append(pod)
    return protected, free


def least_harm(candidates: list[Candidate], now: float) -> Candidate:
    """Fewest broken budgets; then the lowest of the highest priorities, the lowest sum of priorities, the fewest victims;
    then where the victim that has run longest, among the most important, started last."""

    def harm(candidate: Candidate) -> tuple[float, ...]:
        victims = candidate.victims
        if not victims:
            return candidate.violations, float("-inf"), 0, 0, 0
        highest = max(p.priority for p in victims)
        earliest = min(started(p, now) for p in victims if p.priority == highest)
        return (
            candidate.violations, victims[0].priority, sum(p.priority + (1 << 31) for p in victims), len(victims), -earliest,
        )

    return min(candidates, key=harm)
