"""The collector: takes candidates from the graph, checks them on the server, and deletes, orphans
or unblocks them.

The graph may lag behind, so every decision uses the server's current state, and every deletion has
a uid precondition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from transom.client.api import MERGE_PATCH, STRATEGIC_PATCH, is_conflict, is_not_found
from transom.client.events import WARNING
from transom.client.resources import API_SERVICES, CUSTOM_RESOURCE_DEFINITIONS, GroupVersionResource
from transom.client.retry import DEFAULT_BACKOFF, retry_on_conflict
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers.base import ControllerContext
from transom.controllers.garbagecollector.graph import (
    FOREGROUND,
    ORPHAN,
    DependencyGraph,
    GraphChanges,
    GraphNode,
    OwnerIdentity,
    finalizers_of,
    invalid_namespace_message,
    referred_owner,
)
from transom.controllers.garbagecollector.monitors import Monitors, ServedResources, discover_served
from transom.machinery.errors import ApiError, GroupResource, not_found
from transom.machinery.objects import Object

log = logging.getLogger("transom.controllers")

_Change = Callable[[list[Object]], list[Object]]
_WORKERS = 20
_DISCOVERY_SECONDS = 30.0
# Many definitions that are created together are handled once.
_GATHER_SECONDS = 0.2
_UNSUPPORTED_MEDIA_TYPE = 415


class NoSuchKind(RetryLater):
    """The server does not serve this kind (yet)."""


class NamespacedOwner(Exception):
    """A cluster-scoped object refers to a namespaced owner, which cannot be resolved."""


class GarbageCollector:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._rng = env.rng
        self._events = env.recorder("garbage-collector-controller")
        self._deletions: WorkQueue[GraphNode] = WorkQueue(
            env.clock, name="garbage_collector_attempt_to_delete", metrics=env.queues
        )
        self._orphanings: WorkQueue[GraphNode] = WorkQueue(
            env.clock, name="garbage_collector_attempt_to_orphan", metrics=env.queues
        )
        self._graph = DependencyGraph(
            self._deletions.add,
            self._deletions.add_rate_limited,
            self._orphanings.add,
            self._report_invalid,
        )
        self._changes = GraphChanges()
        self._monitors = Monitors(
            env.client, env.informers, env.clock, env.rng, self._seen, self._gone
        )
        self._complete = asyncio.Event()  # all served resources have been listed
        self._rediscover = asyncio.Event()
        for resource in (CUSTOM_RESOURCE_DEFINITIONS, API_SERVICES):
            env.informers(resource).add_handler(
                add=self._served_changed, update=self._served_updated, delete=self._served_changed
            )

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._changes.run())
                group.create_task(self._follow_discovery())
                group.create_task(self._deletions.run(self._attempt_to_delete, _WORKERS))
                group.create_task(self._orphanings.run(self._attempt_to_orphan, _WORKERS))
        finally:
            await self._monitors.stop()

    # ---- resources to watch ----

    def _served_changed(self, _obj: Object) -> None:
        self._rediscover.set()

    def _served_updated(self, old: Object, new: Object) -> None:
        if old.get("spec") != new.get("spec") or _served_conditions(old) != _served_conditions(new):
            self._rediscover.set()

    async def _follow_discovery(self) -> None:
        before: ServedResources | None = None
        while True:
            self._rediscover.clear()
            try:
                served = await discover_served(self._client)
            except (ApiError, OSError) as problem:
                log.info("garbage collector: discovery failed: %s", problem)
            else:
                if served != before:
                    await self._sync_monitors(served)
                    before = served
            timer = self._clock.call_later(_DISCOVERY_SECONDS, self._rediscover.set)
            await self._rediscover.wait()
            timer.cancel()
            await self._clock.sleep(_GATHER_SECONDS)

    async def _sync_monitors(self, served: ServedResources) -> None:
        """Collects nothing until all new resources have been listed, or a timeout passes."""
        self._complete.clear()
        informers = self._monitors.follow(served)
        waiting = [asyncio.create_task(informer.synced()) for informer in informers]
        timer = self._clock.call_later(_DISCOVERY_SECONDS, _cancel, waiting)
        try:
            if waiting:
                await asyncio.wait(waiting)
        finally:
            timer.cancel()
            _cancel(waiting)
        silent = [str(informer.resource) for informer in informers if not informer.has_synced]
        if silent:
            log.warning(
                "garbage collector: %s cannot be listed; continuing without them", ", ".join(silent)
            )
        await self._changes.drained()
        self._complete.set()

    def _seen(self, api_version: str, kind: str, old: Object | None, obj: Object) -> None:
        self._changes.apply(self._graph.seen(api_version, kind, old, obj))

    def _gone(self, api_version: str, kind: str, obj: Object) -> None:
        meta = obj["metadata"]
        identity = OwnerIdentity(
            kind, api_version, meta.get("namespace", ""), meta["name"], meta["uid"]
        )
        self._changes.apply(self._graph.gone(identity))

    def _report_invalid(self, node: GraphNode, owner: OwnerIdentity) -> None:
        kind, api_version, namespace, name, uid = node.identity
        about = {
            "kind": kind,
            "apiVersion": api_version,
            "namespace": namespace,
            "name": name,
            "uid": uid,
        }
        self._events.event(
            {k: v for k, v in about.items() if v},
            WARNING,
            "OwnerRefInvalidNamespace",
            invalid_namespace_message(owner),
        )

    # ---- deleting ----

    async def _attempt_to_delete(self, node: GraphNode) -> None:
        await self._complete.wait()
        if node.virtual:
            current = self._graph.get(node.identity.uid)
            if current is None or not current.virtual:
                return
        try:
            if await self._collect(node) and node.virtual:
                # It exists; until a watch shows it, the collector has to check whether it still
                # does.
                raise RetryLater("not seen by a watch yet")
        except NamespacedOwner as problem:
            log.info("garbage collector: %s: %s", node, problem)

    async def _collect(self, node: GraphNode) -> bool:
        """Whether the object exists."""
        identity = node.identity
        if node.being_deleted and not node.deleting_dependents:
            return True
        try:
            latest = await self._get(identity)
            if latest["metadata"]["uid"] != identity.uid:
                raise _absent(identity)
            if node.deleting_dependents:
                await self._wait_for_dependents(node)
            else:
                await self._attempt_to_delete_item(node, latest)
        except ApiError as problem:
            if not is_not_found(problem):
                raise
            self._changes.apply(self._graph.absent_on_server(identity))
            return False
        return True

    async def _attempt_to_delete_item(self, node: GraphNode, latest: Object) -> None:
        """Deletes the object if it has owners and none of them exists."""
        refs = latest["metadata"].get("ownerReferences") or ()
        if not refs:
            return
        solid, dangling, waiting = await self._classify(node, refs)
        if solid:
            if dangling or waiting:
                await self._remove_references(node, [ref["uid"] for ref in (*dangling, *waiting)])
            return
        if waiting and node.dependents:
            if any(dependent.deleting_dependents for dependent in node.dependents):
                # Possibly a cycle: unblock dependents that block this object.
                await self._unblock_owners(node)
            await self._delete(node.identity, "Foreground")
            return
        held = finalizers_of(latest)
        await self._delete(
            node.identity,
            "Orphan" if ORPHAN in held else "Foreground" if FOREGROUND in held else "Background",
        )

    async def _classify(
        self, node: GraphNode, refs: Iterable[Object]
    ) -> tuple[list[Object], list[Object], list[Object]]:
        """Splits references into owners that exist, owners that do not, and owners that wait for
        their dependents' deletion.
        """
        solid, dangling, waiting = [], [], []
        for ref in refs:
            owner = await self._owner(ref, node.identity.namespace)
            if owner is None:
                dangling.append(ref)
            elif "deletionTimestamp" in owner["metadata"] and FOREGROUND in finalizers_of(owner):
                waiting.append(ref)
            else:
                solid.append(ref)
        return solid, dangling, waiting

    async def _owner(self, ref: Object, namespace: str) -> Object | None:
        identity, cluster_wide = referred_owner(ref, namespace), referred_owner(ref, "")
        absent = self._graph.absent
        if cluster_wide in absent or identity in absent:
            return None
        resource = self._resource(identity)
        try:
            owner = await self._client.get(
                resource, namespace if resource.namespaced else "", identity.name
            )
            if owner["metadata"]["uid"] == identity.uid:
                return owner
        except ApiError as problem:
            if not is_not_found(problem):
                raise
        absent.add(identity if resource.namespaced else cluster_wide)
        return None

    async def _wait_for_dependents(self, node: GraphNode) -> None:
        blocking = node.blocking_dependents()
        if not blocking:
            await self._remove_finalizer(node.identity, FOREGROUND)
        for dependent in blocking:
            if not dependent.deleting_dependents:
                self._deletions.add(dependent)

    # ---- orphaning ----

    async def _attempt_to_orphan(self, owner: GraphNode) -> None:
        await self._complete.wait()
        for dependent in [*owner.dependents]:
            try:
                await self._remove_references(dependent, [owner.identity.uid])
            except ApiError as problem:
                if not is_not_found(problem):
                    raise
        await self._remove_finalizer(owner.identity, ORPHAN)

    # ---- requests ----

    def _resource(self, identity: OwnerIdentity) -> GroupVersionResource:
        resource = self._monitors.resource(identity.api_version, identity.kind)
        if resource is None:
            raise NoSuchKind(
                f"unable to find a resource for kind {identity.kind} in version "
                f"{identity.api_version}"
            )
        if resource.namespaced and not identity.namespace:
            raise NamespacedOwner("cluster-scoped objects cannot refer to namespaced owners")
        return resource

    def _where(self, identity: OwnerIdentity) -> tuple[GroupVersionResource, str, str]:
        resource = self._resource(identity)
        return resource, identity.namespace if resource.namespaced else "", identity.name

    async def _get(self, identity: OwnerIdentity) -> Object:
        return await self._client.get(*self._where(identity))

    async def _delete(self, identity: OwnerIdentity, propagation: str) -> None:
        await self._client.delete(*self._where(identity), uid=identity.uid, propagation=propagation)

    async def _remove_references(self, node: GraphNode, uids: list[str]) -> None:
        pieces = [{"$patch": "delete", "uid": uid} for uid in uids]
        await self._patch_owners(
            node, pieces, lambda refs: [ref for ref in refs if ref.get("uid") not in uids]
        )

    async def _unblock_owners(self, node: GraphNode) -> None:
        blocking = [
            {**ref, "blockOwnerDeletion": False}
            for ref in node.owners
            if ref.get("blockOwnerDeletion")
        ]
        await self._patch_owners(
            node, blocking, lambda refs: [{**ref, "blockOwnerDeletion": False} for ref in refs]
        )

    async def _patch_owners(self, node: GraphNode, pieces: list[Object], change: _Change) -> None:
        """Changes owner references with a patch that cannot conflict. Custom resources do not
        support that, so they get the complete list.
        """
        where = self._where(node.identity)
        try:
            body: Object = {"metadata": {"uid": node.identity.uid, "ownerReferences": pieces}}
            await self._client.patch(*where, body, STRATEGIC_PATCH)
        except ApiError as problem:
            if problem.code != _UNSUPPORTED_MEDIA_TYPE:
                raise
        else:
            return

        async def attempt() -> None:
            meta = (await self._client.get(*where))["metadata"]
            if meta["uid"] != node.identity.uid:
                raise _absent(node.identity)
            refs = change(meta.get("ownerReferences") or [])
            body = {
                "metadata": {
                    "resourceVersion": meta["resourceVersion"],
                    "ownerReferences": refs or None,
                }
            }
            await self._client.patch(*where, body, MERGE_PATCH)

        await retry_on_conflict(attempt, self._clock, self._rng)

    async def _remove_finalizer(self, identity: OwnerIdentity, finalizer: str) -> None:
        where = self._where(identity)

        async def attempt() -> None:
            meta = (await self._client.get(*where))["metadata"]
            held = meta.get("finalizers") or []
            if finalizer not in held or meta["uid"] != identity.uid:
                return
            rest = [name for name in held if name != finalizer]
            body = {
                "metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": rest or None}
            }
            await self._client.patch(*where, body, MERGE_PATCH)

        try:
            await retry_on_conflict(attempt, self._clock, self._rng, DEFAULT_BACKOFF)
        except ApiError as problem:
            if is_conflict(problem):
                raise RetryLater(
                    f"the finalizer of {identity} cannot be removed: {problem}"
                ) from problem
            if not is_not_found(problem):
                raise


def _absent(identity: OwnerIdentity) -> ApiError:
    """Another object has this name now."""
    return not_found(GroupResource("", identity.kind.lower()), identity.name)


def _served_conditions(obj: Object) -> list[tuple[str, str]]:
    return [
        (row["type"], row["status"]) for row in (obj.get("status") or {}).get("conditions") or ()
    ]


def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
