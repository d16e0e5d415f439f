"""What the controllers of pods share: facts about a pod, a pod from a template, creating and deleting with events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from transom.client.api import Client, is_namespace_terminating, is_not_found
from transom.client.events import NORMAL, WARNING, EventRecorder
from transom.client.resources import PODS
from transom.client.workqueue import RetryLater
from transom.kit.clock import parse_rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.validation.names import name_is_dns_subdomain

_NOT_ACTIVE = frozenset(("Succeeded", "Failed"))
_JUST_AFTER = 0.001
_PHASE_RANK = {"Pending": 0, "Unknown": 1, "Running": 2}


# ---- facts about a pod -----------------------------------------------------------------------------------------------


def ready_condition(pod: Object) -> Object | None:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Ready":
            return condition
    return None


def is_ready(pod: Object) -> bool:
    condition = ready_condition(pod)
    return condition is not None and condition.get("status") == "True"


def is_available(pod: Object, min_ready_seconds: int, now: float) -> bool:
    """Ready, and that for some time."""
    condition = ready_condition(pod)
    if condition is None or condition.get("status") != "True":
        return False
    if not min_ready_seconds:
        return True
    since = condition.get("lastTransitionTime")
    return since is not None and parse_rfc3339(since) + min_ready_seconds < now


def next_available(found: Iterable[Object], min_ready_seconds: int, now: float) -> float | None:
    """Seconds until the next of these pods is available, when nothing else happens; None when there is none to wait
    for. Nobody tells of it, so whoever counts available pods has to look again."""
    if not min_ready_seconds:
        return None
    waits = [
        parse_rfc3339(condition["lastTransitionTime"]) + min_ready_seconds - now
        for condition in map(ready_condition, found)
        if condition is not None and condition.get("status") == "True" and condition.get("lastTransitionTime")
    ]
    return min((wait + _JUST_AFTER for wait in waits if wait >= 0), default=None)


def phase(pod: Object) -> str:
    return (pod.get("status") or {}).get("phase") or ""


def is_terminating(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_active(pod: Object) -> bool:
    """Neither over nor on its way out."""
    status = pod.get("status")
    return "deletionTimestamp" not in pod["metadata"] and (not status or status.get("phase") not in _NOT_ACTIVE)


def concerns_owner(old: Object, new: Object) -> bool:
    """Whether a controller that counts pods can see a difference; most changes are of the scheduler or a kubelet."""
    before, after = old["metadata"], new["metadata"]
    return (
        before.get("labels") != after.get("labels") or before.get("ownerReferences") != after.get("ownerReferences")
        or before["uid"] != after["uid"] or phase(old) != phase(new) or ready_condition(old) != ready_condition(new)
    )


def node_of(pod: Object) -> str:
    """The node that a pod is assigned to, or ""."""
    return (pod.get("spec") or {}).get("nodeName") or ""


def rank(pod: Object, crowd: int = 0) -> tuple[bool, int, bool, int, float, int, float]:
    """What is least missed comes first: not assigned, pending, not ready, on a node with many of its kind, ready for a
    shorter time, restarted more often, younger."""
    status = pod.get("status") or {}
    ready = ready_condition(pod)
    is_ready = ready is not None and ready.get("status") == "True"
    restarts = max((c.get("restartCount", 0) for c in status.get("containerStatuses") or ()), default=0)
    return (
        bool(node_of(pod)), _PHASE_RANK.get(status.get("phase", ""), 0), is_ready, -crowd,
        -_when(ready.get("lastTransitionTime")) if ready is not None and is_ready else 0.0,
        -restarts, -_when(pod["metadata"].get("creationTimestamp")),
    )


def _when(time: str | None) -> float:
    """A time to compare; none at all is later than any."""
    return parse_rfc3339(time) if time else float("inf")


# ---- pods from templates ---------------------------------------------------------------------------------------------


def name_prefix(owner: str) -> str:
    """What generated names of an owner's pods begin with."""
    prefix = owner + "-"
    return owner if name_is_dns_subdomain(prefix, True) else prefix


def from_template(template: Object, owner: Object, ref: Object) -> Object:
    """A pod to be created. It shares the template's specification: replace what you change, do not change it."""
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
    """Creates and deletes pods for an owner, who is told of it by events."""

    def __init__(self, client: Client, events: EventRecorder) -> None:
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
        self._events.event(owner, NORMAL, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        return made

    async def delete(self, owner: Object, name: str) -> None:
        """Raises the server's answer when there is no such pod."""
        try:
            await self._client.delete(PODS, owner["metadata"]["namespace"], name)
        except ApiError as problem:
            if is_not_found(problem):
                raise
            self._events.event(owner, WARNING, "FailedDelete", f"Error deleting: {problem}")
            raise DeleteFailed(f"unable to delete pods: {problem}") from problem
        self._events.event(owner, NORMAL, "SuccessfulDelete", f"Deleted pod: {name}")


async def slow_start(count: int, attempt: Callable[[int], Awaitable[object]]) -> tuple[int, Exception | None]:
    """Call `attempt` with 0, 1 ... count - 1, in batches of 1, 2, 4 ... at the same time; no further batch after one
    with a failure. How many succeeded, and the first failure. So a full quota refuses one pod and not hundreds."""
    succeeded, size, done = 0, 1, 0
    while done < count:
        size = min(size, count - done)
        results = await asyncio.gather(*(attempt(i) for i in range(done, done + size)), return_exceptions=True)
        problems = [
            result if isinstance(result, Exception) else RetryLater("the call was cancelled")
            for result in results if isinstance(result, BaseException)
        ]
        succeeded += size - len(problems)
        if problems:
            return succeeded, problems[0]
        done += size
        size *= 2
    return succeeded, None
