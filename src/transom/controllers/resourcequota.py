"""Recalculates quota usage: the status of resource quotas shows what the objects of a namespace
use.

Admission charges new objects; this loop recounts when an object is deleted or stops to count, when
a quota changes, and periodically. It counts the server's current objects, not an informer's: an
object is stored before its charge, so a list made after reading a quota contains everything that
the quota was charged for, and the write fails if the quota was charged since. Informers only
trigger the count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial

from transom.client.discovery import preferred_resources
from transom.client.resources import (
    PODS,
    RESOURCE_QUOTAS,
    SERVICES,
    GroupVersionResource,
    builtin_resource,
)
from transom.client.store import object_key
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.kit.large_work import compute_for_object
from transom.machinery import quota as quotas
from transom.machinery.kinds import KINDS
from transom.machinery.objects import Object
from transom.machinery.quota import QuotaEvaluator, QuotaRules

_WORKERS = 5
_RESYNC_SECONDS = 300.0
_DISCOVERY_SECONDS = 30.0
# Many changes at once cause one recount.
_GATHER_SECONDS = 0.1
_TURN = 256  # objects counted before other tasks run
_VERBS = frozenset(("create", "delete", "list", "watch"))


def _built_in(rules: QuotaRules) -> dict[QuotaEvaluator, GroupVersionResource]:
    found = {}
    for kind in KINDS:
        evaluator = quotas.evaluator_for(kind.group, kind.plural, rules)
        if evaluator is not None and kind.namespaced and _VERBS.issubset(kind.verbs):
            found[evaluator] = builtin_resource(kind.key)
    return found


class ResourceQuotas:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._informers = env.informers
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, name="resourcequota_primary", metrics=env.queues
        )
        self._rules = quotas.quota_rules(env.settings.features)
        self._resources = _built_in(self._rules)
        self._observed: set[QuotaEvaluator] = set()
        self._observing = ExitStack()  # removes the handlers that were added while running
        self._quotas = env.informers(RESOURCE_QUOTAS)
        self._quotas.add_handler(
            add=self._quota_added, update=self._quota_updated, resync=_RESYNC_SECONDS
        )

    async def run(self) -> None:
        with self._observing:
            await run_worker(self._queue, self._sync, (self._quotas,), _WORKERS)

    # ---- when to recalculate ----

    def _quota_added(self, quota: Object) -> None:
        self._queue.add(object_key(quota))

    def _quota_updated(self, old: Object, new: Object) -> None:
        # Admission and this controller write the usage; only a changed limit, or the period,
        # requires a recount.
        if old is new or not quotas.equal_amounts(_hard(old["spec"]), _hard(new["spec"])):
            self._queue.add(object_key(new))

    def _observe(self, evaluators: Iterable[QuotaEvaluator]) -> None:
        """Watches for objects of these resources that stop being charged."""
        new = [evaluator for evaluator in evaluators if evaluator not in self._observed]
        for evaluator in new:
            self._observed.add(evaluator)
            resource = self._resources[evaluator]

            def gone(obj: Object, evaluator: QuotaEvaluator = evaluator) -> None:
                self._replenish(evaluator, obj)

            def updated(
                old: Object,
                obj: Object,
                resource: GroupVersionResource = resource,
                evaluator: QuotaEvaluator = evaluator,
            ) -> None:
                if _costs_less(resource, old, obj, self._clock.time()):
                    self._replenish(evaluator, obj)

            informer = self._informers(resource)
            handler = informer.add_handler(
                update=updated if resource in (PODS, SERVICES) else None, delete=gone
            )
            self._observing.callback(informer.remove_handler, handler)
        if new:
            self._informers.start()

    def _replenish(self, evaluator: QuotaEvaluator, obj: Object) -> None:
        for quota in self._quotas.list(obj["metadata"]["namespace"]):
            if evaluator.matching((quota.get("status") or {}).get("hard") or ()):
                self._queue.add_after(object_key(quota), _GATHER_SECONDS)

    # ---- counting ----

    async def _sync(self, key: str) -> None:
        quota = self._quotas.by_key(key)
        if quota is None:
            return
        spec, status = quota.get("spec") or {}, quota.get("status") or {}
        hard = spec.get("hard") or {}
        if not await compute_for_object(hard, partial(_all_known, hard, tuple(self._resources))):
            await self._find_resources()
            if not await compute_for_object(
                hard, partial(_all_known, hard, tuple(self._resources))
            ):
                self._queue.add_after(key, _DISCOVERY_SECONDS)
        resources = tuple(self._resources)
        total = await compute_for_object(quota, partial(quotas.QuotaTotal, quota, resources))
        self._observe(total.evaluators)
        await self._count(total, quota["metadata"]["namespace"])
        before = quotas.parse_amounts(status.get("used"))
        used = {name: total.used.get(name, before.get(name)) for name in spec.get("hard") or ()}
        counted = {name: value for name, value in used.items() if value is not None}
        other_limits = not quotas.equal_amounts(_hard(spec), _hard(status))
        if not other_limits and "used" in status and quotas.equal_amounts(counted, before):
            return
        new = {"hard": spec.get("hard") or {}, "used": quotas.format_amounts(counted)}
        await self._client.update_status(RESOURCE_QUOTAS, {**quota, "status": new})
        if other_limits:
            # Objects created between the count and this write were not charged.
            self._queue.add_after(key, 1.0)

    async def _count(self, total: quotas.QuotaTotal, namespace: str) -> None:
        now = self._clock.time()
        for evaluator in total.evaluators:
            listing = await self._client.list(self._resources[evaluator], namespace, limit=500)
            for number, obj in enumerate(listing.items, 1):
                total.count(evaluator, obj, now)
                if number % _TURN == 0 or number - 1 in listing.large:
                    await asyncio.sleep(0)

    async def _find_resources(self) -> None:
        """Finds custom resources with limits."""
        found, _ = await preferred_resources(self._client)
        for resource, verbs in found:
            evaluator = quotas.evaluator_for(resource.group, resource.plural, self._rules)
            if evaluator is not None and resource.namespaced and verbs >= _VERBS:
                self._resources.setdefault(evaluator, resource)


def _hard(part: Object) -> quotas.Amounts:
    return quotas.parse_amounts(part.get("hard"))


def _all_known(hard: Iterable[str], evaluators: Iterable[QuotaEvaluator]) -> bool:
    """Whether each limited resource has an evaluator."""
    rest = set(hard)
    for evaluator in evaluators:
        if rest:
            rest -= set(evaluator.matching(rest))
    return not rest


def _costs_less(resource: GroupVersionResource, old: Object, new: Object, now: float) -> bool:
    if resource == PODS:
        return quotas.count_objects(old, now) and not quotas.count_objects(new, now)
    return _exposed(old) != _exposed(new)


def _exposed(service: Object) -> str:
    kind = (service.get("spec") or {}).get("type", "")
    return kind if kind in ("NodePort", "LoadBalancer") else ""
