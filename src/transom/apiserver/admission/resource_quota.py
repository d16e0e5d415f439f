"""ResourceQuota: keeps the objects of a namespace within its quotas, exactly, even with concurrent
requests.

The check uses the newest quota, including pending writes, and the charge is written in the same
iteration of the event loop in which the store accepts the object, so no other request can
interfere. Failed writes are not charged. The object is stored first: a reader of a quota sees every
object that it was charged for.

The quota controller recounts. A quota without recorded usage rejects everything that it limits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from transom.apiserver.admission.plugin import ValidatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import Resource
from transom.kit.clock import rfc3339
from transom.machinery import managedfields, quota
from transom.machinery.objects import Object
from transom.machinery.quota import Amounts, QuotaEvaluator
from transom.store.api import StoreRecord

T = TypeVar("T")
_MANAGER = "kube-apiserver"  # the server charges with its own identity


class _Charge(NamedTuple):
    record: StoreRecord
    quota: Object
    used: Amounts  # of the resources that the object uses


class ResourceQuota(ValidatingPlugin):
    name = "ResourceQuota"
    thread_safe = False

    def __init__(self, objects: ObjectStore, quotas: Resource) -> None:
        self._objects = objects
        self._quotas = quotas

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        kind = resource.kind
        if subresource or not kind.namespaced or operation not in ("CREATE", "UPDATE"):
            return False
        evaluator = quota.evaluator_for(resource.group, kind.plural)
        return evaluator is not None and (operation == "CREATE" or evaluator.updates)

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        attributes.on_accept = attributes.confirm = None
        # An object served in two groups is charged in that of the request; the recount covers both.
        evaluator = quota.evaluator_for(attributes.resource.group, attributes.resource.kind.plural)
        assert evaluator is not None
        if attributes.ctx.large:
            return self._validate_large(attributes, _remembering(evaluator))
        self._confirm(attributes, evaluator)
        return None

    async def _validate_large(self, attributes: Attributes, evaluator: QuotaEvaluator) -> None:
        """Measures the object in the worker thread; compares it with the quotas when it is
        written.
        """
        newest = self._newest(attributes.namespace)
        if newest:
            await self._objects.compute(
                attributes.ctx, partial(_check, attributes, evaluator, newest)
            )
        attributes.confirm = partial(self._confirm, attributes, evaluator)

    def _confirm(self, attributes: Attributes, evaluator: QuotaEvaluator) -> None:
        newest = self._newest(attributes.namespace)
        charges = _check(attributes, evaluator, newest) if newest else None
        if charges and not attributes.ctx.dry_run:
            attributes.on_accept = partial(self._charge, charges, rfc3339(attributes.ctx.now))

    def _newest(self, namespace: str) -> list[tuple[StoreRecord, Object]]:
        store = self._objects.store
        return [
            (record, self._objects.decode(self._quotas, record))
            for old in store.list(self._quotas.key_prefix(namespace)).records
            if (record := store.latest(old.key)) is not None
        ]

    def _charge(self, charges: list[_Charge], now: str) -> None:
        for record, old, used in charges:
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
            )
            new["metadata"] = {**old["metadata"], "managedFields": entries}
            self._objects.replace_now(self._quotas, new, record)


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

    def missing(names: Iterable[str], obj: Object) -> list[str]:
        assert evaluator.missing is not None
        names = tuple(names)
        return remember(("missing", names, id(obj)), partial(evaluator.missing, names, obj))

    return evaluator._replace(
        usage=usage, in_scope=evaluator.in_scope and in_scope, missing=evaluator.missing and missing
    )


def _check(
    attributes: Attributes, evaluator: QuotaEvaluator, quotas: list[tuple[StoreRecord, Object]]
) -> list[_Charge]:
    """The charges by quota; raises an error if one does not allow it."""
    obj, now = attributes.obj, attributes.ctx.now
    concerned = []
    for record, candidate in quotas:
        status = candidate.get("status") or {}
        hard = status.get("hard") or {}
        names = evaluator.matching(hard)
        if not names or not quota.in_scopes(
            evaluator, quota.scope_selectors(candidate.get("spec") or {}), obj
        ):
            continue
        name = candidate["metadata"]["name"]
        missing = evaluator.missing(names, obj) if evaluator.missing is not None else None
        if missing:
            raise attributes.forbidden(f"failed quota: {name}: must specify {','.join(missing)}")
        used = status.get("used") or {}
        if not used.keys() >= set(names):
            raise attributes.forbidden(
                f"status unknown for quota: {name}, resources: {','.join(sorted(names))}"
            )
        concerned.append((record, candidate, hard, used))
    if not concerned:
        return []
    usage = evaluator.usage(obj, now)
    negative = sorted(name for name, value in usage.items() if value.sign < 0)
    if negative:
        raise attributes.forbidden(f"quota usage is negative for resource(s): {','.join(negative)}")
    before = evaluator.usage(attributes.old, now) if attributes.old is not None else {}
    more = quota.amounts_increase(usage, before)
    charges = []
    for record, candidate, all_hard, all_used in concerned:
        # A quota may name thousands of resources; only what the object uses is compared.
        requested = {name: value for name, value in more.items() if name in all_hard}
        hard = quota.parse_amounts({name: all_hard[name] for name in requested})
        used = quota.parse_amounts({name: all_used[name] for name in requested if name in all_used})
        too_much = quota.exceeded_resources(used, requested, hard)
        if too_much:
            asked, taken, allowed = (
                quota.pretty_amounts({name: values[name] for name in too_much if name in values})
                for values in (requested, used, hard)
            )
            name = candidate["metadata"]["name"]
            raise attributes.forbidden(
                f"exceeded quota: {name}, requested: {asked}, used: {taken}, limited: {allowed}"
            )
        if requested:
            charges.append(_Charge(record, candidate, quota.add_amounts(used, requested)))
    return charges
