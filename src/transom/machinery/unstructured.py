"""Kubernetes' error messages for a map of JSON values that does not fit a Go struct.

A strategic merge patch is converted to an object that way, not through JSON text, and has its own
error messages. Used only after the fast path has failed.
"""

from __future__ import annotations

from typing import Any

from transom.machinery import gojson
from transom.machinery.ownforms import OWN_FORMS, bad_base64
from transom.machinery.schema import SchemaType, SchemaValue

_KINDS = {dict: "map", list: "slice", str: "string", bool: "bool", int: "int64", float: "float64"}
_SIMPLE = {
    "string": "string",
    "bool": "bool",
    "int32": "int32",
    "int64": "int64",
    "float": "float64",
}
_FITS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "bool": (bool,),
    "int32": (int,),
    "int64": (int,),
    "float64": (int, float),
}


def unstructured_conversion_error(obj: dict[str, Any], type: SchemaType) -> str:
    """The first error, in the order of the struct's fields; empty if there is none."""
    for name, f in type.properties.items():
        problem = _value_error(obj.get(name), f.value)
        if problem:
            return problem
    return ""


def _value_error(value: Any, to: SchemaValue) -> str:
    if value is None or to.kind == "any":
        return ""
    kind = _KINDS[type(value)]
    if to.kind in _SIMPLE:
        return _simple_error(value, kind, _SIMPLE[to.kind])
    if to.kind == "struct":
        return (
            unstructured_conversion_error(value, to.type)
            if kind == "map"
            else f"cannot restore struct from: {kind}"
        )
    if to.kind == "map":
        assert to.item is not None
        if kind != "map":
            return f"cannot restore map from {kind}"
        return next(filter(None, (_value_error(v, to.item) for v in value.values())), "")
    if to.kind == "list":
        assert to.item is not None
        if kind != "slice":
            return f"cannot restore slice from {kind}"
        return next(filter(None, (_value_error(v, to.item) for v in value)), "")
    if to.kind == "bytes":
        return _bytes_error(value, kind)
    return OWN_FORMS[to.kind](gojson.marshal(value)) or ""


def _simple_error(value: Any, kind: str, to: str) -> str:
    if type(value) in _FITS[to]:
        return ""
    if kind == "float64" and to in ("int32", "int64"):
        return "" if value.is_integer() else f"cannot convert float64 to {to}"
    # Go could convert an integer to a string, but JSON does not; it has no message for anything
    # else.
    return (
        "cannot convert int64 to string"
        if (kind, to) == ("int64", "string")
        else f"unrecognized type: {to}"
    )


def _bytes_error(value: Any, kind: str) -> str:
    if kind == "string":
        at = bad_base64(value)
        return (
            ""
            if at is None
            else f"error decoding from json: illegal base64 data at input byte {at}"
        )
    if kind != "slice":
        return f"cannot restore slice from {kind}"
    return next(
        filter(None, (_simple_error(v, _KINDS[type(v)], "int64") for v in value if v is not None)),
        "",
    )
