"""The scale subresource: the replicas of any workload."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from transom.apiserver.core.bodies import (
    APPLY_PATCH,
    JSON_PATCH,
    STRATEGIC_PATCH,
    begin_write,
    check_object_name,
    decode_action,
    field_validation,
    patch_media,
    read_apply_body,
    read_media,
    report_duplicate_keys,
    report_field_problems,
    write_rules,
)
from transom.apiserver.core.call import ApiCall, DocumentResult
from transom.apiserver.core.offload import is_costly, is_large
from transom.apiserver.core.reads import check_revision
from transom.apiserver.core.resources import Resource
from transom.apiserver.core.storage import Storage
from transom.kit.clock import rfc3339
from transom.kit.lazy import lazy_import
from transom.machinery import codec, errors, gojson, managedfields, patch, schema, selectors
from transom.machinery.errors import GroupResource
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object, copy_object
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.validation.scale import validate_scale

if TYPE_CHECKING:
    from transom.machinery import apply, strictness
else:
    apply = lazy_import("transom.machinery.apply")
    strictness = lazy_import("transom.machinery.strictness")

SCALE = GVK("autoscaling", "v1", "Scale")


def _served(call: ApiCall) -> GVK:
    """The Scale version of a workload version: the betas of apps and extensions have their own."""
    sub = call.res.subresources["scale"]
    return GVK(sub.group or SCALE.group, sub.version or SCALE.version, "Scale")


def _type(gvk: GVK) -> schema.SchemaType:
    found = schema.lookup_schema_type(gvk)
    assert found is not None
    return found


def _in_version(scale: Object, gvk: GVK) -> Object:
    """An autoscaling/v1 Scale in another version: with the selector as a map if possible."""
    if gvk == SCALE:
        return scale
    status = {k: v for k, v in scale["status"].items() if k != "selector"}
    text = scale["status"].get("selector", "")
    if text:
        pairs = [part.partition("=") for part in text.split(",")]
        if all(
            equals and value and not value.startswith(("=", "!")) and "(" not in value
            for _, equals, value in pairs
        ):
            status["selector"] = {key: value for key, _, value in pairs}
        status["targetSelector"] = text
    return {**scale, "apiVersion": gvk.api_version, "status": status}


# The kind in the error for a read of a missing workload's Scale; other kinds, and all writes, name
# the workload.
_MISSING = {
    "/ReplicationController": GroupResource("autoscaling", "replicationcontrollers/scale"),
    "apps/Deployment": GroupResource("apps", "deployments/scale"),
    "apps/ReplicaSet": GroupResource("apps", "replicasets/scale"),
}


def scale_of(obj: Object, selector: str, replicas: int, current: int) -> Object:
    meta = obj["metadata"]
    out: Object = {"kind": "Scale", "apiVersion": "autoscaling/v1"}
    out["metadata"] = {
        k: meta[k]
        for k in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if k in meta
    }
    out["spec"] = {"replicas": replicas} if replicas else {}
    out["status"] = {"replicas": current}
    if selector:
        out["status"]["selector"] = selector
    return out


def _selector_text(res: Resource, obj: Object) -> str:
    selector = (obj.get("spec") or {}).get("selector")
    if res.kind.key == "/ReplicationController":
        return str(selectors.from_map(selector))
    return str(selectors.owner_selector(obj)) if selector is not None else ""


def read_scale(res: Resource, obj: Object, *, writing: bool = False) -> Object:
    """The Scale of a stored workload or custom object, for reads and updates."""
    paths = res.ops.scale_paths
    if paths is not None:
        return scale_of(obj, *paths.read(obj, writing=writing))
    return scale_of(
        obj,
        _selector_text(res, obj),
        (obj.get("spec") or {}).get("replicas", 0),
        (obj.get("status") or {}).get("replicas", 0),
    )


def write_scale(res: Resource, obj: Object, replicas: int) -> None:
    paths = res.ops.scale_paths
    if paths is not None:
        paths.write(obj, replicas)
    else:
        obj["spec"] = {**(obj.get("spec") or {}), "replicas": replicas}


def _result(call: ApiCall, scale: Object) -> DocumentResult:
    return DocumentResult(_in_version(scale, _served(call)), has_metadata=True)


class ScaleSubresource:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def get(self, call: ApiCall) -> DocumentResult:
        storage, res = self._storage, call.res
        check_revision(storage, call)
        record = storage.store.get(res.key(call.info.namespace, call.info.name))
        if record is None:
            where = _MISSING.get(res.kind.key, res.gr)
            if has_behaviour(res.release, "ScaleErrorsNameWorkload"):
                where = res.gr
            raise errors.not_found(where, call.info.name)
        readable = await storage.readable(res, record)
        call.ctx.large = call.ctx.large or is_costly(len(record.value), res.ops.weight)
        shown = await storage.compute(
            call.ctx, lambda: read_scale(res, storage.decode(res, readable))
        )
        return _result(call, shown)

    async def update(self, call: ApiCall) -> DocumentResult:
        options = begin_write(call, "UpdateOptions")
        media, wanted = read_media(call), _served(call)
        given = await self._storage.compute(
            call.ctx, lambda: decode_action(call, options, media, wanted)
        )
        check_object_name(call.res, given, call.info)
        return await self._store(call, lambda _current: copy_object(given), reread=False)

    async def patch(self, call: ApiCall) -> DocumentResult:
        media = patch_media(call.content_type, strategic=call.res.ops.strategic)
        options = begin_write(call, "PatchOptions", media)
        raw = call.body
        applying = media == APPLY_PATCH
        level = field_validation(call.res, options)
        body = await read_apply_body(self._storage, call, level) if applying else None
        call.ctx.large = is_large(raw, media)

        def change(current: Object) -> Object:
            current = _in_version(current, _served(call))
            if body is None:
                new = _patched(call, media, level, current, _served(call))
            else:
                new = _applied(call, body.config, current, bool(options.get("force")))
                report_duplicate_keys(call.ctx, level, body)
            check_object_name(call.res, new, call.info)
            return new

        return await self._store(call, change, reread=True)

    async def _store(
        self, call: ApiCall, change: Callable[[Object], Object], *, reread: bool
    ) -> DocumentResult:
        res = call.res

        def transform(old: Object | None) -> Object:
            assert old is not None
            scale = read_scale(res, old, writing=True)
            owned = has_behaviour(res.release, "ScaleOwnership")
            version = _served(call).api_version
            if owned and "managedFields" in old["metadata"]:
                scale["metadata"]["managedFields"] = _scale_owners(old, version)
            before = copy_object(scale)
            scale = change(scale)
            if owned:
                owners = scale["metadata"].pop("managedFields", None) or []
                if not call.content_type.startswith(APPLY_PATCH):
                    owners = _updated_owners(call, before, scale, version)
            if not res.custom:
                _check(call, scale, old)
            new = copy_object(old)
            write_scale(res, new, (scale.get("spec") or {}).get("replicas", 0))
            if owned:
                new["metadata"]["managedFields"] = _workload_owners(old, owners, res.api_version)
            version = scale["metadata"].get("resourceVersion")
            if version:
                new["metadata"]["resourceVersion"] = version
            elif not res.custom:
                new["metadata"].pop("resourceVersion", None)
            return new

        record, _ = await self._storage.update(
            call.ctx,
            res,
            call.info.namespace,
            call.info.name,
            transform,
            reread=reread,
            admit_as="scale",
        )
        stored = self._storage.decode(res, record)
        return _result(call, read_scale(res, stored, writing=True))


def _patched(call: ApiCall, media: str, level: str, current: Object, gvk: GVK) -> Object:
    """Decoded like any other object after a patch. The owners of fields are not part of a Scale."""
    raw, strict = call.body, level != "Ignore"
    meta = dict(current["metadata"])
    owners = meta.pop("managedFields", None)
    patched = patch.apply_patch(
        media,
        raw,
        {**current, "metadata": meta},
        _type(gvk),
        release=call.res.release,
        strict=strict,
    )
    if media == STRATEGIC_PATCH:  # works on the typed object, which has no kind and apiVersion
        patched = {**patched, "kind": gvk.kind, "apiVersion": gvk.api_version}
    try:
        decoded = codec.decode_object(
            gojson.marshal(patched), "application/json", gvk, strict=strict
        )
        if strict and has_behaviour(call.res.release, "FieldValidationWarns"):
            own = strictness.patch_problems(raw, json_patch=media == JSON_PATCH)
            decoded.problems[:0] = own
        report_field_problems(call.ctx, level, decoded, call.res, gvk)
    except codec.DecodeError as problem:
        raise patch.undecodable(media, raw, patched, problem.base, _type(gvk)) from None
    new = decoded.obj
    if owners is not None:
        new.setdefault("metadata", {})["managedFields"] = owners
    return new


_REPLICAS: Object = {"f:spec": {"f:replicas": {}}}


def _scale_owners(obj: Object, api_version: str) -> list[Object]:
    """The managed fields of a Scale: who owns the replicas of the workload."""
    return [
        {**entry, "apiVersion": api_version, "fieldsV1": _REPLICAS}
        for entry in obj["metadata"].get("managedFields") or ()
        if "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or ())
    ]


def _workload_owners(obj: Object, owners: list[Object], api_version: str) -> list[Object]:
    """The managed fields of a workload after a write to its Scale."""
    left = {_owner(entry): entry for entry in owners}
    out = []
    for entry in obj["metadata"].get("managedFields") or ():
        fields = entry.get("fieldsV1") or {}
        if "f:replicas" not in (fields.get("f:spec") or ()):
            out.append(entry)
            continue
        kept = left.pop(_owner(entry), None)
        if kept is None:
            fields = managedfields.without_paths(fields, frozenset({("f:spec", "f:replicas")}))
            if not fields:
                continue
            out.append({**entry, "fieldsV1": fields})
        else:
            out.append({**entry, "time": kept["time"]} if "time" in kept else entry)
    out += [{**entry, "apiVersion": api_version} for entry in left.values()]
    return managedfields.encode_managed_fields(managedfields.read_managed_fields(out))


def _updated_owners(call: ApiCall, before: Object, after: Object, version: str) -> list[Object]:
    """The owners of the replicas after an update by the caller."""
    owners: list[Object] = before["metadata"].get("managedFields") or []
    now, then = ((scale.get("spec") or {}).get("replicas", 0) for scale in (after, before))
    if now == then or not owners:  # an object without managed fields does not get any
        return owners
    mine = {
        "manager": call.ctx.manager or managedfields.UNKNOWN,
        "operation": "Update",
        "apiVersion": version,
        "time": rfc3339(call.ctx.now),
        "fieldsType": "FieldsV1",
        "fieldsV1": _REPLICAS,
        "subresource": "scale",
    }
    return [mine]


def _owner(entry: Object) -> tuple[str, str, str]:
    return entry.get("manager", ""), entry.get("operation", ""), entry.get("subresource", "")


def _applied(call: ApiCall, config: Object, current: Object, force: bool) -> Object:
    """Without managed fields of the Scale, an apply conflicts with all existing values."""
    gvk = _served(call)
    new = apply.server_side_apply(
        current,
        config,
        _type(gvk),
        call.ctx.manager,
        gvk.api_version,
        force,
        rfc3339(call.ctx.now),
        normalise=lambda obj: codec.normalise_object(gvk, obj),
        kind=gvk.kind,
        release=call.res.release,
        rules=write_rules(call.res, "scale"),
    )
    if not has_behaviour(call.res.release, "ScaleOwnership"):
        new["metadata"].pop("managedFields", None)
    return new


def _check(call: ApiCall, scale: Object, old: Object) -> None:
    """A custom object is validated itself when it is written."""
    if has_behaviour(call.res.release, "ScaleNamespace"):
        scale["metadata"].setdefault("namespace", old["metadata"].get("namespace", ""))
    problems = validate_scale(scale)
    if problems:
        raise errors.invalid(
            GroupResource("autoscaling", "Scale"), old["metadata"]["name"], problems
        )
    uid, actual = scale["metadata"].get("uid"), old["metadata"]["uid"]
    if uid and uid != actual:
        raise errors.conflict(
            GroupResource(call.res.kind.group, f"{call.res.kind.plural}/scale"),
            old["metadata"]["name"],
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}",
        )
