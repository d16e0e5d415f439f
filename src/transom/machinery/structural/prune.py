"""Pruning: drops fields that the schema does not specify, and nulls that it does not allow.

Copies a value only if something is dropped; otherwise returns the same value.
"""

from __future__ import annotations

from typing import Any

from transom.machinery.structural.node import StructuralSchema

META_FIELDS = frozenset(("apiVersion", "kind", "metadata"))


def prune_object(
    obj: dict[str, Any], node: StructuralSchema | None, unknown: list[str] | None = None
) -> dict[str, Any]:
    """Prunes a whole object: its type and metadata stay. Adds the paths of dropped fields to
    `unknown`.
    """
    out = None
    for key, value in obj.items():
        if key in META_FIELDS:
            continue
        kept, new = _entry(key, value, node, unknown, "")
        if not kept:
            out = dict(obj) if out is None else out
            del out[key]
        elif new is not value:
            out = dict(obj) if out is None else out
            out[key] = new
    return obj if out is None else out


def prune_value(
    value: Any,
    node: StructuralSchema | None,
    unknown: list[str] | None = None,
    path: str = "",
    *,
    keep: bool = False,
) -> Any:
    """`keep`: unknown fields stay here regardless of the schema, because the enclosing list
    preserves them.
    """
    if value.__class__ is dict:
        return _map(value, node, unknown, path, keep)
    if value.__class__ is list:
        return _list(value, node, unknown, path, keep)
    return value


def _map(
    value: dict[str, Any],
    node: StructuralSchema | None,
    unknown: list[str] | None,
    path: str,
    keep: bool,
) -> dict[str, Any]:
    if node is None and keep:
        return value
    embedded = node is not None and node.embedded
    out = None
    for key, item in value.items():
        if embedded and key in META_FIELDS:
            continue
        kept, new = _entry(key, item, node, unknown, path, keep)
        if kept and new is item:
            continue
        out = dict(value) if out is None else out
        if kept:
            out[key] = new
        else:
            del out[key]
    return value if out is None else out


def _entry(
    key: str,
    item: Any,
    node: StructuralSchema | None,
    unknown: list[str] | None,
    path: str,
    keep: bool = False,
) -> tuple[bool, Any]:
    """Whether an entry of a map stays, and its new value."""
    if node is None:
        child, known = None, False
    else:
        child = node.properties.get(key)
        known = child is not None or node.open
        child = child or node.additional
    if not known:
        if keep or (node is not None and node.preserve):
            return True, item
        if unknown is not None:
            unknown.append(f"{path}.{key}" if path else key)
        return False, None
    if item is None:
        return child is None or not child.drops_null, None
    if item.__class__ is dict or item.__class__ is list:
        return True, prune_value(item, child, unknown, f"{path}.{key}" if path else key)
    return True, item


def _list(
    value: list[Any],
    node: StructuralSchema | None,
    unknown: list[str] | None,
    path: str,
    keep: bool,
) -> list[Any]:
    keep = keep or (node is not None and node.preserve)
    inner = None if node is None else node.items
    if inner is None and keep:
        return value
    out = None
    for i, item in enumerate(value):
        new = prune_value(item, inner, unknown, f"{path}[{i}]", keep=keep)
        if new is not item:
            out = list(value) if out is None else out
            out[i] = new
    return value if out is None else out
