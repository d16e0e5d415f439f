"""Types with their own JSON decoder (times, quantities, int-or-string, parts of schemas): their
error messages.

Used by `jsoniter`, which walks everything else. Each function gets the bytes of one valid JSON
value and returns the error message of the Go type, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from transom.machinery import gojson, gotime, quantity, schema
from transom.machinery.integers import parse_int
from transom.machinery.normalise import decode_base64
from transom.machinery.schema import SchemaValue


def unescaped(text: bytes) -> str:
    """The contents of a JSON string."""
    if b"\\" not in text:
        return gojson.go_json_text(text)
    try:
        plain: str = orjson.loads(b'"' + text + b'"')
    except orjson.JSONDecodeError:
        return gojson.go_json_text(text)
    return plain


def bad_base64(text: str) -> int | None:
    """The byte at which Go's decoder fails, or None."""
    try:
        decode_base64(text)
    except ValueError:
        pass
    else:
        return None
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    count = 0  # characters of the current group of four
    at = 0
    data = text.encode()
    while at < len(data):
        c = chr(data[at])
        if c in "\r\n":
            at += 1
            continue
        if c == "=":
            return _bad_padding(data, at, count)
        if c not in alphabet:
            return at
        count = (count + 1) % 4
        at += 1
    # An incomplete group: Go reports its first character.
    return len(data) - count


def _bad_padding(data: bytes, at: int, count: int) -> int:
    if count < 2:
        return at
    rest = at + 1
    while rest < len(data) and data[rest] in b"\r\n":
        rest += 1
    if count == 2:
        if rest >= len(data):
            return len(data)
        if data[rest] != ord("="):
            return rest
        rest += 1
        while rest < len(data) and data[rest] in b"\r\n":
            rest += 1
    return rest


def _cannot(data: bytes, go_type: str, *, with_number: bool = False) -> str:
    what = gojson.kind_of(data)
    if what == "number" and with_number:
        what += " " + data.decode()
    return f"json: cannot unmarshal {what} into Go value of type {go_type}"


def _time(read: Callable[[str], Any]) -> Callable[[bytes], str | None]:
    def complaint(data: bytes) -> str | None:
        if data == b"null":
            return None
        if data[:1] != b'"':
            return _cannot(data, "string")
        try:
            read(unescaped(data[1:-1]))
        except gotime.TimeError as e:
            return str(e)
        return None

    return complaint


def _quantity(data: bytes) -> str | None:
    if data == b"null":
        return None
    # Removes the quotes but keeps escapes, as Kubernetes does.
    text = data[1:-1] if len(data) >= 2 and data[:1] == b'"' else data
    try:
        quantity.canonical_quantity(gojson.go_json_text(text).strip())
    except quantity.QuantityError as e:
        return str(e)
    return None


def _int_or_string(data: bytes) -> str | None:
    if data[:1] == b'"' or data == b"null":
        return None
    digits = data[1:] if data[:1] == b"-" else data
    if digits.isdigit() and -(1 << 31) <= parse_int(data.decode()) < 1 << 31:
        return None
    return _cannot(data, "int32", with_number=True)


def _nothing(data: bytes) -> None:
    return None


def _schema_or_bool(data: bytes) -> str | None:
    if data in (b"true", b"false"):
        return None
    return _schema(data) if data[:1] == b"{" else "boolean or JSON schema expected"


def _schema_or_array(data: bytes) -> str | None:
    return _schema(data, _SCHEMA) if data[:1] in b"{[" else None


def _schema_or_strings(data: bytes) -> str | None:
    return _schema(data, SchemaValue("string", "string")) if data[:1] in b"{[" else None


_SCHEMA = SchemaValue("struct", "v1.JSONSchemaProps", ref=schema.JSON_SCHEMA_PROPS)


def _schema(data: bytes, item: SchemaValue = _SCHEMA) -> str | None:
    """Nested schemas are decoded by encoding/json, which names the struct and the path to the
    field.
    """
    value = orjson.loads(data)
    top = SchemaValue("list", "", item=item) if isinstance(value, list) else _SCHEMA
    return _type_error(top, value, ())


_JSON_NAMES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
}
_FITS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "bool": (bool,),
    "int32": (int,),
    "int64": (int,),
    "float": (int, float),
    "struct": (dict,),
    "map": (dict,),
    "list": (list,),
}


def _type_error(value: SchemaValue, got: Any, path: tuple[str, ...]) -> str | None:
    if got is None:
        return None
    if value.kind == "schema-or-bool":
        return _schema_or_bool(orjson.dumps(got))
    if value.kind == "schema-or-array":
        return _schema_or_array(orjson.dumps(got))
    if value.kind == "schema-or-strings":
        return _schema_or_strings(orjson.dumps(got))
    fits = _FITS.get(value.kind)
    if fits is None:
        return None
    if type(got) not in fits:
        what = _JSON_NAMES[type(got)]
        if what == "number" and value.kind in ("int32", "int64"):
            what += f" {got}"
        where = f"struct field JSONSchemaProps.{'.'.join(path)}" if path else "value"
        return f"json: cannot unmarshal {what} into Go {where} of type {value.go_name.lstrip('*')}"
    if value.kind == "struct":
        children = [
            (value.type.properties[k].value, v, (*path, k))
            for k, v in got.items()
            if k in value.type.properties
        ]
    elif value.kind == "map":
        assert value.item is not None
        children = [(value.item, v, path) for v in got.values()]
    elif value.kind == "list":
        assert value.item is not None
        children = [(value.item, v, path) for v in got]
    else:
        return None
    return next((text for child in children if (text := _type_error(*child)) is not None), None)


OWN_FORMS: dict[str, Callable[[bytes], str | None]] = {
    "time": _time(gotime.canonical_time),
    "microtime": _time(gotime.canonical_micro_time),
    "duration": lambda data: None if data[:1] == b'"' else _cannot(data, "string"),
    "quantity": _quantity,
    "int-or-string": _int_or_string,
    "raw": _nothing,
    "fields": _nothing,
    "json": _nothing,
    "schema-or-bool": _schema_or_bool,
    "schema-or-array": _schema_or_array,
    "schema-or-strings": _schema_or_strings,
}
