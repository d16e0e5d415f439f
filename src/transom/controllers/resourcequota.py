"""Quota usage counted afresh: what the objects of a namespace cost stands in the status of its resource quotas.

Admission charges what is created; this loop counts again when something goes or stops to count, when a quota changes,
and now and then in any case. It counts what the server has now, not what an informer may still remember: an object is
stored before its charge, so a list made after a quota was read holds everything that this quota was charged for, and
the write fails when the quota was charged since. Informers only say when to count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from transom.client.discovery import preferred_resources
from transom.client.resources import PODS, RESOURCE_QUOTAS, SERVICES, GroupVersionResource, builtin
from transom.client.store import key_of
from transom.client.workqueue import WorkQueue
from transom.controllers.base import Env, work
from transom.machinery import quota as quotas
from transom.machinery.kinds import KINDS
from transom.machinery.objects import Object
from transom.machinery.quota import Evaluator

_WORKERS = 5
_RESYNC_SECONDS = 300.0
_DISCOVERY_SECONDS = 30.0
# Many things that go together are counted once.
_GATHER_SECONDS = 0.1
_TURN = 256  # objects counted before others get the loop
_VERBS = frozenset(("create", "delete", "list", "watch"))


def _built_in() -> dict[Evaluator, GroupVersionResource]:
    found = {}
    for kind in KINDS:
        evaluator = quotas.evaluator_for(kind.group, kind.plural)
        if evaluator is not None and kind.namespaced and _VERBS.issubset(kind.verbs):
            found[evaluator] = builtin(kind.key)
    return found


class ResourceQuotas:
    def __init__(self, env: Env) -> None:
        self._client = env.client
        self._clock = env.clock
        self._informers = env.informers
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name="resourcequota")
        self._resources = _built_in()
        self._observed: set[Evaluator] = set()
        self._quotas = env.informers(RESOURCE_QUOTAS)
        self._quotas.add_handler(add=self._quota_added, update=self._quota_updated, resync=_RESYNC_SECONDS)

    async def run(self) -> None:
        await work(self._queue, self._sync, (self._quotas,), _WORKERS)

    # ---- when to count -------------------------------------------------------------------------------------------

    def _quota_added(self, quota: Object) -> None:
        self._queue.add(key_of(quota))

    def _quota_updated(self, old: Object, new: Object) -> None:
        # Usage is written by admission and by us; only another limit, or the time, is a reason to count.
        if old is new or not quotas.equal(_hard(old["spec"]), _hard(new["spec"])):
            self._queue.add(key_of(new))

    def _observe(self, evaluators: Iterable[Evaluator]) -> None:
        """Be told when objects of these resources stop to cost something."""
        new = [evaluator for evaluator in evaluators if evaluator not in self._observed]
        for evaluator in new:
            self._observed.add(evaluator)
            resource = self._resources[evaluator]

            def gone(obj: Object, evaluator: Evaluator = evaluator) -> None:
                self._replenish(evaluator, obj)

            def updated(old: Object, obj: Object, resource: GroupVersionResource = resource,
                        evaluator: Evaluator = evaluator) -> None:
                if _costs_less(resource, old, obj, self._clock.time()):
                    self._replenish(evaluator, obj)

            self._informers(resource).add_handler(
                update=updated if resource in (PODS, SERVICES) else None, delete=gone
            )
        if new:
            self._informers.start()

    def _replenish(self, evaluator: Evaluator, obj: Object) -> None:
        for quota in self._quotas.list(obj["metadata"]["namespace"]):
            if evaluator.matching((quota.get("status") or {}).get("hard") or ()):
                self._queue.add_after(key_of(quota), _GATHER_SECONDS)

    # ---- counting ------------------------------------------------------------------------------------------------

    async def _sync(self, key: str) -> None:
        quota = self._quotas.by_key(key)
        if quota is None:
            return
        spec, status = quota.get("spec") or {}, quota.get("status") or {}
        if not await self._know(spec.get("hard") or {}):
            self._queue.add_after(key, _DISCOVERY_SECONDS)
        total = quotas.Total(quota, self._resources)
        self._observe(total.evaluators)
        await self._count(total, quota["metadata"]["namespace"])
        before = quotas.amounts(status.get("used"))
        used = {name: total.used.get(name, before.get(name)) for name in spec.get("hard") or ()}
        counted = {name: value for name, value in used.items() if value is not None}
        other_limits = not quotas.equal(_hard(spec), _hard(status))
        if not other_limits and "used" in status and quotas.equal(counted, before):
            return
        new = {"hard": spec.get("hard") or {}, "used": quotas.texts(counted)}
        await self._client.update_status(RESOURCE_QUOTAS, {**quota, "status": new})
        if other_limits:
            # What was created between the count and this was charged to nobody.
            self._queue.add_after(key, 1.0)

    async def _count(self, total: quotas.Total, namespace: str) -> None:
        now = self._clock.time()
        for evaluator in total.evaluators:
            listing = await self._client.list(self._resources[evaluator], namespace, limit=500)
            for number, obj in enumerate(listing.items, 1):
                total.count(evaluator, obj, now)
                if number % _TURN == 0:
                    await asyncio.sleep(0)

    async def _know(self, hard: Iterable[str]) -> bool:
        """Find custom resources that are limited; whether all are known now."""
        if not _unknown(hard, self._resources):
            return True
        found, _ = await preferred_resources(self._client)
        for resource, verbs in found:
            evaluator = quotas.evaluator_for(resource.group, resource.plural)
            if evaluator is not None and resource.namespaced and verbs >= _VERBS:
                self._resources.setdefault(evaluator, resource)
        return not _unknown(hard, self._resources)


def _hard(part: Object) -> quotas.Amounts:
    return quotas.amounts(part.get("hard"))


def _unknown(hard: Iterable[str], evaluators: Iterable[Evaluator]) -> set[str]:
    rest = set(hard)
    for evaluator in evaluators:
        if rest:
            rest -= set(evaluator.matching(rest))
    return rest


def _costs_less(resource: GroupVersionResource, old: Object, new: Object, now: float) -> bool:
    if resource == PODS:
        return quotas.counts(old, now) and not quotas.counts(new, now)
    return _exposed(old) != _exposed(new)


def _exposed(service: Object) -> str:
    kind = (service.get("spec") or {}).get("type", "")
    return kind if kind in ("NodePort", "LoadBalancer") else ""
