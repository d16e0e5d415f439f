"""POST, PUT, PATCH and DELETE of resources: bodies to storage calls and back.

A body goes through decode, defaults, managed fields (all in the request's version), then to the storage version.
"""

from __future__ import annotations

import orjson

from transom.apiserver import lists, respond
from transom.apiserver.context import Context
from transom.apiserver.negotiate import AS_OBJECT, Form, body_media
from transom.apiserver.options import delete_options, first, list_options, write_options
from transom.apiserver.requestinfo import RequestInfo
from transom.apiserver.resources import Resource
from transom.apiserver.storage import Prepare, Storage, encode_value
from transom.apiserver.strategies import strategy_for
from transom.http.messages import Request, Response
from transom.kit.clock import rfc3339
from transom.machinery import apply, codec, errors, managedfields, patch
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object, copy_object
from transom.store.api import Record

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_DELETE_OPTIONS = GVK("", "v1", "DeleteOptions")


def decode_body(ctx: Context, res: Resource, raw: bytes, media: str, options: Object) -> Object:
    """The body of a create or update, with what `fieldValidation` wants said about unknown fields."""
    level = options.get("fieldValidation", "Ignore")
    decoded = res.ops.decode(raw, media, strict=level != "Ignore")
    report_problems(ctx, level, decoded, res)
    return decoded.obj


def report_problems(ctx: Context, level: str, decoded: codec.Decoded, res: Resource) -> None:
    """Unknown and duplicate fields: refused (Strict), told (Warn), or not even looked for (Ignore)."""
    if not decoded.problems or level == "Ignore":
        return
    problem = codec.strict_error(decoded, res.gvk)
    if level == "Strict" and problem is not None:
        raise problem
    for text in decoded.problems:
        ctx.warn(text)


def begin(ctx: Context, request: Request, kind: str, patch_type: str = "") -> Object:
    """Options of a write, and what they say about the context."""
    options = write_options(request.query, kind, patch_type)
    ctx.dry_run = bool(options.get("dryRun"))
    ctx.field_manager = options.get("fieldManager", "")
    return options


def own_fields(ctx: Context, res: Resource, new: Object, live: Object | None, subresource: str = "") -> None:
    """Record which fields this write owns. Both objects are in the request's version."""
    entries = managedfields.on_update(
        live, new, res.ops.schema, ctx.manager, res.api_version, rfc3339(ctx.now),
        res.ops.in_version,
        ignore_request=bool(subresource),
    )
    if entries:
        new["metadata"]["managedFields"] = entries
    else:
        new["metadata"].pop("managedFields", None)


async def create(
    storage: Storage, ctx: Context, res: Resource, info: RequestInfo, request: Request, form: Form
) -> Response:
    if res.custom and "create" not in res.kind.verbs:
        raise _definition_terminating(res)
    options = begin(ctx, request, "CreateOptions")
    obj = decode_body(ctx, res, request.body, body_media(request.header(b"content-type")), options)
    obj.setdefault("metadata", {})
    res.ops.default(obj)
    if ctx.audit is not None:
        ctx.audit.request_object(obj)
    check_namespace(res, obj, info.namespace)
    own_fields(ctx, res, obj, None)
    record = await storage.create(ctx, res, info.namespace, res.ops.to_storage(obj))
    return answer(ctx, res, record, form, request, 201)


def _definition_terminating(res: Resource) -> errors.ApiError:
    problem = errors.method_not_supported(res.gr, "create")
    problem.message = "create not allowed while custom resource definition is terminating"
    return problem


def check_namespace(res: Resource, obj: Object, namespace: str) -> None:
    given = obj["metadata"].get("namespace", "")
    if res.kind.namespaced and given and given != namespace:
        raise errors.bad_request("the namespace of the provided object does not match the namespace sent on the request")


def answer(ctx: Context, res: Resource, record: Record, form: Form, request: Request, status: int) -> Response:
    if form is AS_OBJECT:
        shared = record.cache.obj if record.cache is not None and res.identity and not res.custom else None
        return respond.ObjectResponse(status, shared if shared is not None else respond.served(res, record))
    return respond.one(
        res, record, form, ctx.now, status, respond.warning_headers(ctx.warnings) if ctx.warnings else None,
        first(request.query, "includeObject") if form.transform else "",
    )


def check_name(obj: Object, info: RequestInfo) -> None:
    meta = obj.get("metadata") or {}
    name, namespace = meta.get("name", ""), meta.get("namespace", "")
    if not name:
        raise errors.bad_request(f"the name of the object ({info.name} based on URL) was undeterminable: name must be provided")
    if name != info.name:
        raise errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({info.name})")
    if info.namespace and namespace and namespace != info.namespace:
        raise errors.bad_request(
            f"the namespace of the object ({namespace}) does not match the namespace on the request ({info.namespace})"
        )


async def update(
    storage: Storage, ctx: Context, res: Resource, info: RequestInfo, request: Request, form: Form,
    prepare: Prepare | None = None,
) -> Response:
    options = begin(ctx, request, "UpdateOptions")
    given = decode_body(ctx, res, request.body, body_media(request.header(b"content-type")), options)
    given.setdefault("metadata", {})
    check_name(given, info)
    res.ops.default(given)
    if ctx.audit is not None:
        ctx.audit.request_object(given)
    first_try = True

    def transform(old: Object | None) -> Object:
        nonlocal first_try
        new = given if first_try else copy_object(pristine)
        first_try = False
        own_fields(ctx, res, new, None if old is None else _served(res, old), info.subresource)
        return res.ops.to_storage(new)

    # A retry needs the body as it came; only an update without a version is ever retried.
    pristine = given if given["metadata"].get("resourceVersion") else copy_object(given)
    record, created = await storage.update(
        ctx, res, info.namespace, info.name, transform, subresource=info.subresource, prepare=prepare,
    )
    return answer(ctx, res, record, form, request, 201 if created else 200)


def _served(res: Resource, stored: Object) -> Object:
    return stored if res.identity else res.ops.from_storage(stored)


def patch_media(request: Request, res: Resource) -> str:
    media = request.header(b"content-type").partition(";")[0].strip().lower()
    offered = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH, *((STRATEGIC_PATCH,) if res.ops.strategic else ()))
    if media in offered:
        return media
    if media == STRATEGIC_PATCH:
        raise errors.unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: " + ", ".join(offered)
        )
    raise errors.unsupported_media_type("415: Unsupported Media Type", {})


async def patch_(
    storage: Storage, ctx: Context, res: Resource, info: RequestInfo, request: Request, form: Form,
    prepare: Prepare | None = None,
) -> Response:
    media = patch_media(request, res)
    options = begin(ctx, request, "PatchOptions", media)
    applying = media == APPLY_PATCH
    level = options.get("fieldValidation", "Ignore")
    config = apply.parse_config(request.body) if applying else None

    def transform(old: Object | None) -> Object:
        if config is not None:
            live = None if old is None else _served(res, old)
            new = apply.server_side_apply(
                live, config, res.ops.schema, ctx.manager, res.api_version, bool(options.get("force")),
                rfc3339(ctx.now), res.ops.in_version,
                normalise=lambda obj: _complete(ctx, res, obj, "Ignore"), kind=res.kind.kind,
            )
            check_name(new, info)
            return res.ops.to_storage(new)
        if old is None:  # only apply makes what is not there, even where an update would
            raise errors.not_found(res.gr, info.name)
        live = _served(res, old)
        patched = patch.apply_patch(media, request.body, live, res.ops.schema)
        if media == STRATEGIC_PATCH:  # works on the typed object: what it says about its kind is lost
            patched = {**patched, "kind": res.gvk.kind, "apiVersion": res.api_version}
        if res.custom and (patched.get("kind") != res.gvk.kind or patched.get("apiVersion") != res.api_version):
            why = f'no kind "{patched.get("kind")}" is registered for version "{patched.get("apiVersion")}"'
            raise patch.undecodable(media, request.body, patched, why, res.ops.schema)
        # A status update keeps the stored spec whatever comes; a patch that leaves it alone need not make it anew.
        spec = live.get("spec") if info.subresource == "status" and res.identity else None
        if patched.get("spec") is not spec:
            spec = None
        try:
            new = _complete(ctx, res, patched, level, spec)
        except codec.DecodeError as problem:
            raise patch.undecodable(media, request.body, patched, problem.base, res.ops.schema) from None
        check_name(new, info)
        own_fields(ctx, res, new, live, info.subresource)
        return res.ops.to_storage(new)

    record, created = await storage.update(
        ctx, res, info.namespace, info.name, transform, subresource=info.subresource, prepare=prepare, reread=True,
        force_create=applying,
    )
    return answer(ctx, res, record, form, request, 201 if created else 200)


def _complete(ctx: Context, res: Resource, obj: Object, level: str, spec: Object | None = None) -> Object:
    """A patched object is decoded and defaulted like a body; `spec` is one that needs no decoding."""
    if spec is not None:
        obj = {**obj, "spec": None}
    if level == "Ignore" and obj.get("kind") == res.gvk.kind and obj.get("apiVersion") == res.api_version:
        new = res.ops.normalise(obj)
    else:
        decoded = res.ops.decode(codec.encode(obj), "application/json", strict=level != "Ignore")
        report_problems(ctx, level, decoded, res)
        new = decoded.obj
    new.setdefault("metadata", {})
    if spec is not None:
        new["spec"] = spec
    res.ops.default(new)
    return new


def read_delete_options(request: Request) -> Object:
    body = None
    if request.body:
        media = body_media(request.header(b"content-type"))
        body = decode_options(request.body, media)
    return delete_options(request.query, body)


def decode_options(raw: bytes, media: str) -> Object:
    """DeleteOptions in a body. The real server answers a bad one with a bare 500."""
    options = codec.decode_options(raw, media, _DELETE_OPTIONS)
    return {k: v for k, v in options.items() if k not in ("kind", "apiVersion")}


async def delete(
    storage: Storage, ctx: Context, res: Resource, info: RequestInfo, request: Request, form: Form
) -> Response:
    options = read_delete_options(request)
    ctx.dry_run = bool(options.get("dryRun"))
    obj, gone = await storage.delete(ctx, res, info.namespace, info.name, options)
    headers = respond.warning_headers(ctx.warnings) if ctx.warnings else None
    strategy = strategy_for(res.kind, res.version)
    gone = gone or strategy.deletion_in_words
    # 202 when a cascade was asked for and is still under way.
    status = 202 if not gone and options.get("orphanDependents") is False else 200
    if gone and not strategy.return_deleted:
        meta = obj["metadata"]
        return respond.document(respond.success_status(res, meta["name"], meta.get("uid", "")), form._replace(transform=""),
                                status, headers)
    return respond.one(res, _as_record(res, obj), form, ctx.now, status, headers)


def _as_record(res: Resource, obj: Object) -> Record:
    return Record("", encode_value(obj, custom=res.custom), 0, 0)


async def delete_collection(
    storage: Storage, ctx: Context, res: Resource, info: RequestInfo, request: Request, form: Form
) -> Response:
    chosen = list_options(request.query, res, watch=False)
    options = read_delete_options(request)
    ctx.dry_run = bool(options.get("dryRun"))
    listing = lists.list_records(storage, res, info.namespace, chosen)
    for record in listing.records:
        meta = orjson.loads(record.value)["metadata"]
        try:
            await storage.delete(ctx, res, meta.get("namespace", ""), meta["name"], options)
        except errors.ApiError as problem:
            if problem.code != 404:
                raise
    # The answer is the list as it was found, with the token of a page that was not the last.
    return respond.many(res, await lists.readable(res, listing), form, ctx.now)
