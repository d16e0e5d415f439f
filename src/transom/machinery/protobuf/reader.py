"""Protobuf messages to JSON dicts.

One loop reads every message, driven by a table from tags to operations that is built on first use.
The dict equals the decoded JSON of the object, not yet normalised. Does not handle the envelope.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from transom.machinery import schema
from transom.machinery.protobuf import leaves
from transom.machinery.protobuf.leaves import read_text, unknown_field
from transom.machinery.protobuf.messages import FieldRow, is_message_of_items, message_fields
from transom.machinery.protobuf.wire import (
    BYTES,
    EOF,
    FIXED64,
    NEGATIVE_LENGTH,
    VARINT,
    MalformedProtobuf,
    as_int32,
    as_int64,
    read_varint,
)
from transom.machinery.schema import BASE, SchemaTable, SchemaValue

ReadBytes = Callable[[bytes, int, int], Any]

# The operation for a field; those before _VARINT have a length.
_TEXT, _STRUCT, _INLINE, _ONE, _MANY, _STRING_MAP, _MAP, _PACKED, _VARINT, _VARINTS, _DOUBLE = (
    range(11)
)
_NEGATIVE = 1 << 63


class MessageReader:
    """A message type. `ops` maps a tag to (operation, JSON name, argument)."""

    __slots__ = ("_ops", "_table", "name")

    def __init__(self, name: str, table: SchemaTable) -> None:
        self.name = name
        self._table = table
        self._ops: dict[int, tuple[int, str, Any]] | None = None

    @property
    def ops(self) -> dict[int, tuple[int, str, Any]]:
        made = self._ops
        if made is None:
            made = self._ops = {}
            for row in message_fields(self.name, self._table):
                for kind, op in _ops(row):
                    made[row.number << 3 | kind] = op
        return made

    def go_field(self, number: int) -> str | None:
        return next(
            (row.go_name for row in message_fields(self.name, self._table) if row.number == number),
            None,
        )


def reader_of(name: str, table: SchemaTable = BASE) -> MessageReader:
    made: MessageReader | None = table.message_readers.get(name)
    if made is None:
        made = table.message_readers[name] = MessageReader(name, table)
    return made


def read_message(
    of: MessageReader, data: bytes, at: int, end: int, out: dict[str, Any]
) -> dict[str, Any]:
    """Adds the fields between `at` and `end` to `out`. Raises MalformedProtobuf."""
    ops = of.ops
    while at < end:
        start = at
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = read_varint(data, start, end)
        op = ops.get(tag)
        if op is None:
            at = unknown_field(
                of.name.rpartition(".")[2], of.go_field(as_int32(tag >> 3)), tag, data, start, end
            )
            continue
        what, name, more = op
        if what >= _VARINT:
            if what == _VARINT and at < end and data[at] < 128:
                out[name] = more(data[at])
                at += 1
            else:
                at = _read_number(op, data, at, end, out)
            continue
        if at >= end:
            raise MalformedProtobuf(EOF)
        size = data[at]
        at += 1
        if size > 127:
            size, at = read_varint(data, at - 1, end)
        stop = at + size
        if stop > end:
            raise MalformedProtobuf(NEGATIVE_LENGTH if size >= _NEGATIVE else EOF)
        if what == _TEXT:
            out[name] = data[at:stop].decode("utf-8", "go-replace")
        elif what == _STRUCT:
            inner = out.get(name)
            if inner is None:
                inner = out[name] = {}
            read_message(more, data, at, stop, inner)
        elif what == _MANY:
            _list(out, name).append(more(data, at, stop))
        elif what == _ONE:
            out[name] = more(data, at, stop)
        elif what == _STRING_MAP:
            _string_entry(data, at, stop, out.setdefault(name, {}))
        else:
            _read_rare(op, data, at, stop, out)
        at = stop
    return out


def _read_rare(
    op: tuple[int, str, Any], data: bytes, at: int, stop: int, out: dict[str, Any]
) -> None:
    """Adds a field of one of the less frequent kinds: inlined messages, maps, packed numbers."""
    what, name, more = op
    if what == _INLINE:
        read_message(more, data, at, stop, out)
    elif what == _MAP:
        entries = out.setdefault(name, {})
        read_value, zero = more
        key, value = _entry(data, at, stop)
        entries[key] = zero() if value is None else read_value(data, *value)
    else:
        values = _list(out, name)
        while at < stop:
            number, at = read_varint(data, at, stop)
            values.append(more(number))


def _read_number(
    op: tuple[int, str, Any], data: bytes, at: int, end: int, out: dict[str, Any]
) -> int:
    """Adds a number of any size to `out`; returns where it ends."""
    what, name, more = op
    if what == _DOUBLE:
        if at + 8 > end:
            raise MalformedProtobuf(EOF)
        out[name] = struct.unpack_from("<d", data, at)[0]
        return at + 8
    number, at = read_varint(data, at, end)
    if what == _VARINT:
        out[name] = more(number)
    else:
        _list(out, name).append(more(number))
    return at


def _list(out: dict[str, Any], name: str) -> list[Any]:
    found = out.get(name)
    if found is None:
        found = out[name] = []
    return found


def _string_entry(data: bytes, at: int, end: int, entries: dict[str, str]) -> None:
    """A key and a text. Nearly always they are in order and short."""
    if end - at >= 4 and data[at] == 10:
        value_tag = at + 2 + data[at + 1]
        if (
            value_tag + 2 <= end
            and data[value_tag] == 18
            and data[value_tag + 1] == end - value_tag - 2 < 128
        ):
            entries[read_text(data, at + 2, value_tag)] = read_text(data, value_tag + 2, end)
            return
    key, value = _entry(data, at, end)
    entries[key] = "" if value is None else read_text(data, *value)


_ENTRY = {1: (BYTES, "key"), 2: (BYTES, "value")}


def _entry(data: bytes, at: int, end: int) -> tuple[str, tuple[int, int] | None]:
    found = leaves.read_fields("entry", _ENTRY, data, at, end)
    key = read_text(data, *found[1][-1]) if 1 in found else ""
    return key, found[2][-1] if 2 in found else None


# --- from types to operations ----------

_SCALARS: dict[str, Callable[[int], Any]] = {
    "bool": leaves.read_boolean,
    "int32": as_int32,
    "int64": as_int64,
}


def _ops(row: FieldRow) -> list[tuple[int, tuple[int, str, Any]]]:
    """The wire types that a field may have, and the operation for each."""
    name, value = row.name, row.value
    if value.kind == "struct":
        return [
            (BYTES, (_STRUCT if name else _INLINE, name, reader_of(value.ref, value.table or BASE)))
        ]
    if value.kind == "string":
        return [(BYTES, (_TEXT, name, None))]
    if value.kind in _SCALARS:
        return [(VARINT, (_VARINT, name, _SCALARS[value.kind]))]
    if value.kind == "float":
        return [(FIXED64, (_DOUBLE, name, None))]
    item = value.item
    if item is None or is_message_of_items(value):
        return [(BYTES, (_ONE, name, _function(value)))]
    if value.kind == "map":
        if item.kind == "string":
            return [(BYTES, (_STRING_MAP, name, None))]
        return [(BYTES, (_MAP, name, (_function(item), _zero(item))))]
    if item.kind in _SCALARS:  # both forms of a list of numbers are read
        return [
            (VARINT, (_VARINTS, name, _SCALARS[item.kind])),
            (BYTES, (_PACKED, name, _SCALARS[item.kind])),
        ]
    return [(BYTES, (_MANY, name, _function(item)))]


def _function(value: SchemaValue) -> ReadBytes:
    """The function that reads one length-delimited value."""
    if value.kind == "struct":
        of = reader_of(value.ref, value.table or BASE)
        return lambda data, at, end: read_message(of, data, at, end, {})
    if is_message_of_items(value):
        return leaves.read_items
    return _FUNCTIONS[value.kind]


_ZEROS: dict[str, Callable[[], Any]] = {"struct": dict, "bytes": str, "quantity": lambda: "0"}


def _zero(value: SchemaValue) -> Callable[[], Any]:
    """The default value of a map entry."""
    if is_message_of_items(value):
        return list
    return _ZEROS.get(value.kind, lambda: None)


# --- alternatives in JSON schemas ----------

_SCHEMA = {1: (BYTES, "Schema"), 2: (BYTES, "JSONSchemas")}
_SCHEMA_OR_STRINGS = {1: (BYTES, "Schema"), 2: (BYTES, "Property")}
_SCHEMA_OR_BOOL = {1: (VARINT, "Allows"), 2: (BYTES, "Schema")}


def _schema(data: bytes, spans: list[tuple[int, int]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for at, end in spans:
        read_message(reader_of(schema.JSON_SCHEMA_PROPS), data, at, end, out)
    return out


def _schema_or_array(data: bytes, at: int, end: int) -> Any:
    found = leaves.read_fields("JSONSchemaPropsOrArray", _SCHEMA, data, at, end)
    if 2 in found:
        return [_schema(data, [span]) for span in found[2]]
    return _schema(data, found[1]) if 1 in found else None


def _schema_or_strings(data: bytes, at: int, end: int) -> Any:
    found = leaves.read_fields("JSONSchemaPropsOrStringArray", _SCHEMA_OR_STRINGS, data, at, end)
    if 2 in found:
        return [read_text(data, *span) for span in found[2]]
    return _schema(data, found[1]) if 1 in found else None


def _schema_or_bool(data: bytes, at: int, end: int) -> Any:
    found = leaves.read_fields("JSONSchemaPropsOrBool", _SCHEMA_OR_BOOL, data, at, end)
    return _schema(data, found[2]) if 2 in found else bool(found.get(1, (0,))[-1])


_FUNCTIONS: dict[str, ReadBytes] = {
    "string": read_text,
    "bytes": leaves.read_bytes,
    "time": leaves.read_time,
    "microtime": leaves.read_micro_time,
    "quantity": leaves.read_quantity,
    "int-or-string": leaves.read_int_or_string,
    "raw": leaves.read_json,
    "fields": leaves.read_json,
    "json": leaves.read_json,
    "schema-or-array": _schema_or_array,
    "schema-or-bool": _schema_or_bool,
    "schema-or-strings": _schema_or_strings,
}
