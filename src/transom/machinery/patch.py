"""PATCH bodies: bytes and a media type to the patched object, with the API server's answers to bad ones.

JSON patch, merge patch and strategic merge patch; server-side apply has a module of its own. The result is not decoded
yet: unknown fields and wrong types are the caller's matter, who answers them with `undecodable`.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from transom.machinery import field, gojson, schema
from transom.machinery.errors import ApiError, GroupResource, bad_request, invalid
from transom.machinery.gofmt import sprint
from transom.machinery.jsonpatch import json_patch
from transom.machinery.mergepatch import merge_patch, without_nulls
from transom.machinery.strategic import UNSUPPORTED, strategic_merge, without_directives
from transom.machinery.typed import Node
from transom.machinery.unstructured import conversion_error

__all__ = ["JSON", "MERGE", "STRATEGIC", "apply_patch", "json_patch", "merge_patch", "strategic_merge", "undecodable"]

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

_LARGE = 1024 * 1024
_KINDS = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}
_NOT_AN_OBJECT = (
    "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct "
    '{ APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


def apply_patch(
    media_type: str, raw: bytes, current: dict[str, Any], type: schema.Type | Node | None
) -> dict[str, Any]:
    """The current object, in the version of the request, after the patch. Neither is changed."""
    if media_type == JSON:
        return json_patch(current, _operations(raw))
    if media_type == MERGE:
        return _merge(current, raw)
    if media_type == STRATEGIC:
        if type is None or isinstance(type, Node):  # a custom kind
            raise bad_request(UNSUPPORTED)
        return strategic_merge(current, _strategic_patch(raw), type)
    raise ApiError(500, "", f"{media_type}: unimplemented patch type")


def undecodable(media_type: str, raw: bytes, patched: Any, why: str, type: schema.Type | None = None) -> ApiError:
    """The answer when the patched object does not fit its type: `why` is what decoding its JSON said."""
    if media_type == STRATEGIC:
        text = sprint(without_directives(_strategic_patch(raw)))
        why = (conversion_error(patched, type) if type is not None else "") or why
    else:
        text = gojson.marshal(patched).decode()
    return invalid(GroupResource("", ""), "", [field.invalid("patch", text, why)])


def _mismatch(value: Any, go_type: str) -> str:
    return f"json: cannot unmarshal {_KINDS[type(value)]} into Go value of type {go_type}"


def _operations(raw: bytes) -> list[Any]:
    large = len(raw) > _LARGE
    prefix = "error decoding patch: " if large else ""
    try:
        ops = orjson.loads(raw)
    except orjson.JSONDecodeError as e:
        raise bad_request(prefix + (gojson.syntax_error(raw) or str(e))) from None
    if ops is None:
        return []
    if not isinstance(ops, list):
        raise bad_request(prefix + _mismatch(ops, "[]interface {}" if large else "jsonpatch.Patch"))
    for op in ops:
        if op is not None and not isinstance(op, dict):
            raise bad_request(_mismatch(op, "jsonpatch.Operation"))
    return ops


def _merge(current: dict[str, Any], raw: bytes) -> dict[str, Any]:
    try:
        patch = orjson.loads(raw)
    except orjson.JSONDecodeError as e:
        if len(raw) > _LARGE:
            raise bad_request(f"error decoding patch: {_stream_error(raw) or e}") from None
        raise ApiError(500, "", "Invalid JSON Patch") from None
    if isinstance(patch, dict):
        return merge_patch(current, patch)
    if len(raw) > _LARGE and patch is not None:
        raise bad_request("error decoding patch: " + _mismatch(patch, "map[string]interface {}"))
    if isinstance(patch, list):  # the document becomes the list, and is no object any more
        raise undecodable(MERGE, raw, without_nulls(patch), _NOT_AN_OBJECT)
    raise ApiError(500, "", "Invalid JSON Patch")


def _strategic_patch(raw: bytes) -> dict[str, Any]:
    try:
        patch = orjson.loads(raw)
    except orjson.JSONDecodeError as e:
        problem = _stream_error(raw)
        if problem:
            raise bad_request(problem) from None
        try:
            patch = json.JSONDecoder().raw_decode(raw.decode().lstrip(" \t\r\n"))[0]
        except ValueError:
            raise bad_request(str(e)) from None
    if patch is None:
        return {}
    if not isinstance(patch, dict):
        raise bad_request(_mismatch(patch, "map[string]interface {}"))
    return patch


def _stream_error(raw: bytes) -> str:
    """What a streaming decoder says: it stops after the first value, and knows EOF."""
    text = gojson.syntax_error(raw) or ""
    if text.endswith("after top-level value"):
        return ""
    if text == "unexpected end of JSON input":
        return "unexpected EOF" if raw.strip(b" \t\r\n") else "EOF"
    return text
