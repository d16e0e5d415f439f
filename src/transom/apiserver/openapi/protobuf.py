"""Encodes an OpenAPI v2 document as protobuf, the form that kubectl up to 1.26 requests.

Supports only the messages of gnostic's `openapi.v2` package: tables map JSON keys to fields. Equal
parts of a document (mostly parameters) are encoded once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

Encoder = Callable[[Any], bytes]
# field of a message: number and encoder
Fields = dict[str, tuple[int, Callable[[int, Any], bytes]]]

_LENGTH = 2


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value & 0x7F,)) if value >= 0 else _varint(value + (1 << 64))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH) + _varint(len(value)) + value


def _text(number: int, value: Any) -> bytes:
    return _bytes(number, value.encode()) if value else b""


def _texts(number: int, value: Iterable[str]) -> bytes:
    return b"".join(_bytes(number, v.encode()) for v in value)


def _bool(number: int, value: Any) -> bytes:
    return _varint(number << 3) + b"\x01" if value else b""


def _int(number: int, value: Any) -> bytes:
    return _varint(number << 3) + _varint(int(value)) if value else b""


def _double(number: int, value: Any) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value) if value else b""


def _any(value: Any) -> bytes:
    """Arbitrary values are encoded as YAML text, of which JSON is a subset."""
    return _text(2, orjson.dumps(value).decode() + "\n")


def _anys(number: int, value: Iterable[Any]) -> bytes:
    return b"".join(_bytes(number, _any(v)) for v in value)


def _message(encode: Encoder) -> Callable[[int, Any], bytes]:
    return lambda number, value: _bytes(number, encode(value))


def _messages(encode: Encoder) -> Callable[[int, Any], bytes]:
    return lambda number, value: b"".join(_bytes(number, encode(v)) for v in value)


def _named(name: str, value: bytes) -> bytes:
    return _text(1, name) + _bytes(2, value)


def _entries(number: int, encode: Encoder) -> Encoder:
    """A JSON object with arbitrary keys: repeated pairs of name and value."""
    return lambda value: b"".join(_bytes(number, _named(k, encode(v))) for k, v in value.items())


def _encode(fields: Fields, extensions: int, value: Mapping[str, Any]) -> bytes:
    out = []
    for key, content in value.items():
        if key in fields:
            number, write = fields[key]
            out.append(write(number, content))
        elif key.startswith("x-") and extensions:
            out.append(_bytes(extensions, _named(key, _any(content))))
    return b"".join(out)


def _types(value: Any) -> bytes:
    return _texts(1, [value] if isinstance(value, str) else value)


def _additional(value: Any) -> bytes:
    return _bool(2, value) if isinstance(value, bool) else _bytes(1, encode_openapi_schema(value))


def encode_openapi_schema(value: Mapping[str, Any]) -> bytes:
    return _encode(_SCHEMA, 31, value)


_SCHEMA: Fields = {
    "$ref": (1, _text),
    "format": (2, _text),
    "title": (3, _text),
    "description": (4, _text),
    "default": (5, _message(_any)),
    "multipleOf": (6, _double),
    "maximum": (7, _double),
    "exclusiveMaximum": (8, _bool),
    "minimum": (9, _double),
    "exclusiveMinimum": (10, _bool),
    "maxLength": (11, _int),
    "minLength": (12, _int),
    "pattern": (13, _text),
    "maxItems": (14, _int),
    "minItems": (15, _int),
    "uniqueItems": (16, _bool),
    "maxProperties": (17, _int),
    "minProperties": (18, _int),
    "required": (19, _texts),
    "enum": (20, _anys),
    "additionalProperties": (21, _message(_additional)),
    "type": (22, _message(_types)),
    "items": (23, _message(lambda v: _bytes(1, encode_openapi_schema(v)))),
    "allOf": (24, _messages(encode_openapi_schema)),
    "properties": (25, _message(_entries(1, encode_openapi_schema))),
    "readOnly": (27, _bool),
    "example": (30, _message(_any)),
}
_BODY: Fields = {
    "description": (1, _text),
    "name": (2, _text),
    "in": (3, _text),
    "required": (4, _bool),
    "schema": (5, _message(encode_openapi_schema)),
}
_PATH: Fields = {
    "required": (1, _bool),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (5, _text),
    "format": (6, _text),
    "uniqueItems": (19, _bool),
}
_QUERY: Fields = {
    "required": (1, _bool),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (6, _text),
    "format": (7, _text),
    "uniqueItems": (20, _bool),
}


def _parameter(value: Mapping[str, Any]) -> bytes:
    """ParametersItem > Parameter > body or non-body > the kind of parameter: each is a oneof."""
    if value["in"] == "body":
        return _bytes(1, _bytes(1, _encode(_BODY, 6, value)))
    number, fields, extensions = (4, _PATH, 22) if value["in"] == "path" else (3, _QUERY, 23)
    return _bytes(1, _bytes(2, _bytes(number, _encode(fields, extensions, value))))


_RESPONSE: Fields = {
    "description": (1, _text),
    "schema": (2, _message(lambda v: _bytes(1, encode_openapi_schema(v)))),
}


def encode_openapi_document(value: Mapping[str, Any]) -> bytes:
    """The whole document; `value` is its JSON form, in which equal parameter lists are one
    object.
    """
    written: dict[int, bytes] = {}

    def parameters(number: int, of: list[Any]) -> bytes:
        if id(of) not in written:
            written[id(of)] = b"".join(_bytes(number, _parameter(p)) for p in of)
        return written[id(of)]

    def responses(of: Mapping[str, Any]) -> bytes:
        return b"".join(
            _bytes(1, _named(code, _bytes(1, _encode(_RESPONSE, 5, r)))) for code, r in of.items()
        )

    operation: Fields = {
        "tags": (1, _texts),
        "summary": (2, _text),
        "description": (3, _text),
        "operationId": (5, _text),
        "produces": (6, _texts),
        "consumes": (7, _texts),
        "parameters": (8, parameters),
        "responses": (9, _message(responses)),
        "schemes": (10, _texts),
        "deprecated": (11, _bool),
    }

    def operations(of: Mapping[str, Any]) -> bytes:
        return _encode(operation, 13, of)

    numbers = {"get": 2, "put": 3, "post": 4, "delete": 5, "options": 6, "head": 7, "patch": 8}
    path_item: Fields = {
        method: (number, _message(operations)) for method, number in numbers.items()
    }
    # Not the cache of `parameters`: the field has another number here.
    path_item["parameters"] = (9, _messages(_parameter))
    info: Fields = {"title": (1, _text), "version": (2, _text), "description": (3, _text)}
    fields: Fields = {
        "swagger": (1, _text),
        "info": (2, _message(lambda v: _encode(info, 7, v))),
        "paths": (8, _message(_entries(2, lambda v: _encode(path_item, 10, v)))),
        "definitions": (9, _message(_entries(1, encode_openapi_schema))),
    }
    return _encode(fields, 16, value)
