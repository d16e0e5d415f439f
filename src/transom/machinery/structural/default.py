"""Defaults of a schema: for fields that are not there, and for nulls where null is no value."""

from __future__ import annotations

from typing import Any

from transom.machinery.objects import copy_object
from transom.machinery.structural.schema import Node


def default(value: Any, node: Node | None) -> Any:
    """The value with defaults; the very same one when nothing was open."""
    if node is None or not node.has_defaults:
        return value
    if value.__class__ is dict:
        return _map(value, node)
    if value.__class__ is list and node.items is not None:
        return _list(value, node.items)
    return value


def _map(value: dict[str, Any], node: Node) -> dict[str, Any]:
    out = None
    for key, child in node.defaulted:
        if key not in value or (value[key] is None and not child.nullable):
            out = dict(value) if out is None else out
            out[key] = copy_object(child.default)
    current = value if out is None else out
    for key, item in list(current.items()):
        found = node.properties.get(key)
        if found is not None:
            new = default(item, found)
        elif node.additional is not None:
            new = _filled(item, node.additional)
        else:
            continue
        if new is not item:
            out = dict(value) if out is None else out
            out[key] = new
    return value if out is None else out


def _list(value: list[Any], node: Node) -> list[Any]:
    out = None
    for i, item in enumerate(value):
        new = _filled(item, node)
        if new is not item:
            out = list(value) if out is None else out
            out[i] = new
    return value if out is None else out


def _filled(item: Any, node: Node) -> Any:
    if item is None and not node.nullable and node.default is not None:
        item = copy_object(node.default)
    return default(item, node)
