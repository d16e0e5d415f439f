"""The errors of sigs.k8s.io/json, which decodes request bodies since release 1.23.

They are those of encoding/json: the first value that does not fit its field, in the order of the
document. Only for bodies that `normalise` has rejected.
"""

from __future__ import annotations

import json
from typing import Any

from transom.machinery import gojson, gotime, quantity
from transom.machinery.ownforms import bad_base64
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.schema import (
    JSON_SCHEMA_PROPS,
    SchemaType,
    SchemaValue,
    get_schema_type,
)

_BITS = {"int32": 32, "int64": 64}
_SCALAR_KINDS = ("string", "bool", "int32", "int64", "float")


class _OwnError(Exception):
    """The error of a type that decodes itself: it ends the decoding, and precedes the errors that
    were found before, which do not.
    """


class _Pairs(list[tuple[str, Any]]):
    """An object with its keys in order."""


class _Number(str):
    """A number as it is written."""


def decode_error(of: SchemaType, data: bytes) -> str:
    """The error of decoding JSON into a type, "" if there is none."""
    value = json.loads(
        gojson.go_json_text(data),
        object_pairs_hook=_Pairs,
        parse_int=_Number,
        parse_float=_Number,
    )
    try:
        return _struct(of, value, ())
    except _OwnError as problem:
        return str(problem)


def _kind_of(value: Any) -> str:
    if isinstance(value, _Pairs):
        return "object"
    if isinstance(value, list):
        return "array"
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, _Number) else "string"


def _mismatch(value: Any, struct: str, path: tuple[str, ...], go_type: str, text: str = "") -> str:
    where = f"Go struct field {struct}.{'.'.join(path)}" if path else "Go value"
    return f"json: cannot unmarshal {text or _kind_of(value)} into {where} of type {go_type}"


def _struct(of: SchemaType, value: Any, path: tuple[str, ...], outer: str = "") -> str:
    if value is None:
        return ""
    if not isinstance(value, _Pairs):
        return _mismatch(value, outer, path, of.name)
    name = of.name.rpartition(".")[2]
    embedded = has_behaviour(of.table.release, "EmbeddedNamesInErrors")
    first = ""
    for key, child in value:
        known = of.properties.get(key)
        if known is not None:
            through = known.go_path[:-1] if embedded else ()
            error = _value(known.value, child, (*path, *through, key), name)
            first = first or error
    return first


def _value(of: SchemaValue, value: Any, path: tuple[str, ...], struct: str) -> str:
    if value is None:
        return ""
    go_type = of.go_name.removeprefix("*")
    if of.kind == "struct":
        return _struct(of.type, value, path, struct)
    if of.kind in ("list", "map"):
        return _collection(of, value, path, struct)
    if of.kind in _SCALAR_KINDS:
        return _scalar(of.kind, value, path, struct, go_type)
    if of.kind.startswith("schema-or-"):
        return _schema_or(of.kind, value, path, struct)
    return _custom(of.kind, value, path, struct, go_type)


def _schema_or(kind: str, value: Any, path: tuple[str, ...], struct: str) -> str:
    """Parts of a schema that are schemas, lists of schemas or of strings, or booleans."""
    items = [value]
    if not isinstance(value, _Pairs):
        if kind == "schema-or-bool":
            return "" if isinstance(value, bool) else "boolean or JSON schema expected"
        if not isinstance(value, list):
            return ""
        items = value
    for item in items:
        if kind == "schema-or-strings" and items is value:
            error = "" if isinstance(item, str) else _mismatch(item, struct, path, "string")
        else:
            error = _struct(get_schema_type(JSON_SCHEMA_PROPS), item, path, struct)
        if error:
            return error
    return ""


def _collection(of: SchemaValue, value: Any, path: tuple[str, ...], struct: str) -> str:
    assert of.item is not None
    is_list = of.kind == "list"
    if isinstance(value, _Pairs) is is_list or not isinstance(value, list):
        return _mismatch(value, struct, path, of.go_name)
    first = ""
    for child in value if is_list else [child for _, child in value]:
        error = _value(of.item, child, path, struct)
        first = first or error
    return first


def _scalar(kind: str, value: Any, path: tuple[str, ...], struct: str, go_type: str) -> str:
    found = _kind_of(value)
    if kind in ("string", "bool"):
        return "" if found == kind else _mismatch(value, struct, path, go_type)
    if found != "number":
        return _mismatch(value, struct, path, go_type)
    if kind == "float":
        return ""
    try:
        number = int(value)
    except ValueError:
        return _mismatch(value, struct, path, go_type, f"number {value}")
    limit = 1 << (_BITS[kind] - 1)
    return (
        ""
        if -limit <= number < limit
        else _mismatch(value, struct, path, go_type, f"number {value}")
    )


def _custom(kind: str, value: Any, path: tuple[str, ...], struct: str, go_type: str) -> str:
    """Types that decode themselves: their own errors."""
    if kind == "bytes":
        if _kind_of(value) != "string":
            return _mismatch(value, struct, path, "[]uint8")
        where = bad_base64(value)
        return "" if where is None else f"illegal base64 data at input byte {where}"
    found = _kind_of(value)
    if kind == "quantity":
        try:
            quantity.canonical_quantity(str(value))
        except quantity.QuantityError as problem:
            raise _OwnError(str(problem)) from None
    elif kind in ("time", "microtime"):
        if found != "string":
            raise _OwnError(_mismatch(value, struct, path, "string"))
        try:
            (gotime.canonical_time if kind == "time" else gotime.canonical_micro_time)(value)
        except gotime.TimeError as problem:
            raise _OwnError(str(problem)) from None
    elif kind == "int-or-string" and found not in ("string", "number"):
        raise _OwnError(_mismatch(value, struct, path, "int32"))
    elif kind == "duration" and found != "string":
        raise _OwnError(_mismatch(value, struct, path, "string"))
    return ""
