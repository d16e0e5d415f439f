"""Types for merging: which values are atomic, which maps and lists are merged, and by which keys.

A `TypeNode` is compiled once, from a built-in type (`type_node_of`) or from the schema of a
custom resource (`type_from_openapi`); `DEDUCED` serves objects without a schema. Strategic merge
and server-side apply walk objects along these nodes. This module defines types and the names of
list elements, but does not merge.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from transom.kit.lazy import lazy_import
from transom.machinery import gojson, schema
from transom.machinery.normalise import normalise_value
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.release import Release

if TYPE_CHECKING:
    from transom.machinery.releases import openapi_markers
else:
    openapi_markers = lazy_import("transom.machinery.releases.openapi_markers")

ATOMIC, SET, MAP, GRANULAR = "atomic", "set", "map", "granular"

# Schema kind -> how apply checks a scalar of it. Other kinds are not checked.
_SCALARS = {
    "string": "string",
    "bytes": "string",
    "duration": "string",
    "quantity": "string",
    "bool": "boolean",
    "int32": "numeric",
    "int64": "numeric",
    "float": "numeric",
}
_ANYTHING = frozenset(
    {"raw", "fields", "any", "json", "schema-or-array", "schema-or-bool", "schema-or-strings"}
)
_KEY_DEFAULTS = {"string": "", "int32": 0, "int64": 0, "bool": False}
# Keys of merged lists that have a default other than the zero value of their type.
_NAMED_DEFAULTS = {
    ("core/v1.ContainerPort", "protocol"): "TCP",
    ("core/v1.ServicePort", "protocol"): "TCP",
}

_MEMO_LIMIT = 4096


class Unmanageable(Exception):
    """A list whose elements have no distinct names: repeated, or without a key."""


class TypeNode:
    """The type of a place: a scalar, a list, a map, or (without a schema) any of them."""

    __slots__ = (
        "additional",
        "default",
        "element",
        "fields",
        "fkey",
        "has_nested_lists",
        "keys",
        "leaf",
        "list",
        "map",
        "memo",
        "merge_key",
        "name",
        "partial_keys",
        "scalar",
        "siblings",
        "strategy",
    )

    def __init__(self, *, scalar: str = "", list: str = "", map: str = "", name: str = "") -> None:
        self.scalar = scalar  # "", string, numeric, boolean or untyped
        self.list = list  # "", atomic, set or map
        self.map = map  # "", atomic or granular
        self.name = name  # the Go type, for messages
        # of a list of maps: names (sorted) and defaults, None for none
        self.keys: tuple[tuple[str, Any], ...] = ()
        self.partial_keys = False  # an element may omit keys, but not all
        self.element: TypeNode | None = None
        self.fields: dict[str, TypeNode] | None = None  # declared fields of a struct
        self.additional: TypeNode | None = None  # the type of undeclared entries
        self.fkey = ""  # the name of this field in a field set: "f:spec"
        self.default: Any = None
        self.strategy = ""
        self.merge_key = ""
        self.leaf = False  # always owned as a whole; nothing below it is visited
        self.has_nested_lists = False  # has nested lists whose elements need names
        self.memo: dict[Any, str] = {}
        self.siblings: Mapping[str, TypeNode] = {}  # of a custom kind: its types by apiVersion

    def child(self, key: str) -> TypeNode | None:
        """The type of a map's entry; None if it is not declared."""
        if self.fields is not None:
            found = self.fields.get(key)
            if found is not None:
                return found
        return self.additional

    @property
    def is_deduced_map(self) -> bool:
        return self.fields is None and self.additional is DEDUCED


def element_name(node: TypeNode, item: Any) -> str:
    """The name of an element of a list in a field set: `k:{"name":"c"}`, or `v:"x"` in a set of
    scalars.
    """
    if node.list == SET:
        return _set_element(node, item)
    if item.__class__ is not dict:
        what = "a null element" if item is None else "non-map elements"
        raise Unmanageable(f"associative list with keys may not have {what}")
    keys = node.keys
    if len(keys) == 1:
        name, default = keys[0]
        value = (
            item.get(name, default)
            if default is not None
            else item[name]
            if name in item
            else _missing(node, name)
        )
        if value.__class__ is str:
            found = node.memo.get(value)
            if found is None:
                found = _remember(node, value, f"k:{_json({name: value})}")
            return found
        return f"k:{_json({name: value})}"
    if node.partial_keys:
        values = {n: item.get(n, d) for n, d in keys if n in item or d is not None}
        if not values:
            _missing(node, keys[0][0])
    else:
        values = {
            n: item[n] if n in item else d if d is not None else _missing(node, n) for n, d in keys
        }
    memo_key = (*values.items(), *(v.__class__ for v in values.values()))
    try:
        found = node.memo.get(memo_key)
    except TypeError:  # a key that is itself a map or list
        return f"k:{_json(values)}"
    return _remember(node, memo_key, f"k:{_json(values)}") if found is None else found


def _set_element(node: TypeNode, item: Any) -> str:
    if item.__class__ is str:
        found = node.memo.get(item)
        return _remember(node, item, f"v:{_json(item)}") if found is None else found
    if isinstance(item, dict):
        raise Unmanageable("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise Unmanageable("not supported: associative list with lists as elements")
    if item is None:
        raise Unmanageable("associative list without keys has an element that's an explicit null")
    return f"v:{_json(item)}"


def _missing(node: TypeNode, name: str) -> Any:
    if node.partial_keys:
        names = " ".join(f'"{key}"' for key, _ in node.keys)
        raise Unmanageable(
            f"associative list with keys has an element that omits all key fields [{names}] (and "
            "doesn't have default values for any key fields)"
        )
    raise Unmanageable(
        f'associative list with keys has an element that omits key field "{name}" (and '
        "doesn't have default value)"
    )


def _json(value: Any) -> str:
    return gojson.marshal(value).decode()


def _remember(node: TypeNode, key: Any, text: str) -> str:
    if len(node.memo) >= _MEMO_LIMIT:
        node.memo.clear()
    node.memo[key] = text
    return text


def _anything(map_kind: str) -> TypeNode:
    return TypeNode(scalar="untyped", list=ATOMIC, map=map_kind)


UNTYPED = _anything(ATOMIC)
UNTYPED.additional = UNTYPED.element = UNTYPED
UNTYPED.leaf = True
DEDUCED = _anything(GRANULAR)
DEDUCED.additional = DEDUCED
DEDUCED.element = UNTYPED


# Built-in types


def type_node_of(kind: schema.SchemaType | TypeNode) -> TypeNode:
    if isinstance(kind, TypeNode):
        return kind
    node: TypeNode | None = kind.table.nodes.get(kind.id)
    if node is None:
        node = kind.table.nodes[kind.id] = _struct(kind)
        _finish(node, has_behaviour(kind.table.release, "PartialListKeys"))
    return node


def _struct(of: schema.SchemaType) -> TypeNode:
    node: TypeNode | None = of.table.structs.get(of.id)
    if node is None:
        node = of.table.structs[of.id] = TypeNode(map=GRANULAR, name=of.id.rpartition(".")[2])
        node.fields = {}
        for f in of.properties.values():
            child = copy.copy(_value(f.value, of.table.release))
            if f.kind == "list":
                child.list, child.memo = f.list_type, {}
                child.keys = tuple((k, _key_default(f.struct, k)) for k in sorted(f.list_map_keys))
            if f.atomic:
                child.map = ATOMIC
            child.fkey, child.strategy, child.merge_key = (
                f"f:{f.name}",
                f.patch_strategy,
                f.patch_merge_key,
            )
            node.fields[f.name] = child
    return node


def _value(value: schema.SchemaValue, release: Release) -> TypeNode:
    if value.kind == "struct":
        return _struct(value.type)
    if value.kind in ("list", "map"):
        node = TypeNode(list=ATOMIC) if value.kind == "list" else TypeNode(map=GRANULAR)
        assert value.item is not None
        item = _value(value.item, release)
        if has_behaviour(release, "AtomicStructs") and openapi_markers.is_atomic_struct(
            value.item.ref
        ):
            item = copy.copy(item)
            item.map = ATOMIC
        if value.kind == "list":
            node.element = item
        else:
            node.additional = item
        return node
    if value.kind in _ANYTHING:
        return UNTYPED
    return TypeNode(scalar=_SCALARS.get(value.kind, "untyped"))


def _key_default(element: schema.SchemaType | None, key: str) -> Any:
    """The default of a key that an element omits: the zero value if Go always writes the field."""
    if element is None:
        return None
    f = element.properties[key]
    named = _NAMED_DEFAULTS.get((element.id, key))
    if named is not None:
        return named
    return _KEY_DEFAULTS.get(f.kind) if f.always and not f.pointer else None


def zero_value(of: schema.SchemaType) -> dict[str, Any]:
    """The object that Go writes for a new value of a built-in type: the base for comparing a first
    write. Read-only.
    """
    known = of.table.zero_values
    if of.id not in known:
        known[of.id] = normalise_value(of, {})
    return known[of.id]


# Custom resources


def type_from_openapi(
    spec: Mapping[str, Any] | None,
    preserve_unknown_fields: bool = False,
    *,
    partial_keys: bool = False,
) -> TypeNode:
    """The node of a custom kind from the `openAPIV3Schema` of its version. Without a schema, types
    are deduced. `partial_keys`: elements of lists may omit keys, but not all.
    """
    if spec is None:
        return DEDUCED
    node = _map_from_schema(
        {**spec, "x-kubernetes-embedded-resource": True}, preserve_unknown_fields
    )
    _finish(node, partial_keys)
    return node


class CustomTypes(Mapping[str, TypeNode]):
    """The nodes of all versions of a custom kind, by apiVersion; they refer to each other. Each is
    built on first use: there may be thousands of versions.
    """

    def __init__(
        self,
        specs: Mapping[str, Mapping[str, Any] | None],
        preserve_unknown_fields: bool = False,
        *,
        partial_keys: bool = False,
    ) -> None:
        self._specs = specs
        self._preserve = preserve_unknown_fields
        self._partial_keys = partial_keys
        self._nodes: dict[str, TypeNode] = {}

    def __getitem__(self, api_version: str) -> TypeNode:
        node = self._nodes.get(api_version)
        if node is None:
            node = type_from_openapi(
                self._specs[api_version], self._preserve, partial_keys=self._partial_keys
            )
            if node is not DEDUCED:
                node.siblings = self
            self._nodes[api_version] = node
        return node

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)


def _named(node: TypeNode, name: str, default: Any) -> TypeNode:
    node = copy.copy(node)
    node.fkey, node.default = f"f:{name}", default
    return node


def _from_schema(spec: Mapping[str, Any], unknown: bool) -> TypeNode:
    kind = spec.get("type", "")
    properties = spec.get("properties")
    if kind == "array":
        return _list_from_schema(spec, unknown)
    if kind == "object" or (not kind and properties):
        return _map_from_schema(spec, unknown)
    if kind == "string":
        return TypeNode(scalar="string")
    if kind in ("integer", "number"):
        return TypeNode(scalar="numeric")
    if kind == "boolean":
        return TypeNode(scalar="boolean")
    return DEDUCED if unknown else UNTYPED


def _list_from_schema(spec: Mapping[str, Any], unknown: bool) -> TypeNode:
    node = TypeNode(list=spec.get("x-kubernetes-list-type") or ATOMIC)
    items = spec.get("items")
    node.element = element = (
        _from_schema(items, unknown) if items else (DEDUCED if unknown else UNTYPED)
    )
    if node.list == MAP:
        declared = element.fields or {}
        node.keys = tuple(
            (k, declared[k].default if k in declared else None)
            for k in sorted(spec.get("x-kubernetes-list-map-keys") or ())
        )
    return node


def _map_from_schema(spec: Mapping[str, Any], unknown: bool) -> TypeNode:
    node = TypeNode(map=spec.get("x-kubernetes-map-type") or GRANULAR)
    properties = spec.get("properties") or {}
    embedded = bool(spec.get("x-kubernetes-embedded-resource"))
    additional = spec.get("additionalProperties")
    if properties or embedded:
        unknown = unknown or bool(spec.get("x-kubernetes-preserve-unknown-fields"))
        node.fields = {
            k: _named(_from_schema(v, unknown), k, v.get("default")) for k, v in properties.items()
        }
        node.additional = DEDUCED if unknown else None
        if embedded:
            _embed(node.fields)
    elif isinstance(additional, Mapping):
        node.additional = _from_schema(additional, unknown)
    else:
        node.additional = DEDUCED if unknown else UNTYPED
    return node


def _embed(fields: dict[str, TypeNode]) -> None:
    """The fields that every object has, regardless of its schema."""
    for name in ("apiVersion", "kind"):
        fields[name] = _named(TypeNode(scalar="string"), name, None)
    fields["metadata"] = _named(
        _struct(schema.get_schema_type(schema.OBJECT_META)), "metadata", None
    )


def _finish(root: TypeNode, partial_keys: bool) -> None:
    """Marks atomic nodes and those that contain lists with named elements, from the leaves up."""
    order: list[TypeNode] = []
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen or node in (UNTYPED, DEDUCED):
            continue
        seen.add(id(node))
        order.append(node)
        stack.extend(_children(node))
    changed = True
    while changed:
        changed = False
        for node in reversed(order):
            if not node.has_nested_lists and (
                node.list in (SET, MAP) or any(c.has_nested_lists for c in _children(node))
            ):
                node.has_nested_lists = changed = True
    for node in order:
        whole = not (node.map == GRANULAR or node.list in (SET, MAP))
        node.leaf = whole and not node.has_nested_lists
        node.partial_keys = partial_keys


def _children(node: TypeNode) -> list[TypeNode]:
    out = list(node.fields.values()) if node.fields else []
    return out + [c for c in (node.element, node.additional) if c is not None]
