"""Compiles a schema for traversing objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.machinery.structural.node import StructuralSchema
from transom.machinery.structural.prune import prune_value
from transom.machinery.validation.structural import is_structural_possible


def compile_schema(spec: Mapping[str, Any] | None) -> StructuralSchema | None:
    """The schema of an object; None if there is none, or if it cannot be structural."""
    if spec is None or not is_structural_possible(spec):
        return None
    node = StructuralSchema(spec)
    if node.has_defaults:
        _prune_defaults(node)
    return node


def _prune_defaults(node: StructuralSchema) -> None:
    """Removes unknown fields from defaults, which old definitions could have."""
    for inner in (*node.properties.values(), node.additional, node.items):
        if inner is None:
            continue
        if isinstance(inner.default, dict | list):
            inner.default = prune_value(inner.default, inner)
        _prune_defaults(inner)
