"""Schemas as CEL types, with the sizes that their values can have
(k8s.io/apiserver/pkg/cel/common/schemas.go).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from transom.kit.cel.cost import CostRange
from transom.kit.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    CelType,
    list_type,
    map_type,
    struct_type,
)
from transom.machinery.cel.limits import MAX_REQUEST_BYTES

Schema = Mapping[str, Any]
EMBEDDED, INT_OR_STRING = "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"
_RESERVED = frozenset(
    (
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    )
)
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_escaped = re.compile(r"__|[-./]")
_writable = re.compile(r"[a-zA-Z_./-][a-zA-Z0-9_./-]*").fullmatch
_META = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}},
}
_TEXT = {"type": "string"}
_LONGEST = MAX_REQUEST_BYTES - 2
# The format of a string: its type, the smallest JSON text in bytes, the longest.
_FORMATS = {
    "byte": (BYTES, 2, _LONGEST),
    "duration": (DURATION, 3, 32),
    "date": (TIMESTAMP, 12, 12),
    "date-time": (TIMESTAMP, 21, 32),
}


def escape_identifier(name: str) -> str | None:
    """A property name as a CEL identifier; None if it has none."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _writable(name):
        return None
    return _escaped.sub(lambda found: _ESCAPES[found[0]], name)


def with_object_fields(schema: Schema) -> Schema:
    """The schema of a whole object: its type and name always exist."""
    properties = {
        **(schema.get("properties") or {}),
        "apiVersion": _TEXT,
        "kind": _TEXT,
        "metadata": _META,
    }
    return {**schema, "properties": properties}


class DeclType:
    """The CEL type of a schema, the maximum number of elements or characters of a value, and the
    size of its smallest JSON.
    """

    __slots__ = (
        "_object_fields",
        "_signature",
        "element",
        "fields",
        "key",
        "max_elements",
        "min_size",
        "type",
    )

    def __init__(
        self,
        kind: CelType,
        max_elements: int = 0,
        min_size: int = 1,
        *,
        element: DeclType | None = None,
        key: DeclType | None = None,
        fields: Mapping[str, DeclType] | None = None,
    ) -> None:
        self.type, self.max_elements, self.min_size = kind, max_elements, min_size
        self.element, self.key, self.fields = element, key, fields or {}
        self._object_fields: dict[str, dict[str, CelType]] | None = None
        self._signature: str | None = None

    def object_fields(self) -> dict[str, dict[str, CelType]]:
        """The fields of all nested object types, by type name."""
        if self._object_fields is not None:
            return self._object_fields
        out: dict[str, dict[str, CelType]] = {}
        self._object_fields = out
        waiting = [self]
        while waiting:
            at = waiting.pop()
            if at.type.kind == "struct":
                out[at.type.name] = {name: field.type for name, field in at.fields.items()}
            waiting += at.fields.values()
            if at.element is not None:
                waiting.append(at.element)
        return out

    def signature(self) -> str:
        """Equal for all types that are the same to expressions."""
        if self._signature is None:
            self._signature = f"{self.type} {self.object_fields()}"
        return self._signature

    def size_at(self, path: Sequence[str], _kind: CelType) -> CostRange | None:
        """The size of the value at a path; its first part is the name of a variable."""
        at: DeclType | None = self
        for name in path[1:]:
            assert at is not None
            at = (
                at.element
                if name in ("@items", "@values")
                else at.key
                if name == "@keys"
                else at.fields.get(name)
            )
            if at is None:
                return None
        assert at is not None
        return CostRange(0, at.max_elements)


_STRING_KEY = DeclType(STRING, 0, 2)


def declare_schema(schema: Schema, *, root: bool, name: str = "selfType") -> DeclType | None:
    """The type of a schema's values; None for a schema without a type, which rules cannot see."""
    longest = schema.get("maxLength")
    if schema.get(INT_OR_STRING):
        return DeclType(DYN, _LONGEST if longest is None else max(0, longest) * 4, 1)
    if root:
        schema = with_object_fields(schema)
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        if not isinstance(items, Mapping):
            return None
        element = declare_schema(items, root=bool(items.get(EMBEDDED)), name=f"{name}.@idx")
        if element is None:
            return None
        most = schema.get("maxItems")
        most = _LONGEST // (element.min_size + 1) if most is None else max(0, most)
        return DeclType(list_type(element.type), most, 2, element=element)
    if kind == "object":
        return _object(schema, name)
    if kind == "string":
        return _string(schema)
    simple = {"boolean": (BOOL, 4), "number": (DOUBLE, 1), "integer": (INT, 1)}.get(kind or "")
    return None if simple is None else DeclType(simple[0], 0, simple[1])


def _object(schema: Schema, name: str) -> DeclType | None:
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        element = declare_schema(extra, root=bool(extra.get(EMBEDDED)), name=f"{name}.@elem")
        if element is None:
            return None
        most = schema.get("maxProperties")
        most = _LONGEST // (element.min_size + 6) if most is None else max(0, most)
        return DeclType(map_type(STRING, element.type), most, 2, element=element, key=_STRING_KEY)
    needed = frozenset(schema.get("required") or ())
    fields: dict[str, DeclType] = {}
    smallest = 2
    for key, inner in (schema.get("properties") or {}).items():
        escaped = escape_identifier(key)
        field = declare_schema(
            inner, root=bool(inner.get(EMBEDDED)), name=f"{name}.{escaped or key}"
        )
        if field is None:
            continue
        if escaped is not None:
            fields[escaped] = field
        if key in needed and inner.get("default") is None:
            smallest += len(key.encode()) + field.min_size + 4
    return DeclType(struct_type(name), 0, smallest, fields=fields)


def _string(schema: Schema) -> DeclType:
    longest = schema.get("maxLength")
    known = _FORMATS.get(schema.get("format", ""))
    if known is not None:
        kind, smallest, most = known
        if kind is BYTES and longest is not None:
            most = max(0, longest)
        return DeclType(kind, most, smallest)
    if longest is not None:
        return DeclType(STRING, max(0, longest) * 4, 2)
    enum = schema.get("enum")
    if enum:
        return DeclType(
            STRING, max((len(v.encode()) for v in enum if isinstance(v, str)), default=0), 2
        )
    return DeclType(STRING, _LONGEST, 2)
