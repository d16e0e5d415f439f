"""DefaultPreemption: evicts pods of lower priority from one node and nominates the pod for it."""

from __future__ import annotations

import logging

from transom.client.api import STRATEGIC_PATCH, is_not_found
from transom.client.resources import POD_DISRUPTION_BUDGETS, PODS
from transom.kit.clock import rfc3339
from transom.machinery import podutil
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.scheduler.errors import SchedulerConfigError, SchedulingError
from transom.scheduler.framework import (
    Code,
    CycleState,
    Handle,
    NodeToStatusMap,
    PostFilterPlugin,
    PostFilterResult,
    Status,
    check_args,
    unschedulable,
)
from transom.scheduler.pods import PodInfo
from transom.scheduler.preemption import (
    Candidate,
    PreemptionEvaluator,
    pick_one_node_for_preemption,
)

log = logging.getLogger("transom.scheduler")

_REASON = "PreemptionByScheduler"
_MIN_CANDIDATE_NODES_PERCENTAGE, _MIN_CANDIDATE_NODES_ABSOLUTE = 10, 100


class DefaultPreemption(PostFilterPlugin):
    name = "DefaultPreemption"

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("minCandidateNodesPercentage", "minCandidateNodesAbsolute"), self.name)
        percentage: int = args.get("minCandidateNodesPercentage", _MIN_CANDIDATE_NODES_PERCENTAGE)
        absolute: int = args.get("minCandidateNodesAbsolute", _MIN_CANDIDATE_NODES_ABSOLUTE)
        problem = _invalid_args(percentage, absolute)
        if problem:
            raise SchedulerConfigError(f'initializing plugin "{self.name}": {problem}')
        self._handle = handle
        self._conditions = handle.features.enabled("PodDisruptionConditions")
        budgets = handle.informers(POD_DISRUPTION_BUDGETS)
        self._evaluator = PreemptionEvaluator(handle, budgets, percentage, absolute)

    async def post_filter(
        self, state: CycleState, pod: PodInfo, filtered_nodes: NodeToStatusMap
    ) -> tuple[PostFilterResult | None, Status | None]:
        current = self._handle.pods.by_key(pod.key)
        if current is None:
            raise SchedulingError(f'pod "{pod.name}" not found')
        reason = self._why_not_eligible(pod, current, filtered_nodes)
        if reason:
            return None, self._not_helpful(reason)
        if not len(filtered_nodes.nodes_where_preemption_might_help()):
            await self._clear_nominated_node_name(current)
            return None, self._not_helpful(self._evaluator.explain([]))
        candidates, statuses = await self._evaluator.find_candidates(state, pod, filtered_nodes)
        if not candidates:
            if self._handle.rules.post_filter_message:
                await self._clear_nominated_node_name(current)
            return None, self._not_helpful(self._evaluator.explain(statuses))
        best = pick_one_node_for_preemption(candidates, self._handle.clock.time())
        await self._prepare_candidate(pod, best)
        return PostFilterResult(best.node_name), None

    def _not_helpful(self, reason: str) -> Status:
        """Older releases do not report the reason."""
        if not self._handle.rules.post_filter_message:
            return unschedulable()
        return unschedulable(f"preemption: {reason}")

    def _why_not_eligible(
        self, pod: PodInfo, current: Object, filtered_nodes: NodeToStatusMap
    ) -> str:
        """Why the pod may not preempt others, or ""."""
        if current["spec"].get("preemptionPolicy") == "Never":
            return "not eligible due to preemptionPolicy=Never."
        nominated = (current.get("status") or {}).get("nominatedNodeName", "")
        node = self._handle.snapshot.nodes.get(nominated) if nominated else None
        if node is None:
            return ""
        status = filtered_nodes.get(node.row)
        if status is not None and status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return ""
        # Terminating victims will make room soon.
        if any(
            p.terminating and p.priority < pod.priority and self._counts_as_victim(p)
            for p in node.pods.values()
        ):
            return "not eligible due to a terminating pod on the nominated node."
        return ""

    def _counts_as_victim(self, pod: PodInfo) -> bool:
        """Whether a terminating pod is the victim of a preemption; older releases do not record it."""
        if not self._conditions:
            return True
        condition = podutil.find_condition(pod.pod, "DisruptionTarget")
        return (
            condition is not None
            and condition.get("status") == "True"
            and condition.get("reason") == _REASON
        )

    async def _prepare_candidate(self, pod: PodInfo, best: Candidate) -> None:
        handle, node_name = self._handle, best.node_name
        for victim in best.victims:
            try:
                if self._conditions and not victim.terminating:
                    await self._mark_victim(pod, victim)
                await handle.client.delete(PODS, victim.namespace, victim.name)
            except (ApiError, OSError) as error:
                log.warning("cannot preempt pod %s: %s", victim.key, error)
                raise SchedulingError(str(error)) from error
            waiting = handle.get_waiting_pod(victim.uid)
            if waiting is not None:
                waiting.reject("preempted")
            handle.event_recorder.event(
                victim.pod,
                "Normal",
                "Preempted",
                "Preempting",
                handle.rules.preempted.format(
                    namespace=pod.namespace, name=pod.name, uid=pod.uid, node=node_name
                ),
                related=pod.pod,
            )
        # Nominated pods of lower priority may not fit on the node any more.
        for nominated in handle.nominator.nominated_pods_for_node(node_name):
            if nominated.priority < pod.priority:
                await self._clear_nominated_node_name(nominated.pod)

    async def _mark_victim(self, pod: PodInfo, victim: PodInfo) -> None:
        who = pod.scheduler_name
        condition: Object = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": _REASON,
            "message": f"{who}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": rfc3339(self._handle.clock.time()),
        }
        known = [c["type"] for c in (victim.pod.get("status") or {}).get("conditions") or ()]
        order = [{"type": kind} for kind in dict.fromkeys((*known, "DisruptionTarget"))]
        generation = victim.pod["metadata"].get("generation")
        if generation and self._handle.features.enabled("PodObservedGenerationTracking"):
            condition["observedGeneration"] = generation
        try:
            await self._handle.client.patch(
                PODS,
                victim.namespace,
                victim.name,
                {"status": {"conditions": [condition], "$setElementOrder/conditions": order}},
                STRATEGIC_PATCH,
                subresource="status",
            )
        except ApiError as error:
            if not is_not_found(error):
                raise

    async def _clear_nominated_node_name(self, pod: Object) -> None:
        if not (pod.get("status") or {}).get("nominatedNodeName"):
            return
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        patch = {"status": {"nominatedNodeName": None}}
        try:
            await self._handle.client.patch(
                PODS, namespace, name, patch, STRATEGIC_PATCH, subresource="status"
            )
        except (ApiError, OSError) as error:
            log.warning("cannot clear nominatedNodeName of pod %s/%s: %s", namespace, name, error)


def _invalid_args(percentage: int, absolute: int) -> str:
    if not 0 <= percentage <= 100:
        return "minCandidateNodesPercentage is not in the range [0, 100]"
    if absolute < 0:
        return "minCandidateNodesAbsolute is not in the range [0, inf)"
    if not percentage and not absolute:
        return "both minCandidateNodesPercentage and minCandidateNodesAbsolute cannot be zero"
    return ""
