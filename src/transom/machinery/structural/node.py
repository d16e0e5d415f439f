"""The schema of one place in an object, compiled for traversal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from transom.machinery.validation.schema_extensions import EMBEDDED, PRESERVE


class StructuralSchema:
    """The schema of one place. `None` means that nothing is known about a place."""

    __slots__ = (
        "additional",
        "default",
        "default_size",
        "defaulted",
        "embedded",
        "embeds",
        "has_defaults",
        "items",
        "nullable",
        "open",
        "preserve",
        "properties",
    )

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.properties: dict[str, StructuralSchema] = {
            k: _node(v) for k, v in (spec.get("properties") or {}).items()
        }
        extra = spec.get("additionalProperties")
        self.open = extra is not None  # keeps keys beyond `properties`
        self.additional = _node(extra) if isinstance(extra, Mapping) else None
        items = spec.get("items")
        self.items = _node(items) if isinstance(items, Mapping) else None
        self.preserve = bool(spec.get(PRESERVE))
        self.embedded = bool(spec.get(EMBEDDED))
        self.nullable = bool(spec.get("nullable"))
        self.default: Any = spec.get("default")
        # Bytes of JSON including the surrounding punctuation.
        self.default_size = 0 if self.default is None else len(orjson.dumps(self.default)) + 4
        inner = [
            n for n in (*self.properties.values(), self.additional, self.items) if n is not None
        ]
        self.defaulted = tuple((k, n) for k, n in self.properties.items() if n.default is not None)
        self.has_defaults: bool = any(n.default is not None or n.has_defaults for n in inner)
        self.embeds: bool = self.embedded or any(n.embeds for n in inner)

    @property
    def drops_null(self) -> bool:
        """Whether a null here is dropped: it is neither a value nor a request for the default."""
        return not self.nullable and self.default is None


# Most places of most schemas only have a type, which is irrelevant here: they share one node.
_SCHEMA_KEYWORDS = frozenset(
    ("properties", "additionalProperties", "items", PRESERVE, EMBEDDED, "nullable", "default")
)
_PLAIN = StructuralSchema({})


def _node(spec: Mapping[str, Any]) -> StructuralSchema:
    return _PLAIN if _SCHEMA_KEYWORDS.isdisjoint(spec) else StructuralSchema(spec)
