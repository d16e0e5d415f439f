"""Applies a webhook's JSON patch to an object. Unlike for clients, errors state why a patch does
not apply.
"""

from __future__ import annotations

import re
from typing import Any

from transom.kit.goquote import go_quote
from transom.machinery.errors import ApiError
from transom.machinery.jsonpatch import first_failure, json_patch
from transom.machinery.objects import Object

_MISSING = "missing value"
_INDEX = re.compile(r"[+-]?[0-9]+")


def apply_webhook_patch(obj: Object, operations: list[Any]) -> Object:
    """The patched object; raises ValueError with the reason if the patch does not apply."""
    try:
        return json_patch(obj, operations)
    except ApiError as problem:
        if problem.code != 422:
            raise ValueError(problem.message) from None
    failure = first_failure(obj, operations)
    if failure is None:
        raise AssertionError("the patch applies after all")
    index, cause = failure
    raise ValueError(
        str(cause) or _why_not(json_patch(obj, operations[:index]), operations[index] or {})
    )


def _why_not(obj: Object, operation: Object) -> str:
    kind = operation.get("op")
    if kind not in ("add", "remove", "replace", "move", "copy", "test"):
        return f"Unexpected kind: {kind if isinstance(kind, str) else 'unknown'}"
    path, source = operation.get("path"), operation.get("from")
    if kind in ("move", "copy"):
        return _why_not_moved(obj, kind, source, path)
    if not isinstance(path, str):
        return f"{kind} operation failed to decode path: {_MISSING}"
    container, key = _holder(obj, path)
    if container is None:
        quoted = (
            f'doc is missing path: "{path}"'
            if kind in ("add", "remove")
            else f"doc is missing path: {path}"
        )
        return (
            f"{kind} operation does not apply: "
            f"{'is missing path: ' + path if kind == 'test' else quoted}: {_MISSING}"
        )
    if kind == "test":
        return f"testing value {path} failed: test failed"
    if kind == "replace":
        return f"replace operation does not apply: doc is missing key: {path}: {_MISSING}"
    return f"error in {kind} for path: '{path}': {_misplaced(container, key, kind)}"


def _why_not_moved(obj: Object, kind: str, source: Any, path: Any) -> str:
    if not isinstance(source, str):
        return f"{kind} operation failed to decode from: {_MISSING}"
    container, key = _holder(obj, source)
    if container is None:
        return f"{kind} operation does not apply: doc is missing from path: {source}: {_MISSING}"
    if not isinstance(path, str):
        return f"{kind} operation failed to decode path: {_MISSING}"
    if isinstance(container, list) or (kind == "move" and key not in container):
        where = f"from: '{source}'" if kind == "copy" else f"path: '{key}'"
        return f"error in {kind} for {where}: {_misplaced(container, key, 'remove')}"
    target, last = _holder(obj, path)
    if target is None:
        return (
            f"{kind} operation does not apply: doc is missing destination path: {path}: {_MISSING}"
        )
    if kind == "copy":
        return f"error while adding value during copy: {_misplaced(target, last, 'add')}"
    return f"error in move for path: '{path}': {_misplaced(target, last, 'add')}"


def _misplaced(container: Any, key: str, kind: str) -> str:
    if isinstance(container, dict):
        return f"Unable to remove nonexistent key: {key}: {_MISSING}"
    if _INDEX.fullmatch(key):
        return f"Unable to access invalid index: {int(key)}: invalid index referenced"
    syntax = f"strconv.Atoi: parsing {go_quote(key)}: invalid syntax"
    return f"value was not a proper array index: '{key}': {syntax}" if kind == "add" else syntax


def _holder(obj: Object, path: str) -> tuple[Any, str]:
    """The parent of a path's last segment, None if it does not exist."""
    _, *parts = path.split("/")
    at: Any = obj
    for part in parts[:-1]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(at, dict):
            at = at.get(key)
        else:
            at = at[int(key)] if key.isdigit() and int(key) < len(at) else None
        if not isinstance(at, dict | list):
            return None, ""
    return (at, parts[-1].replace("~1", "/").replace("~0", "~")) if parts else (None, "")
