"""Objects of every built-in kind with one list or map that grows: generated from the types.

For each list and map that a kind can have, `growing_objects` makes objects in which it has N items.
Values are plausible where that is cheap (names, keys, types), so that validation looks at all items.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from transom.apiserver.core.typed import BuiltinType
from transom.machinery.kinds import Kind
from transom.machinery.schema import SchemaTable, SchemaType, SchemaValue

_DEEPEST = 7  # levels of structs below the object
_NEVER = ("managedFields",)
_NOW = "2024-01-01T00:00:00Z"


class Growth(NamedTuple):
    """A list or map of a kind: how an object gets `n` items in it."""

    kind: Kind
    ops: BuiltinType
    path: tuple[str, ...]
    value: SchemaValue

    def __str__(self) -> str:
        return f"{self.kind.kind} {'.'.join(self.path)}"

    def make(self, n: int) -> dict[str, Any]:
        obj: dict[str, Any] = {
            "apiVersion": self.kind.gvk().api_version,
            "kind": self.kind.kind,
            "metadata": {
                "name": "a",
                "uid": "u",
                "resourceVersion": "1",
                "creationTimestamp": _NOW,
                **({"namespace": "default"} if self.kind.namespaced else {}),
            },
        }
        at: Any = obj
        for name in self.path[:-1]:
            following = at.get(name)
            if following is None:
                following = at[name] = {}
            at = following
            if isinstance(at, list):
                at = at[0]
        at[self.path[-1]] = _many(self.value, n)
        return self.ops.normalise(_without_markers(obj))


def growing_objects(kind: Kind, table: SchemaTable, seen: set[tuple[str, str]]) -> Iterator[Growth]:
    """Lists and maps of a kind. A field of a struct that several kinds use comes once: `seen`."""
    of = table.lookup(kind.gvk())
    if of is not None:
        ops = BuiltinType(kind, kind.gvk(), table)
        yield from _fields(kind, ops, of, (), seen)


def _fields(
    kind: Kind, ops: BuiltinType, of: SchemaType, path: tuple[str, ...], seen: set[tuple[str, str]]
) -> Iterator[Growth]:
    for field in of.properties.values():
        if field.name in _NEVER or (not path and field.name in ("kind", "apiVersion")):
            continue
        place = (kind.kind if not path else of.id, field.name)
        if place in seen:
            continue
        seen.add(place)
        value, below = field.value, (*path, field.name)
        if value.kind in ("list", "map"):
            yield Growth(kind, ops, below, value)
            if value.kind == "list" and value.item is not None and value.item.kind == "struct":
                inner = value.item
                if len(path) < _DEEPEST:
                    yield from _fields(kind, ops, inner.type, (*path, f"{field.name}[]"), seen)
        elif value.kind == "struct" and len(path) < _DEEPEST:
            yield from _fields(kind, ops, value.type, below, seen)


def _many(of: SchemaValue, n: int) -> Any:
    assert of.item is not None
    if of.kind == "map":
        return {f"k{i}": _one(of.item, i, 1) for i in range(n)}
    return [_one(of.item, i, 1) for i in range(n)]


def _one(of: SchemaValue, i: int, depth: int) -> Any:
    if of.kind == "struct":
        if depth > 2:
            return {}
        return {
            field.name: _one(field.value, i, depth + 1)
            for field in of.type.properties.values()
            if field.value.kind not in ("map", "schema-or-array", "schema-or-bool", "any", "json")
            and field.name not in _NEVER
            and (field.value.kind not in ("list", "struct") or depth < 2)
        }
    if of.kind == "list":
        return [_one(of.item, i, depth + 1)] if of.item is not None else []
    return {
        "string": f"v{i}",
        "bool": True,
        "int32": i + 1,
        "int64": i + 1,
        "float": 1.0,
        "bytes": "dg==",
        "time": _NOW,
        "microtime": "2024-01-01T00:00:00.000000Z",
        "duration": "1s",
        "quantity": str(i + 1),
        "int-or-string": i + 1,
    }.get(of.kind, {})


def _without_markers(obj: Any) -> Any:
    """`a[]` in a path is a list with one item."""
    if not isinstance(obj, dict):
        return obj
    return {
        key.removesuffix("[]"): [_without_markers(value)]
        if key.endswith("[]")
        else _without_markers(value)
        for key, value in obj.items()
    }
