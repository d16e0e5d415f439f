"""Small handles on API objects: the one copy helper, and reading of common metadata."""

from __future__ import annotations

from typing import Any

import orjson

Object = dict[str, Any]


def copy_object(value: Any) -> Any:
    """A deep copy of JSON data. A round trip through orjson is six times faster than copy.deepcopy."""
    return orjson.loads(orjson.dumps(value))


def same_json(a: Any, b: Any) -> bool:
    """Equal as JSON: unlike in Python, true is not 1."""
    sort = orjson.OPT_SORT_KEYS
    return bool(a == b) and orjson.dumps(a, option=sort) == orjson.dumps(b, option=sort)


def with_metadata(obj: Object, **fields: Any) -> Object:
    """A shallow copy of the object with some metadata fields set (None removes one); the rest is shared."""
    meta = dict(obj.get("metadata") or {})
    for key, value in fields.items():
        if value is None:
            meta.pop(key, None)
        else:
            meta[key] = value
    return {**obj, "metadata": meta}


def controller_of(obj: Object) -> Object | None:
    """The owner reference marked as controller."""
    for ref in obj.get("metadata", {}).get("ownerReferences") or ():
        if ref.get("controller"):
            return ref
    return None
