"""JSON merge patch (RFC 7386) as the API server applies it.

Differences from the RFC: the objects in a list that does not replace an object lose their nulls, at
any depth; before 1.22 such a list loses its own nulls too.
"""

from __future__ import annotations

from typing import Any


def merge_patch(
    doc: dict[str, Any], patch: dict[str, Any], *, list_nulls: bool = True
) -> dict[str, Any]:
    """The document with `patch` merged in. Fields that the patch does not contain are shared with
    `doc`. `list_nulls`: lists keep their nulls.
    """
    out = dict(doc)
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
            continue
        current = out.get(key)
        if not isinstance(current, dict):
            out[key] = without_nulls(value, list_nulls)
        elif isinstance(value, dict):
            out[key] = merge_patch(current, value, list_nulls=list_nulls)
        else:
            out[key] = value
    return out


def without_nulls(value: Any, list_nulls: bool) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls(v, list_nulls) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v, list_nulls) for v in value if list_nulls or v is not None]
    return value
