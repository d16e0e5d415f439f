"""ResourceQuota: what is created in a namespace stays within its quotas, to the last one, however many ask at once.

The check runs against the newest quota, written or on its way to disk, and the charge is written in the same turn of
the loop in which the store accepts the object, so that nobody can come in between. A write that the store refuses was
never charged. The object comes first in the store: whoever reads a quota sees every object that it was charged for.

The quota controller counts afresh; usage that nobody has counted yet refuses everything it concerns.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from transom.apiserver.admission.attributes import Attributes
from transom.apiserver.resources import Resource
from transom.apiserver.storage import Storage
from transom.kit.clock import rfc3339
from transom.machinery import managedfields, quota
from transom.machinery.objects import Object
from transom.machinery.quota import Amounts, Evaluator
from transom.store.api import Record

_MANAGER = "kube-apiserver"  # the server charges in its own name


class _Charge(NamedTuple):
    record: Record
    quota: Object
    used: Amounts


class ResourceQuota:
    name = "ResourceQuota"

    def __init__(self, storage: Storage, quotas: Resource) -> None:
        self._storage = storage
        self._quotas = quotas

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        kind = resource.kind
        if subresource or not kind.namespaced or operation not in ("CREATE", "UPDATE"):
            return False
        evaluator = quota.evaluator_for(resource.group, kind.plural)
        return evaluator is not None and (operation == "CREATE" or evaluator.updates)

    def validate(self, attributes: Attributes) -> None:
        attributes.on_accept = None
        store, key = self._storage.store, self._quotas.key_prefix(attributes.namespace)
        stored = store.list(key).records
        if not stored:
            return
        newest = [(record, self._storage.decode(self._quotas, record))
                  for old in stored if (record := store.latest(old.key)) is not None]
        # What is served in two groups is charged in the one that the request speaks; the recount finds both.
        evaluator = quota.evaluator_for(attributes.resource.group, attributes.resource.kind.plural)
        assert evaluator is not None
        charges = _check(attributes, evaluator, newest)
        if charges and not attributes.ctx.dry_run:
            attributes.on_accept = partial(self._charge, charges, rfc3339(attributes.ctx.now))

    def _charge(self, charges: list[_Charge], now: str) -> None:
        for record, old, used in charges:
            new = {**old, "status": {**old["status"], "used": quota.texts(used)}}
            entries = managedfields.on_update(
                old, new, self._quotas.ops.schema, _MANAGER, self._quotas.api_version, now, ignore_request=True
            )
            new["metadata"] = {**old["metadata"], "managedFields": entries}
            self._storage.replace_now(self._quotas, new, record)


def _check(attributes: Attributes, evaluator: Evaluator, quotas: list[tuple[Record, Object]]) -> list[_Charge]:
    """What to charge to which quota; raises when one does not allow it."""
    obj, now = attributes.obj, attributes.ctx.now
    concerned = []
    for record, candidate in quotas:
        status = candidate.get("status") or {}
        hard = status.get("hard") or {}
        names = evaluator.matching(hard)
        if not names or not quota.in_scopes(evaluator, quota.scope_selectors(candidate.get("spec") or {}), obj):
            continue
        name = candidate["metadata"]["name"]
        missing = evaluator.missing(names, obj) if evaluator.missing is not None else None
        if missing:
            raise attributes.forbidden(f"failed quota: {name}: must specify {','.join(missing)}")
        used = status.get("used") or {}
        if not used.keys() >= set(names):
            raise attributes.forbidden(f"status unknown for quota: {name}, resources: {','.join(sorted(names))}")
        concerned.append((record, candidate, quota.amounts(hard), quota.amounts(used)))
    if not concerned:
        return []
    usage = evaluator.usage(obj, now)
    negative = sorted(name for name, value in usage.items() if value.sign < 0)
    if negative:
        raise attributes.forbidden(f"quota usage is negative for resource(s): {','.join(negative)}")
    before = evaluator.usage(attributes.old, now) if attributes.old is not None else {}
    more = quota.increase(usage, before)
    charges = []
    for record, candidate, hard, used in concerned:
        requested = {name: value for name, value in more.items() if name in hard}
        too_much = quota.exceeded(used, requested, hard)
        if too_much:
            asked, taken, allowed = (
                quota.pretty({name: values[name] for name in too_much if name in values})
                for values in (requested, used, hard)
            )
            name = candidate["metadata"]["name"]
            raise attributes.forbidden(
                f"exceeded quota: {name}, requested: {asked}, used: {taken}, limited: {allowed}"
            )
        if requested:
            charges.append(_Charge(record, candidate, quota.add(used, requested)))
    return charges
