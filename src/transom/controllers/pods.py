"""Shared by the controllers of pods: pod properties, pods from templates, creating and deleting
pods with events.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable

from transom.client.api import ApiClient, is_namespace_terminating, is_not_found
from transom.client.events import NORMAL, WARNING, EventRecorder
from transom.client.resources import PODS
from transom.client.workqueue import RetryLater
from transom.kit.clock import parse_rfc3339
from transom.kit.lazy import lazy_pattern
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.validation.names import name_is_dns_subdomain

_NOT_ACTIVE = frozenset(("Succeeded", "Failed"))
_JUST_AFTER = 0.001
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_COST = lazy_pattern(r"-?(?:0|[1-9][0-9]{0,9})", re.ASCII)
_INT32 = 1 << 31
_PHASE_RANK = {"Pending": 0, "Unknown": 1, "Running": 2}


# ---- facts about a node and a pod ----


def is_node_ready(node: Object) -> bool:
    return any(
        condition["type"] == "Ready" and condition.get("status") == "True"
        for condition in (node.get("status") or {}).get("conditions") or ()
    )


def pod_ready_condition(pod: Object) -> Object | None:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Ready":
            return condition
    return None


def is_pod_ready(pod: Object) -> bool:
    condition = pod_ready_condition(pod)
    return condition is not None and condition.get("status") == "True"


def is_pod_available(pod: Object, min_ready_seconds: int, now: float) -> bool:
    """Whether the pod has been ready for long enough."""
    condition = pod_ready_condition(pod)
    if condition is None or condition.get("status") != "True":
        return False
    if not min_ready_seconds:
        return True
    since = condition.get("lastTransitionTime")
    return since is not None and parse_rfc3339(since) + min_ready_seconds < now


def next_available(found: Iterable[Object], min_ready_seconds: int, now: float) -> float | None:
    """Seconds until the next of these pods becomes available; None if there is none to wait for. No
    event reports this, so a controller that counts available pods has to sync again.
    """
    if not min_ready_seconds:
        return None
    waits = [
        parse_rfc3339(condition["lastTransitionTime"]) + min_ready_seconds - now
        for condition in map(pod_ready_condition, found)
        if condition is not None
        and condition.get("status") == "True"
        and condition.get("lastTransitionTime")
    ]
    return min((wait + _JUST_AFTER for wait in waits if wait >= 0), default=None)


def pod_phase(pod: Object) -> str:
    return (pod.get("status") or {}).get("phase") or ""


def is_pod_terminating(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_pod_active(pod: Object) -> bool:
    """Neither terminal nor terminating."""
    status = pod.get("status")
    return "deletionTimestamp" not in pod["metadata"] and (
        not status or status.get("phase") not in _NOT_ACTIVE
    )


def concerns_owner(old: Object, new: Object) -> bool:
    """Whether the change affects a controller that counts pods; most changes are from the scheduler
    or a kubelet.
    """
    before, after = old["metadata"], new["metadata"]
    return (
        before.get("labels") != after.get("labels")
        or before.get("ownerReferences") != after.get("ownerReferences")
        or before["uid"] != after["uid"]
        or pod_phase(old) != pod_phase(new)
        or pod_ready_condition(old) != pod_ready_condition(new)
    )


def assigned_node(pod: Object) -> str:
    """The node that a pod is assigned to, or ""."""
    return (pod.get("spec") or {}).get("nodeName") or ""


def deletion_cost(pod: Object) -> int:
    """The cost that the annotation of a pod states; 0 if it states none."""
    text = (pod["metadata"].get("annotations") or {}).get(_DELETION_COST, "")
    return int(text) if _COST.fullmatch(text) and -_INT32 <= int(text) < _INT32 else 0


def deletion_rank(
    pod: Object, active_on_node: int = 0, *, by_cost: bool = False
) -> tuple[bool, int, bool, int, int, float, int, float]:
    """The pods to delete first come first: not assigned, pending, not ready, with a lower deletion
    cost, on a node with many related pods, ready for a shorter time, restarted more often, younger.
    """
    status = pod.get("status") or {}
    ready = pod_ready_condition(pod)
    is_ready = ready is not None and ready.get("status") == "True"
    restarts = max(
        (c.get("restartCount", 0) for c in status.get("containerStatuses") or ()), default=0
    )
    return (
        bool(assigned_node(pod)),
        _PHASE_RANK.get(status.get("phase", ""), 0),
        is_ready,
        deletion_cost(pod) if by_cost else 0,
        -active_on_node,
        -_when(ready.get("lastTransitionTime")) if ready is not None and is_ready else 0.0,
        -restarts,
        -_when(pod["metadata"].get("creationTimestamp")),
    )


def _when(time: str | None) -> float:
    """A sortable time; no time is later than any other."""
    return parse_rfc3339(time) if time else float("inf")


# ---- pods from templates ----


def name_prefix(owner: str) -> str:
    """The prefix of generated names of an owner's pods."""
    prefix = owner + "-"
    return owner if name_is_dns_subdomain(prefix, True) else prefix


def pod_from_template(template: Object, owner: Object, ref: Object) -> Object:
    """A pod to create. It shares the template's spec: replace parts of it, do not modify them."""
    given = template.get("metadata") or {}
    meta: Object = {"generateName": name_prefix(owner["metadata"]["name"])}
    for field in ("labels", "annotations", "finalizers"):
        if given.get(field):
            meta[field] = given[field]
    meta["ownerReferences"] = [ref]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": template.get("spec") or {}}


class DeleteFailed(RetryLater):
    """A pod could not be deleted."""


class PodControl:
    """Creates and deletes pods for an owner and records events on the owner."""

    def __init__(self, client: ApiClient, events: EventRecorder) -> None:
        self._client = client
        self._events = events

    async def create(self, owner: Object, pod: Object) -> Object:
        if not pod["metadata"].get("labels"):
            raise RetryLater("unable to create pods, no labels")
        try:
            made = await self._client.create(PODS, owner["metadata"]["namespace"], pod)
        except ApiError as problem:
            if not is_namespace_terminating(problem):
                self._events.event(owner, WARNING, "FailedCreate", f"Error creating: {problem}")
            raise
        self._events.event(
            owner, NORMAL, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}"
        )
        return made

    async def delete(self, owner: Object, name: str) -> None:
        """Raises the server's error if the pod does not exist."""
        try:
            await self._client.delete(PODS, owner["metadata"]["namespace"], name)
        except ApiError as problem:
            if is_not_found(problem):
                raise
            self._events.event(owner, WARNING, "FailedDelete", f"Error deleting: {problem}")
            raise DeleteFailed(f"unable to delete pods: {problem}") from problem
        self._events.event(owner, NORMAL, "SuccessfulDelete", f"Deleted pod: {name}")


async def slow_start(
    count: int, attempt: Callable[[int], Awaitable[object]]
) -> tuple[int, Exception | None]:
    """Calls `attempt` with 0, 1 ... count - 1, in concurrent batches of 1, 2, 4 ..., and stops
    after a batch with a failure. Returns the number of successes and the first failure. So a full
    quota rejects one pod and not hundreds.
    """
    succeeded, size, done = 0, 1, 0
    while done < count:
        size = min(size, count - done)
        results = await asyncio.gather(
            *(attempt(i) for i in range(done, done + size)), return_exceptions=True
        )
        problems = [
            result if isinstance(result, Exception) else RetryLater("the call was cancelled")
            for result in results
            if isinstance(result, BaseException)
        ]
        succeeded += size - len(problems)
        if problems:
            return succeeded, problems[0]
        done += size
        size *= 2
    return succeeded, None
