"""JSON dicts to protobuf messages, byte for byte as Kubernetes writes them.

Go's structs determine which fields are present: a field that is not a pointer is written even if it
is zero, a pointer only if it is set. Objects must be normalised. Does not handle the envelope.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from transom.machinery import schema
from transom.machinery.protobuf import leaves
from transom.machinery.protobuf.messages import FieldRow, is_message_of_items, message_fields
from transom.machinery.protobuf.wire import BYTES, FIXED64, SMALL, VARINT, delimited, varint
from transom.machinery.schema import BASE, SchemaTable, SchemaValue

WriteBytes = Callable[[Any], bytes]

_TEXT, _STRUCT, _INLINE, _ONE, _MANY, _MAP, _INTEGER, _INTEGERS, _DOUBLE = range(9)


class MessageWriter:
    """A message type. `steps` are (JSON name, operation, tag, argument, bytes of an unset field)."""

    __slots__ = ("_steps", "_table", "name")

    def __init__(self, name: str, table: SchemaTable) -> None:
        self.name = name
        self._table = table
        self._steps: list[tuple[str, int, bytes, Any, bytes]] | None = None

    @property
    def steps(self) -> list[tuple[str, int, bytes, Any, bytes]]:
        made = self._steps
        if made is None:
            made = self._steps = [_step(row) for row in message_fields(self.name, self._table)]
        return made


def writer_of(name: str, table: SchemaTable = BASE) -> MessageWriter:
    made: MessageWriter | None = table.message_writers.get(name)
    if made is None:
        made = table.message_writers[name] = MessageWriter(name, table)
    return made


def write_message(of: MessageWriter, obj: dict[str, Any]) -> bytes:
    parts: list[bytes] = []
    add = parts.append
    for name, what, tag, more, unset in of.steps:
        if what == _INLINE:
            add(delimited(tag, write_message(more, obj)))
            continue
        value = obj.get(name)
        if value is None:
            if unset:
                add(unset)
        elif what == _TEXT:
            add(delimited(tag, value.encode()))
        elif what == _STRUCT:
            add(delimited(tag, write_message(more, value)))
        elif what == _INTEGER:
            add(tag + varint(value))
        elif what == _ONE:
            add(delimited(tag, more(value)))
        elif what == _MANY:
            for item in value:
                add(delimited(tag, more(item)))
        elif what == _MAP:
            for key in sorted(value):
                add(
                    delimited(
                        tag, delimited(b"\x0a", key.encode()) + delimited(b"\x12", more(value[key]))
                    )
                )
        elif what == _INTEGERS:
            for item in value:
                add(tag + varint(item))
        else:
            add(tag + struct.pack("<d", value))
    return b"".join(parts)


# --- from types to steps ----------

_INTEGER_KINDS = frozenset({"bool", "int32", "int64"})


def _step(row: FieldRow) -> tuple[str, int, bytes, Any, bytes]:
    value = row.value
    kind = value.kind
    tag = varint(
        row.number << 3
        | (VARINT if kind in _INTEGER_KINDS else FIXED64 if kind == "float" else BYTES)
    )
    if kind == "struct":
        made = writer_of(value.ref, value.table or BASE)
        if not row.name:
            return "", _INLINE, tag, made, b""
        return (
            row.name,
            _STRUCT,
            tag,
            made,
            b"" if value.pointer else delimited(tag, write_message(made, {})),
        )
    if kind in _INTEGER_KINDS:
        return row.name, _INTEGER, tag, None, b"" if value.pointer else tag + b"\0"
    if kind == "string":
        return row.name, _TEXT, tag, None, b"" if value.pointer else tag + b"\0"
    if kind == "float":
        return row.name, _DOUBLE, tag, None, b"" if value.pointer else tag + bytes(8)
    item = value.item
    if item is None or is_message_of_items(value):
        unset = b"" if value.pointer or kind not in _UNSET else delimited(tag, _UNSET[kind])
        return row.name, _ONE, tag, _function(value), unset
    if kind == "map":
        return row.name, _MAP, tag, _function(item), b""
    if item.kind in _INTEGER_KINDS:
        return row.name, _INTEGERS, varint(row.number << 3 | VARINT), None, b""
    return row.name, _MANY, tag, _function(item), b""


def _function(value: SchemaValue) -> WriteBytes:
    """The function that writes one length-delimited value."""
    if value.kind == "struct":
        of = writer_of(value.ref, value.table or BASE)
        return lambda obj: write_message(of, obj or {})
    if is_message_of_items(value):
        return leaves.write_items
    return _FUNCTIONS[value.kind]


# The bytes of unset values of these kinds that are not pointers.
_UNSET = {
    "time": b"",
    "microtime": b"",
    "quantity": leaves.write_quantity("0"),
    "int-or-string": leaves.write_int_or_string(0),
    "raw": b"",
    "json": b"",
}


# --- alternatives in JSON schemas ----------


def _schema(value: dict[str, Any]) -> bytes:
    """A schema may contain itself, so its writer is looked up on use."""
    return write_message(writer_of(schema.JSON_SCHEMA_PROPS), value)


def _schema_or_array(value: Any) -> bytes:
    if isinstance(value, list):
        return b"".join(delimited(b"\x12", _schema(item)) for item in value)
    return delimited(b"\x0a", _schema(value))


def _schema_or_strings(value: Any) -> bytes:
    if isinstance(value, list):
        return b"".join(delimited(b"\x12", item.encode()) for item in value)
    return b"" if value is None else delimited(b"\x0a", _schema(value))


def _schema_or_bool(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"\x08" + SMALL[value]
    return b"\x08\x01" + delimited(b"\x12", _schema(value))


_FUNCTIONS: dict[str, WriteBytes] = {
    "string": str.encode,
    "bytes": leaves.write_bytes,
    "time": leaves.write_time,
    "microtime": leaves.write_micro_time,
    "quantity": leaves.write_quantity,
    "int-or-string": leaves.write_int_or_string,
    "raw": leaves.write_json,
    "fields": leaves.write_json,
    "json": leaves.write_json,
    "schema-or-array": _schema_or_array,
    "schema-or-bool": _schema_or_bool,
    "schema-or-strings": _schema_or_strings,
}
