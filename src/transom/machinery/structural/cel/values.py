"""Objects as CEL sees them: names that are CEL identifiers, numbers of the declared type, types from schemas."""

from __future__ import annotations

import base64
import binascii
import datetime
import re
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]
CelType = str | tuple[str, Any]
EMBEDDED, INT_OR_STRING = "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"
_RESERVED = frozenset((
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
    "loop", "package", "namespace", "return", "var", "void", "while",
))
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_escaped = re.compile(r"__|[-./]")
_writable = re.compile(r"[a-zA-Z_./-][a-zA-Z0-9_./-]*").fullmatch
_META = {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}}
_TEXT = {"type": "string"}
_FORMATS = {"date-time": "TIMESTAMP", "date": "TIMESTAMP", "duration": "DURATION", "byte": "BYTES"}
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_duration = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


def escape(name: str) -> str | None:
    """A property's name as a CEL identifier; None when it has none."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _writable(name):
        return None
    return _escaped.sub(lambda found: _ESCAPES[found[0]], name)


def with_object_fields(schema: Schema) -> Schema:
    """The schema of a whole object: its type and name are always there."""
    properties = {**(schema.get("properties") or {}), "apiVersion": _TEXT, "kind": _TEXT, "metadata": _META}
    return {**schema, "properties": properties}


def type_of(schema: Schema) -> CelType:
    """The CEL type of a value by its schema: a name, or a list or map with what is inside."""
    kind = schema.get("type", "")
    if schema.get(INT_OR_STRING) or schema.get("nullable"):
        return "DYN"
    if kind == "string":
        return _FORMATS.get(schema.get("format", ""), "STRING")
    if kind == "array":
        return "List", _inside(schema.get("items"))
    if kind == "object":
        return "Map", _inside(schema.get("additionalProperties"))
    return {"integer": "INT", "number": "DOUBLE", "boolean": "BOOL"}.get(kind, "DYN")


def _inside(schema: Any) -> CelType:
    found = type_of(schema) if isinstance(schema, Mapping) else "DYN"
    return "STRING" if found in ("TIMESTAMP", "DURATION") else found


def value(data: Any, schema: Schema, *, inside: bool = False) -> Any:
    """A JSON value for CEL. Only a value of its own, not one inside an object or a list, can be a time."""
    if data is None:
        return None
    if isinstance(data, dict):
        return _map(data, schema)
    if isinstance(data, list):
        items = schema.get("items")
        return [value(item, items, inside=True) for item in data] if isinstance(items, Mapping) else data
    kind = schema.get("type")
    if kind == "number" and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if kind == "string" and isinstance(data, str) and "format" in schema:
        return _formatted(data, schema["format"], inside)
    return data


def _map(data: dict[str, Any], schema: Schema) -> dict[str, Any]:
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        return {k: value(v, extra, inside=True) for k, v in data.items()}
    if schema.get(EMBEDDED):
        schema = with_object_fields(schema)
    properties = schema.get("properties")
    if not properties:
        return data if extra else {}
    out = {}
    for name, item in data.items():
        found = properties.get(name)
        escaped = escape(name) if found is not None else None
        if found is not None and escaped is not None:
            out[escaped] = value(item, found, inside=True)
    return out


def _formatted(text: str, form: str, inside: bool) -> Any:
    if form == "byte":
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            return text
    if inside:
        return text
    try:
        if form in ("date-time", "date"):
            when = datetime.datetime.fromisoformat(text.upper())
            return when if when.tzinfo else when.replace(tzinfo=datetime.UTC)
        if form == "duration":
            parts = _duration.findall(text)
            seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
            return datetime.timedelta(seconds=-seconds if text.startswith("-") else seconds)
    except ValueError:
        return text
    return text
