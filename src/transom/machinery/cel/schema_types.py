"""Types of objects for CEL: built-in kinds by the tables of a release, custom kinds by their schema.
For type checking only; values are not converted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from transom.kit.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    CelType,
    list_type,
    map_type,
    struct_type,
)
from transom.machinery.schema import OBJECT_META, SchemaTable, SchemaType, SchemaValue
from transom.machinery.structural.cel.declarations import declare_schema, escape_identifier

_SCALARS: Final[Mapping[str, CelType]] = {
    "string": STRING,
    "quantity": STRING,
    "duration": STRING,
    "bool": BOOL,
    "int32": INT,
    "int64": INT,
    "float": DOUBLE,
    "bytes": BYTES,
    "time": TIMESTAMP,
    "microtime": TIMESTAMP,
    "int-or-string": DYN,
}
_EMPTY: Final = struct_type("object")


class ObjectTypes:
    """The types of some kinds; `fields` has the fields of all nested object types."""

    def __init__(self, table: SchemaTable) -> None:
        self._table = table
        self.fields: dict[str, dict[str, CelType]] = {_EMPTY.name: {}}

    def of_builtin(self, of: SchemaType) -> CelType:
        if of.id not in self.fields:
            fields = self.fields[of.id] = {}
            for name, property in of.properties.items():
                fields[escape_identifier(name) or name] = self._value(property.value)
        return struct_type(of.id)

    def _value(self, value: SchemaValue) -> CelType:
        if value.kind == "struct":
            return self.of_builtin(value.type)
        if value.item is not None:
            item = self._value(value.item)
            return list_type(item) if value.kind == "list" else map_type(STRING, item)
        if value.kind in ("raw", "fields"):
            return _EMPTY
        return _SCALARS.get(value.kind, DYN)

    def of_custom(self, kind: str, schema: Mapping[str, Any]) -> CelType:
        """The type of a custom kind by its `openAPIV3Schema`."""
        declared = declare_schema(schema, root=True, name=kind)
        if declared is None:
            return DYN
        for name, fields in declared.object_fields().items():
            self.fields[name] = dict(fields)
        if declared.type.name in self.fields:
            meta = self.of_builtin(self._table.get(OBJECT_META))
            self.fields[declared.type.name]["metadata"] = meta
        return declared.type
