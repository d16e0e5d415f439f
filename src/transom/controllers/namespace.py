"""Namespace deletion: deletes all content, then removes the namespace's finalizer.

Uses discovery, so custom and aggregated resources are deleted too. Respects finalizers and the
grace periods of pods; conditions in the namespace's status show what the deletion waits for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import field

from transom.client.api import ApiClient, is_conflict, is_method_not_supported, is_not_found
from transom.client.discovery import DiscoveredResource, DiscoveryFailed, preferred_resources
from transom.client.ratelimit import ControllerLimiter
from transom.client.resources import NAMESPACES, PODS, GroupVersionResource
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.kit.clock import Clock, parse_rfc3339, rfc3339
from transom.kit.lazy_dataclass import dataclass
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

log = logging.getLogger("transom.controllers")

_Change = Callable[[Object], Awaitable[Object]]
FINALIZER = "kubernetes"
_WORKERS = 10
_RESYNC_SECONDS = 300.0
_LONGEST_RETRY = 60.0
# The estimated time for objects with finalizers.
_FINALIZER_SECONDS = 15

# type -> (reason, message) without problems; in the order of the status
_WELL = {
    "NamespaceDeletionDiscoveryFailure": (
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}


class NamespaceDeleter:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._grace = env.settings.namespace_grace
        self._pods_first = env.settings.features.enabled("OrderedNamespaceDeletion")
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock,
            ControllerLimiter(env.clock, longest=_LONGEST_RETRY),
            name="namespace",
            metrics=env.queues,
        )
        self._namespaces = env.informers(NAMESPACES)
        self._namespaces.add_handler(
            add=self._changed, update=lambda _, new: self._changed(new), resync=_RESYNC_SECONDS
        )

    def _changed(self, namespace: Object) -> None:
        if namespace["metadata"].get("deletionTimestamp"):
            # Objects that were being created when the namespace was deleted are visible by then.
            self._queue.add_after(namespace["metadata"]["name"], self._grace)

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._namespaces,), _WORKERS)

    async def _sync(self, name: str) -> None:
        if self._namespaces.get("", name) is None:
            return
        try:
            seconds = await self._delete(name)
        except ApiError as problem:
            if not is_not_found(problem):
                raise
            return
        if seconds:
            self._queue.add_after(name, seconds // 2 + 1)

    async def _delete(self, name: str) -> int:
        """One pass; returns the estimated seconds until the rest is deleted, 0 when it is
        complete.
        """
        namespace = await self._client.get(NAMESPACES, "", name)
        if not namespace["metadata"].get("deletionTimestamp"):
            return 0
        namespace = await self._retry_on_conflict(namespace, self._mark_terminating)
        if not namespace["metadata"].get("deletionTimestamp") or not namespace["spec"].get(
            "finalizers"
        ):
            return 0
        resources, undiscovered = await preferred_resources(self._client)
        content = await self._delete_content(namespace, resources)
        namespace = await self._report(namespace, _problems(undiscovered, content))
        failures = [*([undiscovered] if undiscovered else []), *content.failures]
        if failures:
            raise ContentRemains(failures)
        if content.seconds:
            return content.seconds
        await self._retry_on_conflict(namespace, self._finalize)
        return 0

    async def _retry_on_conflict(self, namespace: Object, change: _Change) -> Object:
        while True:
            try:
                return await change(namespace)
            except ApiError as problem:
                if not is_conflict(problem):
                    raise
            meta = namespace["metadata"]
            namespace = await self._client.get(NAMESPACES, "", meta["name"])
            if namespace["metadata"]["uid"] != meta["uid"]:
                raise RuntimeError("namespace uid has changed across retries")

    async def _mark_terminating(self, namespace: Object) -> Object:
        status = namespace.get("status") or {}
        if (
            not namespace["metadata"].get("deletionTimestamp")
            or status.get("phase") == "Terminating"
        ):
            return namespace
        return await self._client.update_status(
            NAMESPACES, {**namespace, "status": {**status, "phase": "Terminating"}}
        )

    async def _finalize(self, namespace: Object) -> Object:
        kept = sorted({f for f in namespace["spec"].get("finalizers") or () if f != FINALIZER})
        final = {**namespace, "spec": {**namespace["spec"], "finalizers": kept}}
        return await self._client.update(NAMESPACES, final, subresource="finalize")

    async def _delete_content(
        self, namespace: Object, resources: Iterable[DiscoveredResource]
    ) -> _Content:
        meta = namespace["metadata"]
        since = self._clock.time() - parse_rfc3339(meta["deletionTimestamp"])
        content = _Content()
        deletable = [r for r in resources if r.resource.namespaced and "delete" in r.verbs]
        if self._pods_first:
            deletable.sort(key=lambda found: found.resource != PODS)
        for found in deletable:
            await _delete_all(self._client, found, meta["name"], since, content)
            await asyncio.sleep(0)
            if self._pods_first and PODS in content.remaining:
                content.wait_for_pods(meta["name"])
                break
        return content

    async def _report(self, namespace: Object, problems: dict[str, tuple[str, str]]) -> Object:
        """Writes the conditions if they changed; returns the newest namespace."""
        status = namespace.get("status") or {}
        conditions = updated_conditions(status.get("conditions") or [], problems, self._clock)
        if conditions == status.get("conditions"):
            return namespace
        try:
            return await self._client.update_status(
                NAMESPACES, {**namespace, "status": {**status, "conditions": conditions}}
            )
        except ApiError as problem:
            log.info(
                "the status of namespace %s could not be updated: %s",
                namespace["metadata"]["name"],
                problem,
            )
            return namespace


class ContentRemains(RetryLater):
    """Not everything could be deleted; the pass is repeated with back-off."""

    def __init__(self, failures: Iterable[Exception]) -> None:
        super().__init__(", ".join(map(str, failures)))


class UnexpectedItems(Exception):
    """Objects without finalizers that still exist."""


class PodsRemain(Exception):
    """Pods still exist, which are deleted before other content."""


@dataclass(slots=True)
class _Content:
    """The results of a pass."""

    seconds: int = 0
    remaining: dict[GroupVersionResource, int] = field(default_factory=dict)
    finalizers: Counter[str] = field(default_factory=Counter)
    failures: list[Exception] = field(default_factory=list)
    failure_texts: list[str] = field(default_factory=list)  # for the condition

    def add_failure(self, problem: Exception) -> None:
        self.failures.append(problem)
        self.failure_texts.append(str(problem))

    def wait_for_pods(self, namespace: str) -> None:
        """Other content is deleted after the last pod; until then it is not counted."""
        self.remaining.clear()
        self.finalizers.clear()
        self.failures = [
            PodsRemain(f"failed to delete pods for namespace: {namespace}, err: {problem}")
            for problem in self.failures
        ]


async def _delete_all(
    client: ApiClient, found: DiscoveredResource, namespace: str, since: float, content: _Content
) -> None:
    """Deletes all objects of one resource and counts the rest. `since`: seconds since the namespace
    was deleted.
    """
    resource = found.resource
    estimate = 0
    try:
        if resource.group_resource == PODS.group_resource:
            estimate = await _pod_seconds(client, namespace)
            if since >= estimate:
                estimate = 0
        await _delete_collection(client, found, namespace)
        left = await _list(client, found, namespace)
    except (ApiError, OSError) as problem:
        content.add_failure(problem)
        content.seconds = max(content.seconds, estimate)
        return
    if not left:
        return
    content.remaining[resource] = len(left)
    finalizers = Counter(f for obj in left for f in obj["metadata"].get("finalizers") or ())
    content.finalizers += finalizers
    if not estimate and finalizers:
        estimate = _FINALIZER_SECONDS
    if not estimate:
        gvr = f"{resource.group}/{resource.version}, Resource={resource.plural}"
        content.add_failure(
            UnexpectedItems(
                f"unexpected items still remain in namespace: {namespace} for gvr: {gvr}"
            )
        )
    content.seconds = max(content.seconds, estimate)


async def _delete_collection(client: ApiClient, found: DiscoveredResource, namespace: str) -> None:
    if "deletecollection" in found.verbs:
        try:
            await client.delete_collection(found.resource, namespace, propagation="Background")
            return
        except ApiError as problem:
            if not (is_method_not_supported(problem) or is_not_found(problem)):
                raise
    for obj in await _list(client, found, namespace):
        try:
            await client.delete(
                found.resource, namespace, obj["metadata"]["name"], propagation="Background"
            )
        except ApiError as problem:
            if not (is_method_not_supported(problem) or is_not_found(problem)):
                raise


async def _list(client: ApiClient, found: DiscoveredResource, namespace: str) -> list[Object]:
    if "list" not in found.verbs:
        return []
    try:
        return (await client.list(found.resource, namespace)).items
    except ApiError as problem:
        if is_method_not_supported(problem) or is_not_found(problem):
            return []
        raise


async def _pod_seconds(client: ApiClient, namespace: str) -> int:
    """The longest grace period of a running pod."""
    pods = (await client.list(PODS, namespace)).items
    running = [
        p for p in pods if (p.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    ]
    return max((p["spec"].get("terminationGracePeriodSeconds") or 0 for p in running), default=0)


def _problems(
    undiscovered: DiscoveryFailed | None, content: _Content
) -> dict[str, tuple[str, str]]:
    """Condition type -> (reason, message) of the problems."""
    out = {}
    if undiscovered is not None:
        text = (
            f"Discovery failed for some groups, {len(undiscovered.failures)} failing: "
            f"{undiscovered}"
        )
        out["NamespaceDeletionDiscoveryFailure"] = ("DiscoveryFailed", text)
    if content.failure_texts:
        texts = sorted(content.failure_texts)
        out["NamespaceDeletionContentFailure"] = (
            "ContentDeletionFailed",
            f"Failed to delete all resource types, {len(texts)} remaining: {', '.join(texts)}",
        )
    if content.remaining:
        texts = sorted(
            f"{r.plural}.{r.group} has {n} resource instances" for r, n in content.remaining.items()
        )
        out["NamespaceContentRemaining"] = (
            "SomeResourcesRemain",
            f"Some resources are remaining: {', '.join(texts)}",
        )
    if content.finalizers:
        texts = sorted(
            f"{name} in {n} resource instances" for name, n in content.finalizers.items()
        )
        out["NamespaceFinalizersRemaining"] = (
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {', '.join(texts)}",
        )
    return out


def updated_conditions(
    old: list[Object], problems: dict[str, tuple[str, str]], clock: Clock
) -> list[Object]:
    """The conditions with this controller's five updated; others are unchanged."""
    out = list(old)
    for kind, well in _WELL.items():
        reason, message = problems.get(kind, well)
        status = "True" if kind in problems else "False"
        fresh: Object = {
            "type": kind,
            "status": status,
            "lastTransitionTime": rfc3339(clock.time()),
            "reason": reason,
            "message": message,
        }
        at = next((i for i, condition in enumerate(out) if condition["type"] == kind), None)
        if at is None:
            out.append(fresh)
        else:
            if out[at]["status"] == status:
                fresh["lastTransitionTime"] = out[at].get("lastTransitionTime")
            out[at] = {**out[at], **fresh}
    return out
