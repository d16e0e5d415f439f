"""PATCH bodies: turns bytes and a media type into the patched object, with the API server's errors.

JSON patch, merge patch and strategic merge patch; server-side apply has a module of its own. The
result is not decoded yet: the caller handles unknown fields and wrong types with `undecodable`.
"""

from __future__ import annotations

from typing import Any

from transom.machinery import field, gojson, schema
from transom.machinery.errors import ApiError, GroupResource, bad_request, invalid
from transom.machinery.gofmt import go_sprint
from transom.machinery.jsonpatch import json_patch
from transom.machinery.mergepatch import merge_patch, without_nulls
from transom.machinery.objects import TooDeep
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.strategic import UNSUPPORTED, strategic_merge, without_directives
from transom.machinery.typed import TypeNode
from transom.machinery.unstructured import unstructured_conversion_error

__all__ = [
    "JSON",
    "MERGE",
    "STRATEGIC",
    "apply_patch",
    "json_patch",
    "merge_patch",
    "strategic_merge",
    "undecodable",
]

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

_LARGE = 1024 * 1024
_KINDS = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
}
_NOT_AN_OBJECT = (
    "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value "
    "of type struct "
    '{ APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
    '"json:\\"kind,omitempty\\"" }'
)


def apply_patch(
    media_type: str,
    raw: bytes,
    current: dict[str, Any],
    type: schema.SchemaType | TypeNode | None,
    *,
    release: Release,
    strict: bool = False,
) -> dict[str, Any]:
    """The current object, in the version of the request, after the patch. Neither is changed.
    `strict`: the patch is first decoded on its own, for field validation.
    """
    if media_type == JSON:
        of_root = has_behaviour(release, "RootPatches")
        patched = json_patch(current, _operations(raw, strict), of_root=of_root)
        if not isinstance(patched, dict):
            raise undecodable(JSON, raw, patched, _NOT_AN_OBJECT)
        return patched
    if media_type == MERGE:
        return _merge(current, raw, strict, release)
    if media_type == STRATEGIC:
        if type is None or isinstance(type, TypeNode):  # a custom kind
            raise bad_request(UNSUPPORTED)
        return strategic_merge(current, _strategic_patch(raw), type)
    raise ApiError(500, "", f"{media_type}: unimplemented patch type")


def undecodable(
    media_type: str, raw: bytes, patched: Any, why: str, type: schema.SchemaType | None = None
) -> ApiError:
    """The error for a patched object that does not fit its type: `why` is the message of decoding
    its JSON.
    """
    if media_type == STRATEGIC:
        text = go_sprint(without_directives(_strategic_patch(raw)))
        why = (unstructured_conversion_error(patched, type) if type is not None else "") or why
    else:
        text = gojson.marshal(patched).decode()
    return invalid(GroupResource("", ""), "", [field.invalid("patch", text, why)])


def _mismatch(value: Any, go_type: str) -> str:
    return f"json: cannot unmarshal {_KINDS[type(value)]} into Go value of type {go_type}"


def _operations(raw: bytes, strict: bool) -> list[Any]:
    large = len(raw) > _LARGE
    prefix = "error decoding patch: " if large or strict else ""
    try:
        ops = gojson.loads(raw)
    except (gojson.JsonError, TooDeep) as e:
        raise bad_request(prefix + str(e)) from None
    if ops is None:
        return []
    if not isinstance(ops, list):
        go_type = "[]interface {}" if large else "jsonpatch.Patch"
        if strict:
            go_type = "[]handlers.jsonPatchOp"
        raise bad_request(prefix + _mismatch(ops, go_type))
    for op in ops:
        if op is not None and not isinstance(op, dict):
            go_type = "handlers.jsonPatchOp" if strict else "jsonpatch.Operation"
            raise bad_request(prefix + _mismatch(op, go_type))
        for name in ("op", "path", "from") if strict else ():
            value = (op or {}).get(name)
            if value is not None and not isinstance(value, str):
                place = f"Go struct field jsonPatchOp.{name} of type string"
                text = f"json: cannot unmarshal {_KINDS[type(value)]} into {place}"
                raise bad_request(prefix + text)
    return ops


def _merge(current: dict[str, Any], raw: bytes, strict: bool, release: Release) -> dict[str, Any]:
    try:
        patch = gojson.loads(raw)
    except TooDeep as e:
        raise bad_request(f"error decoding patch: {e}") from None
    except gojson.JsonError as e:
        if strict:
            raise bad_request(f"error decoding patch: {e}") from None
        if len(raw) > _LARGE:
            raise bad_request(f"error decoding patch: {_stream_error(raw) or e}") from None
        raise ApiError(500, "", "Invalid JSON Patch") from None
    list_nulls = has_behaviour(release, "MergePatchListNulls")
    if isinstance(patch, dict):
        return merge_patch(current, patch, list_nulls=list_nulls)
    if (strict or len(raw) > _LARGE) and patch is not None:
        raise bad_request("error decoding patch: " + _mismatch(patch, "map[string]interface {}"))
    if isinstance(patch, list):  # the document becomes the list, and is no longer an object
        raise undecodable(MERGE, raw, without_nulls(patch, list_nulls), _NOT_AN_OBJECT)
    raise ApiError(500, "", "Invalid JSON Patch")


def _strategic_patch(raw: bytes) -> dict[str, Any]:
    try:
        patch = gojson.loads(raw)
    except TooDeep as e:
        raise bad_request(str(e)) from None
    except gojson.JsonError as e:
        problem = _stream_error(raw)
        if problem:
            raise bad_request(problem) from None
        try:
            patch = gojson.loads_first(raw)
        except ValueError:
            raise bad_request(str(e)) from None
    if patch is None:
        return {}
    if not isinstance(patch, dict):
        raise bad_request(_mismatch(patch, "map[string]interface {}"))
    return patch


def _stream_error(raw: bytes) -> str:
    """The message of a streaming decoder: it stops after the first value, and reports EOF."""
    text = gojson.syntax_error(raw) or ""
    if text.endswith("after top-level value"):
        return ""
    if text == "unexpected end of JSON input":
        return "unexpected EOF" if raw.strip(b" \t\r\n") else "EOF"
    return text
