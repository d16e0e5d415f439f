"""Request bodies: decoding, defaulting, field ownership and the checks that all writes share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from transom.apiserver.core.call import ApiCall
from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.offload import is_large
from transom.apiserver.core.options import parse_delete_options, parse_write_options
from transom.apiserver.core.requestinfo import Authorized
from transom.apiserver.core.resources import Resource
from transom.apiserver.core.storage import Storage
from transom.kit.clock import rfc3339
from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple
from transom.machinery import codec, errors, managedfields, schema
from transom.machinery.kinds import GVK, Kind
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour, honours_field_validation
from transom.machinery.releases.reset_fields import reset_paths
from transom.machinery.schema import SchemaTable

if TYPE_CHECKING:
    from transom.machinery import apply
else:
    apply = lazy_import("transom.machinery.apply")

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MEDIA_TYPES = f"{JSON}, {YAML}, {PROTOBUF}"

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_UNKNOWN_FORMAT = (
    "the body of the request was in an unknown format - accepted media types include: "
)

_YAML_ERRORS = "yaml: unmarshal errors:\n"


def body_media(content_type: str) -> str:
    """The media type of a request body; absent means JSON."""
    media = content_type.partition(";")[0].strip().lower()
    if not media:
        return JSON
    if media in (JSON, YAML, PROTOBUF):
        return media
    raise errors.unsupported_media_type(_UNKNOWN_FORMAT + MEDIA_TYPES)


def patch_media(content_type: str, *, strategic: bool) -> str:
    """The type of a patch; `strategic`: the resource supports strategic merge patches."""
    media = content_type.partition(";")[0].strip().lower()
    offered = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH, *((STRATEGIC_PATCH,) if strategic else ()))
    if media in offered:
        return media
    if media == STRATEGIC_PATCH:
        raise errors.unsupported_media_type(_UNKNOWN_FORMAT + ", ".join(offered))
    raise errors.unsupported_media_type("415: Unsupported Media Type", {})


_DELETE_OPTIONS = GVK("", "v1", "DeleteOptions")


def begin_write(call: ApiCall, kind: str, patch_type: str = "") -> Object:
    """Parses the options of a write into the context of the call."""
    options = parse_write_options(call.query, kind, patch_type, call.res.release)
    call.ctx.dry_run = bool(options.get("dryRun"))
    call.ctx.field_manager = options.get("fieldManager", "")
    return options


def read_media(call: ApiCall) -> str:
    """The media type of the body. Marks the call as large if processing its body takes long."""
    media = body_media(call.content_type)
    call.ctx.large = is_large(call.body, media, call.res.ops.weight)
    return media


def decode_body(
    ctx: RequestContext, res: Resource, raw: bytes, media: str, options: Object
) -> Object:
    """Decodes the body of a create or update; `fieldValidation` controls the handling of unknown
    fields.
    """
    level = field_validation(res, options)
    try:
        decoded = res.ops.decode(raw, media, strict=level != "Ignore")
    except codec.OtherVersionError as problem:
        found = codec.Decoded({}, problem.gvk, problem.problems)
        report_field_problems(ctx, level, found, res)
        raise
    report_field_problems(ctx, level, decoded, res)
    return decoded.obj


def decode_action(
    call: ApiCall, options: Object, media: str, wanted: GVK, also: Collection[GVK] = ()
) -> Object:
    """Decodes the body of a subresource whose kind is not that of the resource (a Binding, a Scale)."""
    level = field_validation(call.res, options)
    decoded = codec.decode_object(
        call.body,
        media,
        wanted,
        strict=level != "Ignore",
        also=also,
        types=schema_of_release(call.res),
    )
    report_field_problems(call.ctx, level, decoded, call.res, decoded.gvk)
    return decoded.obj


def schema_of_release(res: Resource) -> SchemaTable:
    """The types of the cluster's release; a custom resource has none of its own."""
    return schema.schema_table(res.release) if res.custom else res.ops.schema.table


def field_validation(res: Resource, options: Object) -> str:
    """`fieldValidation` of a request, or the default of the release. Some releases ignore it."""
    if not honours_field_validation(res.release):
        return "Ignore"
    default = "Warn" if has_behaviour(res.release, "FieldValidationWarns") else "Ignore"
    return str(options.get("fieldValidation") or default)


def report_field_problems(
    ctx: RequestContext,
    level: str,
    decoded: codec.Decoded,
    res: Resource,
    wanted: GVK | None = None,
) -> None:
    """Unknown and duplicate fields: an error (Strict), a warning (Warn) or nothing (Ignore).
    `wanted` is the kind of a subresource if it is not that of the resource.
    """
    if not decoded.problems or level == "Ignore":
        return
    problem = codec.strict_error(decoded, wanted or res.gvk)
    if level == "Strict" and problem is not None:
        raise problem
    split = has_behaviour(res.release, "FieldValidationWarns")
    for text in decoded.problems:
        for line in _yaml_lines(text) if split else (text,):
            ctx.warn(line)


def _yaml_lines(problem: str) -> Sequence[str]:
    """Errors of YAML are one text with a line for each; the client gets a warning for each."""
    if not problem.startswith(_YAML_ERRORS):
        return (problem,)
    return [line.strip() for line in problem.removeprefix(_YAML_ERRORS).split("\n")]


@lru_cache(maxsize=512)
def _rules_of(kind: Kind, release: Release, subresource: str) -> managedfields.WriteRules:
    newer = has_behaviour(release, "SubresourcesInManagedFields")
    later = has_behaviour(release, "ManagedFieldTimes")
    reset = reset_paths(kind, release, subresource) if newer else ()
    return managedfields.WriteRules(subresource if newer else "", frozenset(reset), later, later)


def write_rules(res: Resource, subresource: str) -> managedfields.WriteRules:
    """How a write through an endpoint changes the ownership of fields."""
    return _rules_of(res.kind, res.release, subresource)


def own_fields(
    ctx: RequestContext, res: Resource, new: Object, live: Object | None, subresource: str = ""
) -> None:
    """Updates the managed fields for this write. Both objects are in the request's version."""
    if live is None and "managedFields" not in new["metadata"]:
        entries = managedfields.on_create(
            new,
            res.ops.schema,
            ctx.manager,
            res.api_version,
            rfc3339(ctx.now),
            write_rules(res, subresource),
        )
        if entries:
            new["metadata"]["managedFields"] = entries
        return
    entries = managedfields.on_update(
        live,
        new,
        res.ops.schema,
        ctx.manager,
        res.api_version,
        rfc3339(ctx.now),
        res.ops.in_version,
        ignore_request=bool(subresource),
        rules=write_rules(res, subresource),
    )
    if entries:
        new["metadata"]["managedFields"] = entries
    else:
        new["metadata"].pop("managedFields", None)


def check_namespace(res: Resource, obj: Object, namespace: str) -> None:
    given = obj["metadata"].get("namespace", "")
    if res.kind.namespaced and given and given != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def check_object_name(res: Resource, obj: Object, info: Authorized) -> None:
    meta = obj.get("metadata") or {}
    name, namespace = meta.get("name", ""), meta.get("namespace", "")
    if info.namespace and has_behaviour(res.release, "ApplyErrorsNameObject"):
        check_namespace(res, {"metadata": meta}, info.namespace)
    if not name:
        raise errors.bad_request(
            f"the name of the object ({info.name} based on URL) was undeterminable: "
            "name must be provided"
        )
    if name != info.name:
        raise errors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({info.name})"
        )
    if info.namespace and namespace and namespace != info.namespace:
        raise errors.bad_request(
            f"the namespace of the object ({namespace}) does not match the namespace on the "
            f"request ({info.namespace})"
        )


class ApplyBody(NamedTuple):
    config: Object
    duplicates: Sequence[str] = ()  # errors about keys that occur twice in a map


async def read_apply_body(storage: Storage, call: ApiCall, level: str) -> ApplyBody:
    """The body of an apply request. Most clients send JSON, which is much faster than other
    YAML. `level` is its `fieldValidation`.
    """
    parse = partial(_parse_apply_body, call.body, strict=level != "Ignore")
    if not is_large(call.body, APPLY_PATCH):
        return parse()
    call.ctx.large = True
    return await storage.compute(call.ctx, parse)


def _parse_apply_body(body: bytes, *, strict: bool) -> ApplyBody:
    config = apply.parse_json_config(body)
    if config is None:
        config = apply.parse_config(body)
    elif strict:
        strict = apply.has_duplicate_keys(body)
    return ApplyBody(config, apply.find_duplicate_keys(body) if strict else ())


def report_duplicate_keys(ctx: RequestContext, level: str, body: ApplyBody) -> None:
    """Keys that occur twice in an applied configuration: an error (Strict) or a warning (Warn)."""
    if body.duplicates and level == "Strict":
        text = "".join(f"\n  {line}" for line in body.duplicates)
        raise errors.bad_request(
            f"error strict decoding YAML: error converting YAML to JSON: {_YAML_ERRORS[:-1]}{text}"
        )
    if level == "Warn":
        for line in body.duplicates:
            ctx.warn(line)


async def read_delete_options(storage: Storage, call: ApiCall) -> Object:
    release = call.res.release
    if not call.body:
        return parse_delete_options(call.query, None, release)
    media = read_media(call)

    def read() -> Object:
        body = _decode_delete_options(call.body, media, schema_of_release(call.res))
        return parse_delete_options(call.query, body, release)

    return await storage.compute(call.ctx, read) if call.ctx.large else read()


def _decode_delete_options(raw: bytes, media: str, types: SchemaTable) -> Object:
    """DeleteOptions in a body. For an invalid body older releases return a plain 500."""
    try:
        options = codec.decode_options(raw, media, _DELETE_OPTIONS, types)
    except errors.ApiError as problem:
        if problem.code == 500 and has_behaviour(types.release, "BadDeleteOptions"):
            raise errors.bad_request(str(problem)) from None
        raise
    return {k: v for k, v in options.items() if k not in ("kind", "apiVersion")}
