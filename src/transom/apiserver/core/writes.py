"""The verbs create, update, patch, delete and deletecollection: translate bodies to storage calls
and back.

A body is decoded, defaulted and gets its managed fields in the request's version, then is converted
to the storage version.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import orjson

from transom.apiserver.core.bodies import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApplyBody,
    begin_write,
    check_namespace,
    check_object_name,
    decode_body,
    field_validation,
    own_fields,
    patch_media,
    read_apply_body,
    read_delete_options,
    read_media,
    report_duplicate_keys,
    report_field_problems,
    write_rules,
)
from transom.apiserver.core.call import ApiCall, DocumentResult, ListResult, ObjectResult
from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.converted_lists import list_readable
from transom.apiserver.core.offload import is_large
from transom.apiserver.core.options import parse_list_options
from transom.apiserver.core.resources import Resource
from transom.apiserver.core.storage import Prepare, Storage, Transform
from transom.apiserver.core.strategies import Strategy, strategy_for
from transom.kit.clock import rfc3339
from transom.kit.lazy import lazy_import
from transom.kit.time_slice import TimeSlice
from transom.machinery import codec, errors, gojson, patch
from transom.machinery.objects import Object
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.validation.customobject import wrong_custom_type
from transom.store.api import StoreRecord

if TYPE_CHECKING:
    from transom.machinery import apply, object_warnings, strictness
else:
    apply = lazy_import("transom.machinery.apply")
    object_warnings = lazy_import("transom.machinery.object_warnings")
    strictness = lazy_import("transom.machinery.strictness")


async def create_object(storage: Storage, call: ApiCall) -> ObjectResult:
    ctx, res, namespace = call.ctx, call.res, call.info.namespace
    if res.custom and "create" not in res.kind.verbs:
        raise _definition_terminating(call)
    options = begin_write(call, "CreateOptions")
    media = read_media(call)
    if ctx.large:
        read = partial(_read_new, ctx, res, namespace, call.body, media, options)
        obj = await storage.compute(ctx, read)
    else:
        obj = _read_new(ctx, res, namespace, call.body, media, options)
    return ObjectResult(res, await storage.create(ctx, res, namespace, obj), 201)


def _read_new(
    ctx: RequestContext, res: Resource, namespace: str, raw: bytes, media: str, options: Object
) -> Object:
    """The body of a create request as an object in the storage version."""
    obj = decode_body(ctx, res, raw, media, options)
    obj.setdefault("metadata", {})
    res.ops.default(obj)
    if ctx.audit is not None:
        ctx.audit.request_object(obj)
    check_namespace(res, obj, namespace)
    own_fields(ctx, res, obj, None)
    return res.ops.to_storage(obj)


def _definition_terminating(call: ApiCall) -> errors.ApiError:
    text = "create not allowed while custom resource definition is terminating"
    res = call.res
    if has_behaviour(res.release, "TerminatingDefinitionForbids"):
        obj = decode_body(
            call.ctx, res, call.body, read_media(call), begin_write(call, "CreateOptions")
        )
        return errors.forbidden(res.gr, (obj.get("metadata") or {}).get("name", ""), text)
    problem = errors.method_not_supported(res.gr, "create")
    problem.message = text
    return problem


async def update_object(
    storage: Storage, call: ApiCall, prepare: Prepare | None = None
) -> ObjectResult:
    """`prepare` replaces the strategy of the kind, for subresources."""
    ctx, res, info = call.ctx, call.res, call.info
    options = begin_write(call, "UpdateOptions")
    media = read_media(call)
    read = partial(_read_replacement, call, media, options)
    given: Object | None = await storage.compute(ctx, read) if ctx.large else read()

    def transform(old: Object | None) -> Object:
        nonlocal given
        # A retry reads the body again: a copy would take long for a large object, and few updates
        # are retried.
        new, given = (given or read()), None
        own_fields(ctx, res, new, None if old is None else _served(res, old), info.subresource)
        return res.ops.to_storage(new)

    record, created = await storage.update(
        ctx,
        res,
        info.namespace,
        info.name,
        transform,
        subresource=info.subresource,
        prepare=prepare,
    )
    return ObjectResult(res, record, 201 if created else 200)


def _read_replacement(call: ApiCall, media: str, options: Object) -> Object:
    """The body of an update request as an object in the request's version."""
    ctx, res = call.ctx, call.res
    given = decode_body(ctx, res, call.body, media, options)
    given.setdefault("metadata", {})
    check_object_name(call.res, given, call.info)
    res.ops.default(given)
    if ctx.audit is not None:
        ctx.audit.request_object(given)
    return given


def _served(res: Resource, stored: Object) -> Object:
    return stored if res.identity else res.ops.from_storage(stored)


async def patch_object(
    storage: Storage, call: ApiCall, prepare: Prepare | None = None
) -> ObjectResult:
    """`prepare` replaces the strategy of the kind, for subresources."""
    ctx, res, info, raw = call.ctx, call.res, call.info, call.body
    media = patch_media(call.content_type, strategic=res.ops.strategic)
    options = begin_write(call, "PatchOptions", media)
    applying = media == APPLY_PATCH
    level = field_validation(res, options)
    transform: Transform
    if applying:
        body = await read_apply_body(storage, call, level)
        transform = partial(_apply, call, body, bool(options.get("force")), level)
    else:
        transform = partial(_patch, call, media, level)
    # A short JSON patch can copy a value many times. An escape could hide the word.
    copies = media == JSON_PATCH and (b"copy" in raw or b"\\" in raw)
    ctx.large = ctx.large or copies or is_large(raw, media, res.ops.weight)
    ctx.applying = applying
    record, created = await storage.update(
        ctx,
        res,
        info.namespace,
        info.name,
        transform,
        subresource=info.subresource,
        prepare=prepare,
        reread=True,
        force_create=applying,
    )
    return ObjectResult(res, record, 201 if created else 200)


def _apply(call: ApiCall, body: ApplyBody, force: bool, level: str, old: Object | None) -> Object:
    """The result of a server-side apply to the stored object."""
    ctx, res = call.ctx, call.res
    live = None if old is None else _served(res, old)
    new = apply.server_side_apply(
        live,
        body.config,
        res.ops.schema,
        ctx.manager,
        res.api_version,
        force,
        rfc3339(ctx.now),
        res.ops.in_version,
        normalise=lambda obj: _complete(ctx, res, obj, "Ignore"),
        kind=res.kind.kind,
        release=res.release,
        rules=write_rules(res, call.info.subresource),
    )
    report_duplicate_keys(ctx, level, body)
    check_object_name(res, new, call.info)
    return res.ops.to_storage(new)


def _patch(call: ApiCall, media: str, level: str, old: Object | None) -> Object:
    """The result of a patch of the stored object; `level` is its `fieldValidation`."""
    ctx, res, info, raw = call.ctx, call.res, call.info, call.body
    if old is None:  # only apply creates objects, even where an update would
        raise errors.not_found(res.gr, info.name)
    live = _served(res, old)
    patched = patch.apply_patch(
        media, raw, live, res.ops.schema, release=res.release, strict=level != "Ignore"
    )
    if media == STRATEGIC_PATCH:  # works on the typed object, which has no kind and apiVersion
        patched = {**patched, "kind": res.gvk.kind, "apiVersion": res.api_version}
    if res.custom and (
        patched.get("kind") != res.gvk.kind or patched.get("apiVersion") != res.api_version
    ):
        _check_custom_type(res, patched, media, raw)
        if info.subresource != "status":
            raise wrong_custom_type(res.kind, res.version, info.name, patched)
        # A status has the type of the stored object, whatever the patch says.
        patched = {**patched, "kind": res.gvk.kind, "apiVersion": res.api_version}
    # A status update always keeps the stored spec, so a patch that does not change it need not
    # decode it again.
    spec = live.get("spec") if info.subresource == "status" and res.identity else None
    if patched.get("spec") is not spec:
        spec = None
    try:
        strict = level != "Ignore" and has_behaviour(res.release, "FieldValidationWarns")
        own = strictness.patch_problems(raw, json_patch=media == JSON_PATCH) if strict else []
        new = _complete(ctx, res, patched, level, spec, own, media)
    except codec.DecodeError as problem:
        raise patch.undecodable(media, raw, patched, problem.base, res.ops.schema) from None
    check_object_name(res, new, info)
    own_fields(ctx, res, new, live, info.subresource)
    return res.ops.to_storage(new)


def _check_custom_type(res: Resource, patched: Object, media: str, raw: bytes) -> None:
    """Raises the error of a decoder for a patched custom object without a kind or apiVersion."""
    for name in ("kind", "apiVersion"):
        value = patched.get(name)
        if value is not None and not isinstance(value, str):
            why = codec.type_meta_mismatch(name, value)
            raise patch.undecodable(media, raw, patched, why, res.ops.schema)
    if not patched.get("kind"):
        why = f"Object 'Kind' is missing in '{gojson.marshal(patched).decode()}'"
        raise patch.undecodable(media, raw, patched, why, res.ops.schema)
    version = patched.get("apiVersion") or ""
    if version.count("/") > 1:
        why = f"unexpected GroupVersion string: {version}"
        raise patch.undecodable(media, raw, patched, why, res.ops.schema)
    if not version:
        text = "Object 'apiVersion' is missing in 'object has no apiVersion field'"
        raise errors.internal(text)


def _complete(
    ctx: RequestContext,
    res: Resource,
    obj: Object,
    level: str,
    spec: Object | None = None,
    problems: Sequence[str] = (),
    media: str = "",
) -> Object:
    """A patched object, decoded and defaulted like a body; `spec` needs no decoding. `problems` are
    those of the patch itself, whose `media` type decides the order of those of the object.
    """
    if spec is not None:
        obj = {**obj, "spec": None}
    same_kind = obj.get("kind") == res.gvk.kind and obj.get("apiVersion") == res.api_version
    new = None
    if same_kind:
        new = res.ops.normalise(obj) if level == "Ignore" else res.ops.normalise_known(obj)
    if new is None or (problems and level != "Ignore"):
        # A merge patch writes the fields of the object in the order of their names, and a strategic
        # one orders the messages.
        raw = gojson.marshal(obj) if media == MERGE_PATCH else codec.encode_object(obj)
        decoded = res.ops.decode(raw, "application/json", strict=level != "Ignore")
        if media == STRATEGIC_PATCH:
            decoded.problems.sort()
        decoded.problems[:0] = problems
        report_field_problems(ctx, level, decoded, res)
        new = decoded.obj
    new.setdefault("metadata", {})
    if spec is not None:
        new["spec"] = spec
    res.ops.default(new)
    return new


def _returns_deleted(strategy: Strategy, res: Resource) -> bool:
    """Whether DELETE returns the object instead of a Status."""
    return strategy.return_deleted or (
        res.kind.key == "/Service" and has_behaviour(res.release, "ServiceDeleteReturnsObject")
    )


def _warn_of_orphans(ctx: RequestContext, res: Resource, options: Object) -> None:
    """Jobs leave their pods behind unless the request says otherwise."""
    if res.kind.key != "batch/Job":
        return
    if res.api_version in strategy_for(res.kind, res.version).orphan_versions:
        text = object_warnings.job_deletion_warning(res.release, options)
        if text:
            ctx.warn(text)


async def delete_object(storage: Storage, call: ApiCall) -> ObjectResult | DocumentResult:
    ctx, res, info = call.ctx, call.res, call.info
    options = await read_delete_options(storage, call)
    ctx.dry_run = bool(options.get("dryRun"))
    _warn_of_orphans(ctx, res, options)
    obj, gone = await storage.delete(ctx, res, info.namespace, info.name, options)
    strategy = strategy_for(res.kind, res.version)
    gone = gone or strategy.deletion_in_words
    # 202 if a cascading deletion was requested and is in progress.
    code = 202 if not gone and options.get("orphanDependents") is False else 200
    if gone and not _returns_deleted(strategy, res):
        meta = obj["metadata"]
        return DocumentResult(success_status(res, meta["name"], meta.get("uid", "")), code)
    return ObjectResult(
        res, StoreRecord("", await storage.encode_result(ctx, res, obj), 0, 0), code
    )


def success_status(res: Resource, name: str, uid: str) -> Object:
    details: Object = {"name": name}
    if res.gr.group:
        details["group"] = res.gr.group
    details["kind"] = res.gr.resource
    if uid:
        details["uid"] = uid
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


async def delete_collection(storage: Storage, call: ApiCall) -> ListResult:
    ctx, res = call.ctx, call.res
    chosen = parse_list_options(call.query, res, watch=False)
    options = await read_delete_options(storage, call)
    ctx.dry_run = bool(options.get("dryRun"))
    _warn_of_orphans(ctx, res, options)
    listing = await list_readable(storage, res, call.info.namespace, chosen)
    time_slice = TimeSlice()
    for record in listing.records:
        await time_slice.pause()  # a dry run, and what finalizers hold, waits for no write
        meta = orjson.loads(record.value)["metadata"]
        try:
            await storage.delete(ctx, res, meta.get("namespace", ""), meta["name"], options)
        except errors.ApiError as problem:
            if problem.code != 404:
                raise
    # The original list, with the continue token unless it was the last page.
    return ListResult(res, listing)
