"""The APIServices of the groups that this server serves itself: built-in and custom group versions.

Those of built-in versions are reconciled once at start-up; those of custom resources follow their
definitions, as does that of resource metrics. An APIService without the label of either, or with a
service, belongs to a user and is not changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from transom.apiserver.core.bodies import own_fields
from transom.apiserver.core.discovery import CUSTOM_PRIORITY, version_priorities
from transom.apiserver.core.loopback import Loopback
from transom.kit.clock import Timer
from transom.machinery.errors import ApiError
from transom.machinery.kinds import Kind
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.served_since import ALL_SINCE
from transom.store.api import StoreEvent, Subscription

log = logging.getLogger("transom.apiserver")
LABEL = "kube-aggregator.kubernetes.io/automanaged"
ON_START, ALWAYS = "onstart", "true"
GROUP = "apiregistration.k8s.io"
_RETRY_SECONDS = 1.0


def _spec(group: str, version: str, group_priority: int, version_priority: int) -> Object:
    spec: Object = {"group": group} if group else {}
    return spec | {
        "version": version,
        "groupPriorityMinimum": group_priority,
        "versionPriority": version_priority,
    }


def builtin_api_services(kinds: Iterable[Kind], release: Release = ALL_SINCE) -> dict[str, Object]:
    """Name -> spec of the APIServices of built-in group versions."""
    out: dict[str, Object] = {}
    for kind in kinds:
        if kind.custom:
            continue
        places = [(kind.group, v) for v in kind.versions]
        places += [(group, v) for group, versions in kind.also for v in versions]
        for group, version in places:
            priorities = version_priorities(group, version, release)
            if priorities != CUSTOM_PRIORITY:
                out[f"{version}.{group}"] = _spec(group, version, *priorities)
    return out


def custom_api_services(definitions: Iterable[Object]) -> dict[str, Object]:
    """Name -> spec of the APIServices of custom group versions."""
    out: dict[str, Object] = {}
    for definition in definitions:
        spec = definition.get("spec") or {}
        for version in spec.get("versions") or ():
            if version.get("served"):
                name, group = version["name"], spec["group"]
                out[f"{name}.{group}"] = _spec(group, name, *CUSTOM_PRIORITY)
    return out


class Registration:
    def __init__(self, loopback: Loopback, own: Mapping[str, Object]) -> None:
        """`own`: name and spec of this server's APIServices that are neither built-in nor
        custom.
        """
        self._loopback = loopback
        self._storage = loopback.storage
        self._own = own
        resource = loopback.resources.require
        self._services = resource(GROUP, "v1", "apiservices")
        self._definitions = resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        self._subscriptions: list[Subscription] = []
        self._running: asyncio.Task[None] | None = None
        self._again = False
        self._timer: Timer | None = None

    async def start(self) -> None:
        resources = self._loopback.resources
        wanted = builtin_api_services(resources.served_kinds(), resources.release)
        await asyncio.gather(*(self._ensure(name, spec, ON_START) for name, spec in wanted.items()))
        for found in self._storage.objects(self._services):
            name = found["metadata"]["name"]
            if _managed(found) == ON_START and name not in wanted:
                await self._delete(name)
        await self._follow()
        store = self._storage.store
        for res in (self._definitions, self._services):
            self._subscriptions.append(
                store.watch(res.key_prefix(""), store.revision, self._changed)
            )

    async def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()
        self._subscriptions.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _changed(self, _events: Sequence[StoreEvent]) -> None:
        if self._running is not None:
            self._again = True
        else:
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            self._again = True
            while self._again:
                self._again = False
                await self._follow()
        except ApiError as problem:
            log.warning("registering custom resources as APIServices: %s", problem)
            self._timer = self._loopback.clock.call_later(_RETRY_SECONDS, lambda: self._changed(()))
        finally:
            self._running = None

    async def _follow(self) -> None:
        """Reconciles the APIServices of custom resources and resource metrics."""
        storage = self._storage
        wanted = custom_api_services(storage.objects(self._definitions))
        wanted |= self._own
        for name, spec in wanted.items():
            await self._ensure(name, spec, ALWAYS)
        for found in storage.objects(self._services):
            name = found["metadata"]["name"]
            if _managed(found) == ALWAYS and name not in wanted:
                await self._delete(name)

    async def _ensure(self, name: str, spec: Object, label: str) -> None:
        storage, ctx = self._storage, self._loopback.context()
        found = storage.find(self._services, "", name)
        if found is None:
            obj = self._services.ops.normalise(
                {
                    "kind": "APIService",
                    "apiVersion": self._services.api_version,
                    "metadata": {"name": name, "labels": {LABEL: label}},
                    "spec": spec,
                }
            )
            own_fields(ctx, self._services, obj, None)
            try:
                await storage.create(ctx, self._services, "", obj)
            except ApiError as problem:
                if problem.reason != "AlreadyExists":
                    raise
        elif _managed(found) and found["spec"] != spec:
            await storage.update(
                ctx,
                self._services,
                "",
                name,
                lambda old: {**(old or {}), "spec": spec},
                reread=True,
            )

    async def _delete(self, name: str) -> None:
        try:
            await self._storage.delete(self._loopback.context(), self._services, "", name, {})
        except ApiError as problem:
            if problem.code != 404:
                raise


def _managed(obj: Object) -> str:
    if obj["spec"].get("service"):
        return ""
    label = (obj["metadata"].get("labels") or {}).get(LABEL, "")
    return label if label in (ON_START, ALWAYS) else ""
