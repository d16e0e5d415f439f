"""Values that are not plain message fields: times, quantities, int-or-string, raw JSON,
alternatives in schemas.

Each kind has a function from the bytes of its message to the JSON value and one back. They do not
depend on the containing field; `read_fields` reads the few fields of their messages.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import orjson

from transom.kit.caching import text_cache
from transom.machinery import gojson, quantity
from transom.machinery.objects import TooDeep
from transom.machinery.protobuf.wire import (
    BYTES,
    MalformedProtobuf,
    as_int32,
    as_int64,
    delimited,
    read_length,
    read_varint,
    skip_field,
    varint,
)

_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)
_ZERO_TIME = -62135596800  # the first second of the year 1, Go's zero time
_INT, _STRING = 0, 1  # IntOrString.type
_FIRST, _THIRD = b"\x0a", b"\x1a"  # tags of fields 1 and 3 with a length


def read_text(data: bytes, at: int, end: int) -> str:
    return data[at:end].decode("utf-8", "go-replace")  # invalid UTF-8, handled like in `gojson`


def read_fields(
    name: str, wanted: dict[int, tuple[int, str]], data: bytes, at: int, end: int
) -> dict[int, list[Any]]:
    """The fields of a small message: number -> values, which are integers or (start, end). `wanted`
    has the wire type and Go name of the relevant ones.
    """
    found: dict[int, list[Any]] = {}
    while at < end:
        start = at
        tag, at = read_varint(data, at, end)
        number, kind = as_int32(tag >> 3), tag & 7
        expected = wanted.get(number)
        if expected is None or expected[0] != kind:
            at = unknown_field(name, expected and expected[1], tag, data, start, end)
        elif kind == BYTES:
            span = read_length(data, at, end)
            found.setdefault(number, []).append(span)
            at = span[1]
        else:
            value, at = read_varint(data, at, end)
            found.setdefault(number, []).append(value)
    return found


def unknown_field(
    message: str, field: str | None, tag: int, data: bytes, start: int, end: int
) -> int:
    """The end of an unknown field; a known number (`field`) has a wrong wire type."""
    number, kind = as_int32(tag >> 3), tag & 7
    if kind == 4:
        raise MalformedProtobuf(f"proto: {message}: wiretype end group for non-group")
    if number <= 0:
        raise MalformedProtobuf(f"proto: {message}: illegal tag {number} (wire type {tag})")
    if field is not None:
        raise MalformedProtobuf(f"proto: wrong wireType = {kind} for field {field}")
    return skip_field(data, start, end)


# --- bytes ----------


def read_bytes(data: bytes, at: int, end: int) -> str:
    return b2a_base64(data[at:end], newline=False).decode()


def write_bytes(value: str) -> bytes:
    return a2b_base64(value)


# --- times ----------

_TIMESTAMP = {1: (0, "Seconds"), 2: (0, "Nanos")}


def read_time(data: bytes, at: int, end: int) -> str | None:
    """Whole seconds, like JSON."""
    if at == end:
        return None
    return _time_text(_timestamp(data, at, end)[0])


@lru_cache(maxsize=1024)
def _time_text(seconds: int) -> str | None:
    return None if seconds == _ZERO_TIME else _stamp(seconds, 0) + "Z"


def read_micro_time(data: bytes, at: int, end: int) -> str | None:
    if at == end:
        return None
    seconds, nanos = _timestamp(data, at, end)
    if seconds == _ZERO_TIME and not nanos:
        return None
    more, nanos = divmod(nanos, 1_000_000_000)
    return f"{_stamp(seconds, more)}.{nanos // 1000:06d}Z"


def _timestamp(data: bytes, at: int, end: int) -> tuple[int, int]:
    found = read_fields("Timestamp", _TIMESTAMP, data, at, end)
    return as_int64(found.get(1, (0,))[-1]), as_int32(found.get(2, (0,))[-1])


def _stamp(seconds: int, more: int) -> str:
    try:
        return (_EPOCH + timedelta(seconds=seconds + more)).isoformat()
    except OverflowError:
        raise MalformedProtobuf("year outside of range [0,9999]") from None


def write_time(value: str) -> bytes:
    return b"\x08%b\x10\x00" % varint(_seconds(value))


@text_cache(1024)
def _seconds(value: str) -> int:
    return (datetime.fromisoformat(value[:19]) - _EPOCH) // _SECOND


def write_micro_time(value: str) -> bytes:
    nanos = int(value[20:-1] or 0) * 1000
    return b"\x08%b\x10%b" % (varint(_seconds(value[:19])), varint(nanos))


# --- quantities, int-or-string ----------

_QUANTITY = {1: (BYTES, "String_")}
_INT_OR_STRING = {1: (0, "Type"), 2: (0, "IntVal"), 3: (BYTES, "StrVal")}


def read_quantity(data: bytes, at: int, end: int) -> str:
    # Clients send only one short text.
    if end - at >= 2 and data[at] == 10 and data[at + 1] == end - at - 2:
        spans = [(at + 2, end)]
    else:
        spans = read_fields("Quantity", _QUANTITY, data, at, end).get(1, [])
    value = "0"
    for span in spans:
        try:
            value = quantity.canonical_quantity(read_text(data, *span))
        except quantity.QuantityError as e:
            raise MalformedProtobuf(str(e)) from None
    return value


def write_quantity(value: str) -> bytes:
    return delimited(_FIRST, value.encode())


def read_int_or_string(data: bytes, at: int, end: int) -> int | str:
    found = read_fields("IntOrString", _INT_OR_STRING, data, at, end)
    kind = as_int64(found.get(1, (_INT,))[-1])
    if kind == _INT:
        return as_int32(found.get(2, (0,))[-1])
    if kind != _STRING:
        raise MalformedProtobuf("impossible IntOrString.Type")
    return read_text(data, *found[3][-1]) if 3 in found else ""


def write_int_or_string(value: int | str) -> bytes:
    if isinstance(value, str):
        return b"\x08\x01\x10\x00" + delimited(_THIRD, value.encode())
    return b"\x08\x00\x10%b\x1a\x00" % varint(value)


# --- JSON inside ----------


def read_json(data: bytes, at: int, end: int) -> Any:
    spans = read_fields("JSON", {1: (BYTES, "Raw")}, data, at, end).get(1)
    if not spans or spans[-1][0] == spans[-1][1]:
        return None
    raw = data[slice(*spans[-1])]
    try:
        return gojson.loads(raw)
    except (gojson.JsonError, TooDeep) as e:
        raise MalformedProtobuf(str(e)) from None


def write_json(value: Any) -> bytes:
    return delimited(_FIRST, gojson.escape_html(orjson.dumps(value)))


# --- lists with their own message type ----------


def read_items(data: bytes, at: int, end: int) -> list[str]:
    found = read_fields("ExtraValue", {1: (BYTES, "Items")}, data, at, end)
    return [read_text(data, *span) for span in found.get(1, ())]


def write_items(value: list[str]) -> bytes:
    return b"".join(delimited(_FIRST, item.encode()) for item in value)


def read_boolean(value: int) -> bool:
    return value != 0
