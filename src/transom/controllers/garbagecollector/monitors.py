"""Watches every resource of the server, and maps kinds to resources.

Built-in resources use the informers that all controllers share. A custom resource has its own
informer, which stops with its definition and resumes from its last state when the resource comes
back.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import ExitStack

from transom.client.api import ApiClient
from transom.client.informer import Informer, InformerFactory
from transom.client.resources import GroupVersionResource, builtin_resource
from transom.kit.clock import Clock
from transom.kit.named_tuple import NamedTuple
from transom.machinery.discovery_documents import listed_resources
from transom.machinery.errors import ApiError, GroupResource
from transom.machinery.kinds import KINDS
from transom.machinery.objects import Object

log = logging.getLogger("transom.controllers")

_BUILT_IN = {(kind.group, kind.plural): builtin_resource(kind.key) for kind in KINDS}
# Events neither have owners nor own objects, and there are many.
_IGNORED = {("", "events"), ("events.k8s.io", "events")}
_VERBS = frozenset(("delete", "list", "watch"))

Seen = Callable[[str, str, Object | None, Object], None]  # apiVersion, kind, old, new
Gone = Callable[[str, str, Object], None]


def _metadata_only(obj: Object) -> Object:
    """A custom object may be large, and the collector needs nothing else."""
    return {name: obj[name] for name in ("apiVersion", "kind", "metadata") if name in obj}


class ServedResources(NamedTuple):
    """What the server serves: kinds by group version and kind, the versions to watch, and the
    groups that failed.
    """

    kinds: dict[tuple[str, str], GroupVersionResource]
    deletable: list[GroupVersionResource]
    silent: frozenset[str]


async def discover_served(client: ApiClient) -> ServedResources:
    core: list[str] = (await client.get_json("/api"))["versions"]
    groups = [("", core[0], core)]
    for group in (await client.get_json("/apis"))["groups"]:
        groups.append(
            (
                group["name"],
                group["preferredVersion"]["version"],
                [row["version"] for row in group["versions"]],
            )
        )
    kinds: dict[tuple[str, str], GroupVersionResource] = {}
    deletable: dict[GroupResource, GroupVersionResource] = {}
    silent = set()
    for name, preferred, versions in groups:
        for version in sorted(versions, key=lambda version: version != preferred):
            group_version = f"{name}/{version}" if name else version
            # there may be thousands of groups, and in-process calls do not yield
            await asyncio.sleep(0)
            try:
                document = await client.get_json(
                    f"/apis/{group_version}" if name else f"/api/{version}"
                )
            except (ApiError, OSError) as problem:
                log.info("garbage collector: discovery of %s failed: %s", group_version, problem)
                silent.add(name)
                continue
            for row in listed_resources(document):
                if "/" in row["name"]:
                    continue
                resource = GroupVersionResource(
                    name, version, row["name"], row["namespaced"], row["kind"]
                )
                kinds.setdefault((group_version, row["kind"]), resource)
                if _VERBS.issubset(row.get("verbs") or ()):
                    deletable.setdefault(resource.group_resource, resource)
    return ServedResources(kinds, [*deletable.values()], frozenset(silent))


class Monitors:
    def __init__(
        self,
        client: ApiClient,
        informers: InformerFactory,
        clock: Clock,
        rng: random.Random,
        seen: Seen,
        gone: Gone,
    ) -> None:
        self._client = client
        self._shared = informers
        self._clock = clock
        self._rng = rng
        self._seen = seen
        self._gone = gone
        self._watched: dict[GroupVersionResource, Informer] = {}
        self._own: dict[GroupVersionResource, asyncio.Task[None]] = {}
        self._handlers = ExitStack()  # removes those of the shared informers
        self._kinds: dict[tuple[str, str], GroupVersionResource] = {}

    def resource(self, api_version: str, kind: str) -> GroupVersionResource | None:
        """How to read objects of a kind; None if it is not served."""
        found = self._kinds.get((api_version, kind))
        if found is None:
            return None
        # Only metadata matters, so any version works; the stored one needs no conversion.
        return _BUILT_IN.get((found.group, found.plural), found)

    def follow(self, served: ServedResources) -> list[Informer]:
        """Watches all served resources; returns the informers to wait for."""
        known = {k: v for k, v in self._kinds.items() if k[0].rpartition("/")[0] in served.silent}
        self._kinds = {**known, **served.kinds}
        wanted = [r for r in served.deletable if (r.group, r.plural) not in _IGNORED]
        active = []
        for resource in wanted:
            own = (resource.group, resource.plural) not in _BUILT_IN
            handle = resource if own else _BUILT_IN[resource.group, resource.plural]
            informer = self._watched.get(resource)
            if informer is None:
                informer = self._watch(resource, handle, own)
            if own and resource not in self._own:
                self._own[resource] = asyncio.create_task(
                    informer.run(), name=f"informer {resource}"
                )
            active.append(informer)
        self._shared.start()
        for resource in [r for r in self._own if r not in wanted and r.group not in served.silent]:
            self._own.pop(resource).cancel()
        return active

    def _watch(
        self, resource: GroupVersionResource, handle: GroupVersionResource, own: bool
    ) -> Informer:
        api_version, kind = resource.api_version, resource.kind
        informer = (
            Informer(self._client, handle, self._clock, self._rng, transform=_metadata_only)
            if own
            else self._shared(handle)
        )

        def added(obj: Object) -> None:
            self._seen(api_version, kind, None, obj)

        def updated(old: Object, new: Object) -> None:
            before, after = old["metadata"], new["metadata"]
            if before["uid"] != after["uid"]:
                self._gone(api_version, kind, old)
                self._seen(api_version, kind, None, new)
            elif any(
                before.get(f) != after.get(f)
                for f in ("ownerReferences", "finalizers", "deletionTimestamp")
            ):
                self._seen(api_version, kind, old, new)

        handler = informer.add_handler(
            add=added, update=updated, delete=lambda obj: self._gone(api_version, kind, obj)
        )
        self._handlers.callback(informer.remove_handler, handler)
        self._watched[resource] = informer
        return informer

    async def stop(self) -> None:
        self._handlers.close()
        tasks = [*self._own.values()]
        self._own.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
