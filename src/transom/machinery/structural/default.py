"""Schema defaults: for missing fields, and for nulls where null is not allowed."""

from __future__ import annotations

from typing import Any

from transom.machinery.objects import copy_object
from transom.machinery.structural.node import StructuralSchema

# Bytes of JSON. No object that gets more defaults than this can be stored.
_MOST_DEFAULTS = 2 * 1024 * 1024


class DefaultsTooLarge(Exception):
    """A short object can request many large defaults."""


class _Budget:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = _MOST_DEFAULTS

    def copy_default(self, node: StructuralSchema, key: str = "") -> Any:
        self.left -= node.default_size + len(key)
        if self.left < 0:
            raise DefaultsTooLarge
        return copy_object(node.default)


def apply_structural_defaults(value: Any, node: StructuralSchema | None) -> Any:
    """The value with defaults; the same value if nothing was missing. Raises DefaultsTooLarge."""
    if node is None or not node.has_defaults:
        return value
    return _default(value, node, _Budget())


def _default(value: Any, node: StructuralSchema, budget: _Budget) -> Any:
    if not node.has_defaults:
        return value
    if value.__class__ is dict:
        return _map(value, node, budget)
    if value.__class__ is list and node.items is not None:
        return _list(value, node.items, budget)
    return value


def _map(value: dict[str, Any], node: StructuralSchema, budget: _Budget) -> dict[str, Any]:
    out = None
    for key, child in node.defaulted:
        if key not in value or (value[key] is None and not child.nullable):
            out = dict(value) if out is None else out
            out[key] = budget.copy_default(child, key)
    current = value if out is None else out
    for key, item in list(current.items()):
        found = node.properties.get(key)
        if found is not None:
            new = _default(item, found, budget)
        elif node.additional is not None:
            new = _filled(item, node.additional, budget)
        else:
            continue
        if new is not item:
            out = dict(value) if out is None else out
            out[key] = new
    return value if out is None else out


def _list(value: list[Any], node: StructuralSchema, budget: _Budget) -> list[Any]:
    out = None
    for i, item in enumerate(value):
        new = _filled(item, node, budget)
        if new is not item:
            out = list(value) if out is None else out
            out[i] = new
    return value if out is None else out


def _filled(item: Any, node: StructuralSchema, budget: _Budget) -> Any:
    if item is None and not node.nullable and node.default is not None:
        item = budget.copy_default(node)
    return _default(item, node, budget)
