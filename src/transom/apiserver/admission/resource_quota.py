"""ResourceQuota: keeps the objects of a namespace within its quotas, exactly, even with concurrent
requests.

The check uses the newest quota, including pending writes, and the charge is written in the same
iteration of the event loop in which the store accepts the object, so no other request can
interfere. Failed writes are not charged. The object is stored first: a reader of a quota sees every
object that it was charged for.

In a store that several servers share, the charge is written in the transaction of the object, which
fails if another server, or the quota controller, has changed the quota.

A namespace with many or large quotas would hold the event loop: there, the amounts are reserved
quota by quota, the object is stored, and the reservations become charges, quota by quota, with
other tasks in between. Reserved amounts count as used for every other request. A recount by the
controller between the two may count the object twice, until the next recount.

The quota controller recounts. A quota without recorded usage rejects everything that it limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from transom.apiserver.admission.plugin import ValidatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.bodies import write_rules
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import Resource
from transom.kit.clock import rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.kit.time_slice import TimeSlice
from transom.machinery import managedfields, quota
from transom.machinery.objects import Object
from transom.machinery.quota import Amounts, QuotaEvaluator, QuotaRules
from transom.machinery.releases.behaviour import has_behaviour
from transom.store.api import StoreRecord

T = TypeVar("T")
_MANAGER = "kube-apiserver"  # the server charges with its own identity
# All quotas of a namespace that are checked and charged in one step. 1 MiB takes about 20 ms.
_ONE_STEP_BYTES = 1024 * 1024
_QUOTA_BYTES = 4096  # what a quota costs regardless of its size


class _Charge(NamedTuple):
    record: StoreRecord
    quota: Object
    used: Amounts  # of the resources that the object uses


class ResourceQuota(ValidatingPlugin):
    name = "ResourceQuota"
    thread_safe = False

    def __init__(
        self,
        objects: ObjectStore,
        quotas: Resource,
        *,
        names_containers: bool = False,
        rules: QuotaRules = quota.RULES_OF_1_20,
    ) -> None:
        """`names_containers`: errors name the containers that do not specify a resource."""
        self._objects = objects
        self._names_containers = names_containers
        self._rules = rules
        self._quotas = quotas
        self._reserved: dict[str, Amounts] = {}  # by the key of the quota
        self._charging: set[asyncio.Task[None]] = set()

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        kind = resource.kind
        if not kind.namespaced or operation not in ("CREATE", "UPDATE"):
            return False
        evaluator = quota.evaluator_for(resource.group, kind.plural, self._rules)
        if evaluator is None:
            return False
        if subresource:
            return operation == "UPDATE" and subresource in evaluator.subresources
        return operation == "CREATE" or evaluator.updates

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        attributes.on_accept = attributes.on_reject = attributes.confirm = None
        attributes.along = ()
        records = self._records(attributes.namespace)
        if not records:
            return None
        # An object served in two groups is charged in that of the request; the recount covers both.
        evaluator = quota.evaluator_for(
            attributes.resource.group, attributes.resource.kind.plural, self._rules
        )
        assert evaluator is not None
        if not _concerns(evaluator, attributes):
            return None
        if self._objects.store.follows and not attributes.ctx.dry_run:
            remembering = _remembering(evaluator)
            self._confirm_along(attributes, remembering)
            attributes.confirm = partial(self._confirm_along, attributes, remembering)
            return None
        if attributes.ctx.large:
            return self._validate_large(attributes, _remembering(evaluator))
        if _are_many(records):
            attributes.confirm = partial(self._reserve, attributes, _remembering(evaluator))
        else:
            self._confirm(attributes, evaluator)
        return None

    def _confirm_along(self, attributes: Attributes, evaluator: QuotaEvaluator) -> None:
        """Several servers charge a quota. Unlike in Kubernetes, where the charge is written before the
        object, a recount between the two cannot lose it.
        """
        newest = self._newest(attributes.namespace)
        charges = self._check(attributes, evaluator, newest) if newest else []
        now = rfc3339(attributes.ctx.now)
        attributes.along = [
            self._objects.replace_along(self._quotas, self._charged(charge, now), charge.record)
            for charge in charges
        ]

    async def _validate_large(self, attributes: Attributes, evaluator: QuotaEvaluator) -> None:
        """Measures the object in the worker thread; compares it with the quotas when it is
        written.
        """
        measure = partial(_measure, attributes, evaluator)
        await self._objects.compute(attributes.ctx, measure)
        if _are_many(self._records(attributes.namespace)):
            attributes.confirm = partial(self._reserve, attributes, evaluator)
            return
        newest = self._newest(attributes.namespace)
        if newest:
            await self._objects.compute(
                attributes.ctx, partial(self._check, attributes, evaluator, newest)
            )
        attributes.confirm = partial(self._confirm, attributes, evaluator)

    def _confirm(self, attributes: Attributes, evaluator: QuotaEvaluator) -> None:
        newest = self._newest(attributes.namespace)
        charges = self._check(attributes, evaluator, newest) if newest else None
        if charges and not attributes.ctx.dry_run:
            attributes.on_accept = partial(self._charge, charges, rfc3339(attributes.ctx.now))

    def _records(self, namespace: str) -> list[StoreRecord]:
        store = self._objects.store
        found = store.list(self._quotas.key_prefix(namespace)).records
        if not found:
            return found
        return [record for old in found if (record := store.latest(old.key)) is not None]

    def _newest(self, namespace: str) -> list[tuple[StoreRecord, Object]]:
        return [
            (record, self._objects.decode(self._quotas, record))
            for record in self._records(namespace)
        ]

    def _charge(self, charges: list[_Charge], now: str) -> None:
        for charge in charges:
            self._charge_one(charge, now)

    def _charge_one(self, charge: _Charge, now: str) -> asyncio.Future[StoreRecord]:
        return self._objects.replace_now(self._quotas, self._charged(charge, now), charge.record)

    def _charged(self, charge: _Charge, now: str) -> Object:
        _, old, used = charge
        all_used = {**old["status"]["used"], **quota.format_amounts(used)}
        new = {**old, "status": {**old["status"], "used": all_used}}
        entries = managedfields.on_update(
            old,
            new,
            self._quotas.ops.schema,
            _MANAGER,
            self._quotas.api_version,
            now,
            ignore_request=True,
            rules=write_rules(self._quotas, "status"),
        )
        new["metadata"] = {**old["metadata"], "managedFields": entries}
        return new

    def _check(
        self,
        attributes: Attributes,
        evaluator: QuotaEvaluator,
        newest: list[tuple[StoreRecord, Object]],
    ) -> list[_Charge]:
        return _check(attributes, evaluator, newest, self._reserved, self._names_containers)

    # ---- many or large quotas: in steps ----

    async def _reserve(self, attributes: Attributes, evaluator: QuotaEvaluator) -> None:
        """Checks every quota and reserves what the object uses of it."""
        limiting = []
        step = TimeSlice()
        for record in self._records(attributes.namespace):
            candidate = self._objects.decode(self._quotas, record)
            if _limits(attributes, evaluator, candidate, self._names_containers):
                limiting.append(record.key)
            await step.pause()
        if not limiting:
            return
        reserved: list[tuple[str, Amounts]] = []
        attributes.on_reject = partial(self._release, reserved)
        for key in limiting:
            newest = self._objects.store.latest(key)
            if newest is None:
                continue
            candidate = self._objects.decode(self._quotas, newest)
            more = _measure(attributes, evaluator, candidate)
            charge = _check_room(attributes, newest, candidate, more, self._reserved.get(key))
            if charge is not None and not attributes.ctx.dry_run:
                amounts = {name: more[name] for name in charge.used}
                self._reserved[key] = quota.add_amounts(self._reserved.get(key, {}), amounts)
                reserved.append((key, amounts))
            await step.pause()
        if reserved:
            attributes.on_accept = partial(self._charge_reserved, attributes, reserved)

    def _release(self, reserved: list[tuple[str, Amounts]]) -> None:
        while reserved:
            self._release_one(*reserved.pop())

    def _release_one(self, key: str, amounts: Amounts) -> None:
        left = quota.amounts_increase(self._reserved.get(key, {}), amounts)
        if left:
            self._reserved[key] = left
        else:
            self._reserved.pop(key, None)

    def _charge_reserved(
        self, attributes: Attributes, reserved: list[tuple[str, Amounts]]
    ) -> Awaitable[None]:
        attributes.on_reject = None
        task = asyncio.ensure_future(self._charge_in_steps(reserved, rfc3339(attributes.ctx.now)))
        self._charging.add(task)
        task.add_done_callback(self._charging.discard)
        return asyncio.shield(task)  # a cancelled request does not cancel its charges

    async def _charge_in_steps(self, reserved: list[tuple[str, Amounts]], now: str) -> None:
        step = TimeSlice()
        try:
            while reserved:
                key, amounts = reserved.pop()
                record = self._objects.store.latest(key)
                if record is not None:
                    candidate = self._objects.decode(self._quotas, record)
                    texts = (candidate.get("status") or {}).get("used") or {}
                    used = quota.parse_amounts({n: texts[n] for n in amounts if n in texts})
                    if used:
                        added = quota.add_amounts(used, {n: amounts[n] for n in used})
                        self._charge_one(_Charge(record, candidate, added), now)
                self._release_one(key, amounts)
                await step.pause()
        finally:
            self._release(reserved)


def _concerns(evaluator: QuotaEvaluator, attributes: Attributes) -> bool:
    """Whether the write can change what the object uses."""
    if evaluator.concerns is None or attributes.old is None or attributes.subresource:
        return True
    return evaluator.concerns(attributes.obj, attributes.old)


def _are_many(records: list[StoreRecord]) -> bool:
    size = len(records) * _QUOTA_BYTES + sum(len(record.value) for record in records)
    return size > _ONE_STEP_BYTES


def _remembering(evaluator: QuotaEvaluator) -> QuotaEvaluator:
    """The evaluator for one request; caches the usage of an object."""
    found: dict[object, Any] = {}

    def remember(key: object, work: Callable[[], T]) -> T:
        if key not in found:
            found[key] = work()
        value: T = found[key]
        return value

    def usage(obj: Object, now: float) -> Amounts:
        return remember(("usage", id(obj)), partial(evaluator.usage, obj, now))

    def in_scope(selector: Object, obj: Object) -> bool:
        assert evaluator.in_scope is not None
        return remember(
            ("scope", repr(selector), id(obj)), partial(evaluator.in_scope, selector, obj)
        )

    def missing(names: Iterable[str], obj: Object) -> dict[str, list[str]]:
        assert evaluator.missing is not None
        names = tuple(names)
        return remember(("missing", names, id(obj)), partial(evaluator.missing, names, obj))

    return evaluator._replace(
        usage=usage, in_scope=evaluator.in_scope and in_scope, missing=evaluator.missing and missing
    )


def _check(
    attributes: Attributes,
    evaluator: QuotaEvaluator,
    quotas: list[tuple[StoreRecord, Object]],
    reserved: Mapping[str, Amounts],
    names_containers: bool,
) -> list[_Charge]:
    """The charges by quota; raises an error if one does not allow it."""
    limiting = [
        found for found in quotas if _limits(attributes, evaluator, found[1], names_containers)
    ]
    if not limiting:
        return []
    charges = (
        _check_room(
            attributes,
            record,
            candidate,
            _measure(attributes, evaluator, candidate),
            reserved.get(record.key),
        )
        for record, candidate in limiting
    )
    return [charge for charge in charges if charge is not None]


def _limits(
    attributes: Attributes, evaluator: QuotaEvaluator, candidate: Object, names_containers: bool
) -> bool:
    """Whether the quota limits the object; raises an error if that cannot be compared."""
    status, obj = candidate.get("status") or {}, attributes.obj
    names = evaluator.matching(status.get("hard") or {})
    if not names or not quota.in_scopes(
        evaluator, quota.scope_selectors(candidate.get("spec") or {}), obj
    ):
        return False
    name = candidate["metadata"]["name"]
    missing = evaluator.missing(names, obj) if evaluator.missing is not None else None
    if missing and has_behaviour(attributes.resource.release, "QuotaNamesContainers"):
        lacking = (f"{resource} for: {','.join(names)}" for resource, names in missing.items())
        raise attributes.forbidden(f"failed quota: {name}: must specify {'; '.join(lacking)}")
    if missing:
        text = ",".join(missing)
        if names_containers:
            text = "; ".join(f"{what} for: {','.join(who)}" for what, who in missing.items())
        raise attributes.forbidden(f"failed quota: {name}: must specify {text}")
    if not (status.get("used") or {}).keys() >= set(names):
        raise attributes.forbidden(
            f"status unknown for quota: {name}, resources: {','.join(sorted(names))}"
        )
    return True


def _measure(
    attributes: Attributes, evaluator: QuotaEvaluator, candidate: Object | None = None
) -> Amounts:
    """How much more is used after the write than before; all of it if the quota did not count the
    object before.
    """
    now = attributes.ctx.now
    usage = evaluator.usage(attributes.obj, now)
    negative = sorted(name for name, value in usage.items() if value.sign < 0)
    if negative:
        raise attributes.forbidden(f"quota usage is negative for resource(s): {','.join(negative)}")
    if attributes.old is None or (
        candidate is not None and not _is_counted(evaluator, candidate, attributes.old)
    ):
        return quota.amounts_increase(usage, {})
    return quota.amounts_increase(usage, evaluator.usage(attributes.old, now))


def _is_counted(evaluator: QuotaEvaluator, candidate: Object, obj: Object) -> bool:
    selectors = quota.scope_selectors(candidate.get("spec") or {})
    return quota.in_scopes(evaluator, selectors, obj)


def _check_room(
    attributes: Attributes,
    record: StoreRecord,
    candidate: Object,
    more: Amounts,
    reserved: Amounts | None,
) -> _Charge | None:
    """The charge to one quota; raises an error if it is exceeded."""
    status = candidate.get("status") or {}
    all_hard, all_used = status.get("hard") or {}, status.get("used") or {}
    # A quota may name thousands of resources; only what the object uses is compared.
    requested = {name: value for name, value in more.items() if name in all_hard}
    if not requested:
        return None
    hard = quota.parse_amounts({name: all_hard[name] for name in requested})
    used = quota.parse_amounts({name: all_used[name] for name in requested if name in all_used})
    taken = quota.add_amounts(used, reserved) if reserved else used
    too_much = quota.exceeded_resources(taken, requested, hard)
    if too_much:
        request, shown, allowed = (
            quota.pretty_amounts({name: values[name] for name in too_much if name in values})
            for values in (requested, taken, hard)
        )
        name = candidate["metadata"]["name"]
        raise attributes.forbidden(
            f"exceeded quota: {name}, requested: {request}, used: {shown}, limited: {allowed}"
        )
    return _Charge(record, candidate, quota.add_amounts(used, requested))
