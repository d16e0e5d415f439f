"""Serves accepted definitions, updates their status, and deletes their instances on deletion.

Serving follows the store synchronously: a client that sees an established definition can use its
resource. One task writes the status, one definition at a time, as in Kubernetes; definitions change
rarely.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from transom.apiserver.core import definition_conditions
from transom.apiserver.core.bodies import own_fields
from transom.apiserver.core.loopback import Loopback
from transom.apiserver.core.resources import Resource
from transom.apiserver.core.typed import TypeOps
from transom.apiserver.core.watch import WatchHub
from transom.apiserver.crd import conditions, finalizer
from transom.apiserver.openapi.custom import CustomSchema
from transom.apiserver.webhooks.client import WebhookClient
from transom.kit.clock import rfc3339
from transom.kit.lazy import lazy_import
from transom.machinery.errors import ApiError
from transom.machinery.kinds import GVK, Kind
from transom.machinery.objects import Object
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import is_enabled
from transom.store.api import StoreEvent, StoreRecord, Subscription

# Schemas and their rules take 0.1 s to import, and only clusters with definitions need them.
if TYPE_CHECKING:
    from transom.apiserver.crd import conversion, definition, types
else:
    conversion = lazy_import("transom.apiserver.crd.conversion")
    definition = lazy_import("transom.apiserver.crd.definition")
    types = lazy_import("transom.apiserver.crd.types")

log = logging.getLogger("transom.apiserver")
_BUCKET = "customresourcedefinitions.apiextensions.k8s.io"
_RETRY = 1.0
_LARGE = 64 << 10  # bytes of a definition


class DefinitionController:
    def __init__(
        self, loopback: Loopback, hub: WatchHub, webhooks: WebhookClient, rng: random.Random
    ) -> None:
        """`webhooks` converts objects between versions."""
        self._loopback = loopback
        self._storage = loopback.storage
        self._resources = loopback.resources
        self._clock = loopback.clock
        self._hub = hub
        self._webhooks = webhooks
        self._rng = rng
        self._served: dict[str, definition.Definition] = {}
        self._queue: dict[str, None] = {}  # names to sync, first in, first out
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._finalizing: dict[str, asyncio.Task[None]] = {}
        self._subscription: Subscription | None = None

    @property
    def _res(self) -> Resource:
        return self._resources.require("apiextensions.k8s.io", "v1", "customresourcedefinitions")

    # ---- life ----

    def start(self) -> None:
        """Serves the stored definitions, then follows changes."""
        store = self._storage.store
        self._subscription = store.watch(f"{_BUCKET}/", store.revision, self._on_events)
        for record in store.list(f"{_BUCKET}/").records:
            self._changed(record)
        self._task = asyncio.ensure_future(self._work())

    async def stop(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()
        tasks = [t for t in (self._task, *self._finalizing.values()) if t is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def schemas(self) -> list[CustomSchema]:
        """The schemas of custom resources for OpenAPI documents."""
        return [
            CustomSchema(served.kind, version, served.published_schema(version))
            for served in self._served.values()
            if served.established
            for version in served.kind.versions
        ]

    # ---- following the store ----

    def _on_events(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            if event.record is not None:
                self._changed(event.record)
            else:
                self._gone(event.key.partition("/")[2])

    def _changed(self, record: StoreRecord) -> None:
        crd = self._storage.decode(self._res, record)
        try:
            self._serve(crd, record.mod_revision)
        except Exception:
            # A definition that cannot be served must not affect the others.
            log.exception("cannot serve %s", crd["metadata"]["name"])
        self._enqueue(crd["metadata"]["name"])

    def _gone(self, name: str) -> None:
        self._withdraw(name)
        group = name.partition(".")[2]
        for other in self._all():  # its old names are free
            if other["spec"]["group"] == group:
                self._enqueue(other["metadata"]["name"])

    def _serve(self, crd: Object, revision: int) -> None:
        name = crd["metadata"]["name"]
        new = definition.read_definition(
            crd,
            revision,
            selectable=is_enabled(self._resources.release, "CustomResourceFieldSelectors"),
            partial_keys=has_behaviour(self._resources.release, "PartialListKeys"),
        )
        old = self._served.get(name)
        if new is None:
            self._withdraw(name)
            return
        if old is not None and old.stamp == new.stamp:
            if old.established != new.established:
                self._served[name] = replace(new, since=old.since)
                self._resources.touch()
            return
        self._served[name] = new
        if self._conflicts_with_builtin(new.kind):
            return
        resources = self._resources
        if new.kind.versions:
            resources.add(new.kind, self._maker(new))
        else:
            resources.remove(new.kind.group, new.kind.plural)
        if old is not None:
            self._hub.end(_bucket(new.kind))  # watchers start again with the new definition

    def _withdraw(self, name: str) -> None:
        old = self._served.pop(name, None)
        if old is not None and not self._conflicts_with_builtin(old.kind):
            self._resources.remove(old.kind.group, old.kind.plural)
            self._hub.end(_bucket(old.kind))

    def _conflicts_with_builtin(self, kind: Kind) -> bool:
        there = self._resources.storage(kind.group, kind.plural)
        return there is not None and not there.custom

    def _maker(self, served: definition.Definition) -> Callable[[Kind, GVK], TypeOps]:
        converter = self._converter(served)
        return lambda _kind, gvk: types.CustomType(served, gvk, converter, self._resources.release)

    def _converter(self, served: definition.Definition) -> conversion.WebhookConverter | None:
        if served.conversion.get("strategy") != "Webhook" or len(served.versions) == 1:
            return None
        webhook = served.conversion.get("webhook") or {}
        return conversion.WebhookConverter(
            served.kind.group,
            served.kind.kind,
            webhook,
            self._webhooks,
            self._rng,
        )

    # ---- status ----

    def _all(self) -> Iterable[Object]:
        return self._storage.objects(self._res)

    def _enqueue(self, name: str) -> None:
        self._queue[name] = None
        self._wake.set()

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                name = next(iter(self._queue))
                del self._queue[name]
                try:
                    await self._sync(name)
                except ApiError as problem:
                    # deleted or changed: its event triggers another sync
                    if problem.code not in (404, 409):
                        log.warning("status of %s: %s", name, problem.message)
                        self._later(name)
                except Exception:
                    log.exception("status of %s", name)
                    self._later(name)

    def _later(self, name: str) -> None:
        self._clock.call_later(_RETRY, lambda: self._enqueue(name))

    async def _sync(self, name: str) -> None:
        crd = self._storage.find(self._res, "", name)
        if crd is None:
            return
        meta = crd["metadata"]
        if meta.get("deletionTimestamp") and definition_conditions.FINALIZER in (
            meta.get("finalizers") or ()
        ):
            if name not in self._finalizing:
                task = asyncio.ensure_future(self._finalize(name))
                self._finalizing[name] = task
                task.add_done_callback(lambda _done: self._finalizing.pop(name, None))
            return
        group = crd["spec"]["group"]
        others = [
            c for c in self._all() if c["spec"]["group"] == group and c["metadata"]["name"] != name
        ]
        before = (crd.get("status") or {}).get("acceptedNames")
        now = rfc3339(self._clock.time())
        structural = await _find_structural_condition(crd)

        def reconcile(current: Object) -> Object:
            same = current["metadata"].get("generation") == meta.get("generation")
            known = structural if same else None
            return conditions.reconcile_definition_status(current, others, now, known)

        if reconcile(crd) is crd:
            return
        written = await self._write(name, reconcile)
        if written["status"].get("acceptedNames") != before:
            for other in others:  # a name may be free now
                self._enqueue(other["metadata"]["name"])

    async def _write(self, name: str, change: Callable[[Object], Object]) -> Object:
        """Writes the status (and finalizers) of the current definition."""
        ctx, res = self._loopback.context(), self._res

        def transform(old: Object | None) -> Object:
            assert old is not None
            wanted = change(old)
            new = {**wanted, "metadata": dict(wanted["metadata"])}
            own_fields(ctx, res, new, old, "status")
            return new

        record, _ = await self._storage.update(
            ctx, res, "", name, transform, subresource="status", reread=True, checked=False
        )
        return self._storage.decode(res, record)

    # ---- deletion ----

    async def _set(self, name: str, condition: Object, *, last: bool = False) -> None:
        """Sets a condition; the last one also removes the finalizer."""
        now = rfc3339(self._clock.time())

        def change(crd: Object) -> Object:
            wanted = definition_conditions.with_definition_condition(crd, condition, now)
            if not last:
                return wanted
            kept = [
                f
                for f in crd["metadata"].get("finalizers") or ()
                if f != definition_conditions.FINALIZER
            ]
            return {**wanted, "metadata": {**crd["metadata"], "finalizers": kept}}

        await self._write(name, change)

    async def _finalize(self, name: str) -> None:
        try:
            crd = self._storage.find(self._res, "", name)
            served = self._served.get(name)
            await self._set(name, finalizer.IN_PROGRESS)
            if (
                crd is None
                or served is None
                or not definition_conditions.is_condition_true(
                    crd, definition_conditions.ESTABLISHED
                )
            ):
                await self._set(name, finalizer.NEVER_ESTABLISHED, last=True)
                return
            res = self._stored_resource(served)
            while True:
                problem = await finalizer.delete_instances(self._loopback, res)
                if problem is None and await finalizer.wait_until_empty(self._loopback, res):
                    break
                await self._set(name, problem or finalizer.LEFT_OVER)
                if problem is not None:
                    await self._clock.sleep(_RETRY)
            await self._set(name, finalizer.COMPLETED, last=True)
        except ApiError as problem:
            if problem.code != 404:
                log.warning("deletion of %s: %s", name, problem.message)
                self._later(name)
        except Exception:
            log.exception("deletion of %s", name)
            self._later(name)

    def _stored_resource(self, served: definition.Definition) -> Resource:
        """The resource in its storage version, served or not."""
        return Resource(served.kind, served.storage, None, self._maker(served))


def _bucket(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}"


async def _find_structural_condition(crd: Object) -> Callable[[Object], Object | None]:
    """Whether the schemas are structural, for one generation of a definition. Large ones are
    examined in a thread.
    """
    if len(orjson.dumps(crd["spec"])) > _LARGE:
        found = await asyncio.to_thread(conditions.structural_condition, crd)
    else:
        found = conditions.structural_condition(crd)
    return lambda _: found
