"""The write rules of CustomResourceDefinitions and custom objects."""

from __future__ import annotations

from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.definition_conditions import (
    FINALIZER,
    TERMINATING,
    make_definition_condition,
    with_definition_condition,
)
from transom.apiserver.core.strategies.base import StorageRules, Strategy
from transom.kit.clock import rfc3339
from transom.machinery.objects import Object, same_json

# ---- definitions ----


def _stored_version(crd: Object) -> None:
    """Adds the storage version to the stored versions."""
    stored = list((crd.get("status") or {}).get("storedVersions") or ())
    storage = next((v["name"] for v in crd["spec"].get("versions") or () if v.get("storage")), None)
    if storage is not None and storage not in stored:
        stored.append(storage)
    crd["status"] = {**(crd.get("status") or {}), "storedVersions": stored}


def _define(_storage: StorageRules, _ctx: RequestContext, crd: Object) -> None:
    _stored_version(crd)


def _redefine(_storage: StorageRules, _ctx: RequestContext, new: Object, _old: Object) -> None:
    _stored_version(new)


def _begin_deletion(crd: Object, now: float) -> Object:
    """The first delete only marks it: the instances are deleted first."""
    meta = dict(crd["metadata"])
    meta["deletionTimestamp"] = rfc3339(now)
    finalizers = meta.get("finalizers") or []
    meta["finalizers"] = finalizers if FINALIZER in finalizers else [*finalizers, FINALIZER]
    pending = make_definition_condition(
        TERMINATING,
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    )
    return with_definition_condition({**crd, "metadata": meta}, pending, rfc3339(now))


DEFINITION = Strategy(
    unconditional_update=False,
    generation=("spec",),
    on_create=_define,
    on_update=_redefine,
    status_keeps=("labels", "annotations", "ownerReferences"),
    begin_deletion=_begin_deletion,
)

# ---- custom objects ----


def _create(_storage: StorageRules, _ctx: RequestContext, obj: Object) -> None:
    obj["metadata"]["generation"] = 1


def _create_without_status(_storage: StorageRules, _ctx: RequestContext, obj: Object) -> None:
    obj["metadata"]["generation"] = 1
    obj.pop("status", None)


def _update(_storage: StorageRules, _ctx: RequestContext, new: Object, old: Object) -> None:
    """Every change outside metadata increments the generation."""
    if not same_json(
        {k: v for k, v in new.items() if k != "metadata"},
        {k: v for k, v in old.items() if k != "metadata"},
    ):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _update_but_status(
    storage: StorageRules, ctx: RequestContext, new: Object, old: Object
) -> None:
    if "status" in old:
        new["status"] = old["status"]
    else:
        new.pop("status", None)
    _update(storage, ctx, new, old)


def _update_status(_storage: StorageRules, _ctx: RequestContext, new: Object, old: Object) -> None:
    """Only the status is updated, and in the metadata only the managed fields."""
    meta = new["metadata"]
    managed = meta.get("managedFields")
    meta.clear()
    meta.update(old["metadata"])
    if managed is not None:
        meta["managedFields"] = managed
    else:
        meta.pop("managedFields", None)


CUSTOM = Strategy(
    has_status=False, unconditional_update=False, on_create=_create, on_update=_update
)
CUSTOM_WITH_STATUS = Strategy(
    has_status=False,
    unconditional_update=False,
    on_create=_create_without_status,
    on_update=_update_but_status,
    on_status=_update_status,
)
