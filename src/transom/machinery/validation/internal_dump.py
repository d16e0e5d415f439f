"""Prints values of internal types as releases after 1.20 do in errors, from the types of the
release: as JSON with Go's field names since 1.34, before in Go syntax.

`godump` prints the types of 1.20.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import Any, Final

import orjson

from transom.kit.goquote import go_quote
from transom.machinery import gojson
from transom.machinery.field import GoText
from transom.machinery.schema import OBJECT_META, SchemaType, SchemaValue

_CONTEXT: Final = 3
_DIFF_LINES: Final = 2000  # a longer difference takes too long to compute
_NUMBERS: Final = re.compile(r"([-+])(\d+)")
# The value of a field that is not set, by the kind of its type; null for all others.
_ZEROS: Final[dict[str, Any]] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "float": 0,
    "int-or-string": 0,
    "quantity": "0",
}


def dump_internal(of: SchemaType, value: Any) -> GoText:
    """A struct of an internal type. `of` is a type of the API with the same fields."""
    text = gojson.escape_html(orjson.dumps(_json_struct(of, value))).decode()
    return GoText(_go_struct(of, value), text)


def diff_internal(of: SchemaType, old: Any, new: Any) -> str:
    """The unified diff that releases since 1.34 show of two values."""
    before, after = _json_lines(of, old), _json_lines(of, new)
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    if max(len(before), len(after)) - start - end > _DIFF_LINES:
        return f"{len(before)} lines were changed to {len(after)} lines\n"
    # Lines far from the difference do not matter to it, except for their numbers.
    skip = max(start - _CONTEXT, 0)
    cut = max(end - _CONTEXT, 0)
    lines = list(
        difflib.unified_diff(
            before[skip : len(before) - cut], after[skip : len(after) - cut], n=_CONTEXT
        )
    )
    return "".join(_moved(line, skip) for line in lines[2:])


def _moved(line: str, by: int) -> str:
    """A header of a hunk with the line numbers of the whole text."""
    if not line.startswith("@@"):
        return line
    return _NUMBERS.sub(lambda found: f"{found[1]}{int(found[2]) + by}", line)


def _json_lines(of: SchemaType, value: Any) -> list[str]:
    text = json.dumps(_json_struct(of, value), indent=1, ensure_ascii=False, separators=(",", ": "))
    text = gojson.escape_html(text.encode()).decode()
    return [f"{line}\n" for line in text.split("\n")]


def _json_struct(of: SchemaType, value: Any) -> Any:
    if of.id.startswith("meta/"):  # published types have the form of the API
        return value or {}
    value = value or {}
    fields: dict[str, Any] = {}
    for f in of.properties.values():
        if f.value.ref == OBJECT_META:  # embedded without a name
            fields |= value.get(f.name) or {}
        else:
            fields[f.go_path[-1]] = _json_value(f.value, value.get(f.name))
    return fields


def _json_value(of: SchemaValue, value: Any) -> Any:
    if value is None:
        if of.kind == "struct" and not of.pointer:
            return _json_struct(of.type, {})
        return None if of.pointer else _ZEROS.get(of.kind)
    if of.kind == "struct":
        return _json_struct(of.type, value)
    if of.kind == "list" and of.item is not None:
        return [_json_value(of.item, item) for item in value]
    if of.kind == "map" and of.item is not None:
        return {key: _json_value(of.item, value[key]) for key in sorted(value)}
    return value


def _go_struct(of: SchemaType, value: Any) -> str:
    value = value or {}
    package = of.id.partition("/")[0] if not of.id.startswith("meta/") else "v1"
    fields = ", ".join(
        f"{f.go_path[-1]}:{_go_value(f.value, value.get(f.name))}" for f in of.properties.values()
    )
    return f"{package}.{of.id.partition('.')[2]}{{{fields}}}"


def _go_value(of: SchemaValue, value: Any) -> str:
    if of.pointer:
        # Go prints an address, which clients cannot expect to be a particular one.
        return f"({of.go_name})(nil)" if value is None else f"({of.go_name})(0xc000000000)"
    if of.kind == "struct":
        return _go_struct(of.type, value)
    if of.kind == "list" and of.item is not None:
        if value is None:
            return f"{of.go_name}(nil)"
        item = of.item
        return of.go_name + "{" + ", ".join(_go_value(item, each) for each in value) + "}"
    if of.kind == "map" and of.item is not None:
        if value is None:
            return f"{of.go_name}(nil)"
        entries = (f"{go_quote(k)}:{_go_value(of.item, value[k])}" for k in sorted(value))
        return of.go_name + "{" + ", ".join(entries) + "}"
    found = _ZEROS.get(of.kind) if value is None else value
    if isinstance(found, bool):
        return "true" if found else "false"
    return go_quote(found) if isinstance(found, str) else str(found)
