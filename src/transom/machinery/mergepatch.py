"""JSON merge patch (RFC 7386) as the API server applies it.

Difference from the RFC: a list that does not replace an object loses its nulls, at any depth.
"""

from __future__ import annotations

from typing import Any


def merge_patch(doc: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The document with `patch` merged in. Fields that the patch does not contain are shared with
    `doc`.
    """
    out = dict(doc)
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
            continue
        current = out.get(key)
        if not isinstance(current, dict):
            out[key] = without_nulls(value)
        elif isinstance(value, dict):
            out[key] = merge_patch(current, value)
        else:
            out[key] = value
    return out


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value if v is not None]
    return value
