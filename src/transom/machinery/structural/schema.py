"""A schema compiled for walking along objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.machinery.structural.prune import prune
from transom.machinery.validation.structural import EMBEDDED, PRESERVE, is_structural_possible


class Node:
    """The schema at one place. `None` stands for a place about which nothing is known."""

    __slots__ = (
        "additional", "default", "defaulted", "embedded", "embeds", "has_defaults", "items", "nullable", "open",
        "preserve", "properties",
    )

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.properties: dict[str, Node] = {k: Node(v) for k, v in (spec.get("properties") or {}).items()}
        extra = spec.get("additionalProperties")
        self.open = extra is not None  # keys beyond `properties` may stay
        self.additional = Node(extra) if isinstance(extra, Mapping) else None
        items = spec.get("items")
        self.items = Node(items) if isinstance(items, Mapping) else None
        self.preserve = bool(spec.get(PRESERVE))
        self.embedded = bool(spec.get(EMBEDDED))
        self.nullable = bool(spec.get("nullable"))
        self.default: Any = spec.get("default")
        inner = [n for n in (*self.properties.values(), self.additional, self.items) if n is not None]
        self.defaulted = tuple((k, n) for k, n in self.properties.items() if n.default is not None)
        self.has_defaults: bool = any(n.default is not None or n.has_defaults for n in inner)
        self.embeds: bool = self.embedded or any(n.embeds for n in inner)

    @property
    def drops_null(self) -> bool:
        """A null here means nothing, neither as a value nor as a wish for the default."""
        return not self.nullable and self.default is None


def compile_schema(spec: Mapping[str, Any] | None) -> Node | None:
    """The schema of an object; None when there is none, or one that no structural schema can be made from."""
    if spec is None or not is_structural_possible(spec):
        return None
    node = Node(spec)
    if node.has_defaults:
        _prune_defaults(node)
    return node


def _prune_defaults(node: Node) -> None:
    """Definitions of old could have defaults with unknown fields; nobody shall see those."""
    for inner in (*node.properties.values(), node.additional, node.items):
        if inner is None:
            continue
        if isinstance(inner.default, dict | list):
            inner.default = prune(inner.default, inner)
        _prune_defaults(inner)
