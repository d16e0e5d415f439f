"""The definitions at work: each one that is accepted is served, its status is kept, and on deletion its instances go.

Serving follows the store synchronously: whoever sees a definition established finds its resource there. The status is
written by one task, a definition at a time, as Kubernetes does; it is a slow moving API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from transom.apiserver import writes
from transom.apiserver.crd import conditions, finalizer
from transom.apiserver.openapi.custom import CustomSchema
from transom.apiserver.resources import Resource
from transom.apiserver.typed import TypeOps
from transom.kit.clock import rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.kinds import GVK, Kind
from transom.machinery.objects import Object
from transom.store.api import Event, Record, Subscription

if TYPE_CHECKING:
    from transom.apiserver.crd.conversion import WebhookConverter
    from transom.apiserver.crd.definition import Definition
    from transom.apiserver.server import ApiServer

log = logging.getLogger("transom.apiserver")
_BUCKET = "customresourcedefinitions.apiextensions.k8s.io"
_RETRY = 1.0


class Definitions:
    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._served: dict[str, Definition] = {}
        self._queue: dict[str, None] = {}  # names to look at, first in first out
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._finalizing: dict[str, asyncio.Task[None]] = {}
        self._subscription: Subscription | None = None

    @property
    def _res(self) -> Resource:
        return self._server.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")

    # ---- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Serve what is stored, then follow."""
        store = self._server.storage.store
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
        """What OpenAPI documents say about custom resources."""
        return [
            CustomSchema(served.kind, version, served.published_schema(version))
            for served in self._served.values() if served.established for version in served.kind.versions
        ]

    # ---- following the store -------------------------------------------------------------------------------------

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.record is not None:
                self._changed(event.record)
            else:
                self._gone(event.key.partition("/")[2])

    def _changed(self, record: Record) -> None:
        crd = self._server.storage.decode(self._res, record)
        try:
            self._serve(crd, record.mod_revision)
        except Exception:
            # One definition that cannot be served must not keep the others from it.
            log.exception("cannot serve %s", crd["metadata"]["name"])
        self._enqueue(crd["metadata"]["name"])

    def _gone(self, name: str) -> None:
        self._withdraw(name)
        group = name.partition(".")[2]
        for other in self._all():  # the names it had are free
            if other["spec"]["group"] == group:
                self._enqueue(other["metadata"]["name"])

    def _serve(self, crd: Object, revision: int) -> None:
        name = crd["metadata"]["name"]
        # Schemas and their rules are a tenth of a second of imports, which a cluster without definitions does not pay.
        from transom.apiserver.crd import definition

        new = definition.read(crd, revision)
        old = self._served.get(name)
        if new is None:
            self._withdraw(name)
            return
        if old is not None and old.stamp == new.stamp:
            if old.established != new.established:
                self._served[name] = replace(new, since=old.since)
                self._server.resources.touch()
            return
        self._served[name] = new
        if self._shadows_builtin(new.kind):
            return
        resources = self._server.resources
        if new.kind.versions:
            resources.add(new.kind, self._maker(new))
        else:
            resources.remove(new.kind.group, new.kind.plural)
        if old is not None:
            self._server.hub.end(_bucket(new.kind))  # who watches begins anew, under the new definition

    def _withdraw(self, name: str) -> None:
        old = self._served.pop(name, None)
        if old is not None and not self._shadows_builtin(old.kind):
            self._server.resources.remove(old.kind.group, old.kind.plural)
            self._server.hub.end(_bucket(old.kind))

    def _shadows_builtin(self, kind: Kind) -> bool:
        there = self._server.resources.storage(kind.group, kind.plural)
        return there is not None and not there.custom

    def _maker(self, served: Definition) -> Callable[[Kind, GVK], TypeOps]:
        converter = self._converter(served)
        from transom.apiserver.crd.types import CustomType

        return lambda _kind, gvk: CustomType(served, gvk, converter)

    def _converter(self, served: Definition) -> WebhookConverter | None:
        if served.conversion.get("strategy") != "Webhook" or len(served.versions) == 1:
            return None
        from transom.apiserver.crd.conversion import WebhookConverter

        webhook = served.conversion.get("webhook") or {}
        return WebhookConverter(
            served.kind.group, served.kind.kind, webhook, self._server.webhooks, self._server.options.rng
        )

    # ---- status --------------------------------------------------------------------------------------------------

    def _all(self) -> Iterable[Object]:
        return self._server.storage.objects(self._res)

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
                    if problem.code not in (404, 409):  # gone or changed: its event comes back here
                        log.warning("status of %s: %s", name, problem.message)
                        self._later(name)
                except Exception:
                    log.exception("status of %s", name)
                    self._later(name)

    def _later(self, name: str) -> None:
        self._server.clock.call_later(_RETRY, lambda: self._enqueue(name))

    async def _sync(self, name: str) -> None:
        crd = self._server.storage.find(self._res, "", name)
        if crd is None:
            return
        meta = crd["metadata"]
        if meta.get("deletionTimestamp") and conditions.FINALIZER in (meta.get("finalizers") or ()):
            if name not in self._finalizing:
                task = asyncio.ensure_future(self._finalize(name))
                self._finalizing[name] = task
                task.add_done_callback(lambda _done: self._finalizing.pop(name, None))
            return
        group = crd["spec"]["group"]
        others = [c for c in self._all() if c["spec"]["group"] == group and c["metadata"]["name"] != name]
        before = (crd.get("status") or {}).get("acceptedNames")
        now = rfc3339(self._server.clock.time())
        if conditions.reconcile(crd, others, now) is crd:
            return
        written = await self._write(name, lambda current: conditions.reconcile(current, others, now))
        if written["status"].get("acceptedNames") != before:
            for other in others:  # a name may have become free
                self._enqueue(other["metadata"]["name"])

    async def _write(self, name: str, change: Callable[[Object], Object]) -> Object:
        """Write the status (and finalizers) of whatever the definition is by now."""
        ctx, res = self._server.context(), self._res

        def transform(old: Object | None) -> Object:
            assert old is not None
            wanted = change(old)
            new = {**wanted, "metadata": dict(wanted["metadata"])}
            writes.own_fields(ctx, res, new, old, "status")
            return new

        record, _ = await self._server.storage.update(
            ctx, res, "", name, transform, subresource="status", reread=True, checked=False
        )
        return self._server.storage.decode(res, record)

    # ---- deletion ------------------------------------------------------------------------------------------------

    async def _set(self, name: str, condition: Object, *, last: bool = False) -> None:
        """Set a condition; with the last one, the finalizer goes."""
        now = rfc3339(self._server.clock.time())

        def change(crd: Object) -> Object:
            wanted = conditions.with_condition(crd, condition, now)
            if not last:
                return wanted
            kept = [f for f in crd["metadata"].get("finalizers") or () if f != conditions.FINALIZER]
            return {**wanted, "metadata": {**crd["metadata"], "finalizers": kept}}

        await self._write(name, change)

    async def _finalize(self, name: str) -> None:
        try:
            crd = self._server.storage.find(self._res, "", name)
            served = self._served.get(name)
            await self._set(name, finalizer.IN_PROGRESS)
            if crd is None or served is None or not conditions.is_true(crd, conditions.ESTABLISHED):
                await self._set(name, finalizer.NEVER_ESTABLISHED, last=True)
                return
            res = self._stored_resource(served)
            while True:
                problem = await finalizer.delete_instances(self._server, res)
                if problem is None and await finalizer.wait_until_empty(self._server, res):
                    break
                await self._set(name, problem or finalizer.LEFT_OVER)
                if problem is not None:
                    await self._server.clock.sleep(_RETRY)
            await self._set(name, finalizer.COMPLETED, last=True)
        except ApiError as problem:
            if problem.code != 404:
                log.warning("deletion of %s: %s", name, problem.message)
                self._later(name)
        except Exception:
            log.exception("deletion of %s", name)
            self._later(name)

    def _stored_resource(self, served: Definition) -> Resource:
        """The resource in its storage version, served or not."""
        return Resource(served.kind, served.storage, None, self._maker(served))


def _bucket(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}"
