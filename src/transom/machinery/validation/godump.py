"""Prints values like Go's %#v, from JSON dicts.

Go prints pointers as addresses; this module prints an address-like number, since clients cannot
expect a particular one.
"""

from __future__ import annotations

from typing import Any

import orjson

from transom.kit.goquote import go_quote
from transom.machinery import gojson
from transom.machinery.field import GoText
from transom.machinery.quantity import parse_quantity
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.validation.gotypes import LIFTED, struct_fields

_NUMBERS = {"int", "int32", "int64", "bool"}
_ZERO_TIME = "v1.Time{Time:time.Time{wall:0x0, ext:0, loc:(*time.Location)(nil)}}"


def go_dump(go_type: str, value: Any) -> GoText:
    """A value of a type of the table (`core.Toleration`, `[]string`, `map[string]string`) in Go
    syntax.

    A top-level time is printed by its own method; a missing one is a nil pointer.
    """
    if go_type == "v1.Time":
        json = "null" if value is None else go_quote(value)
        return GoText('"null"' if value is None else _time_text(value), json)
    return GoText(
        _dump(go_type, value),
        _json_text(json_form(go_type, value)),
        (go_type, value) if "." in go_type else None,
    )


def dump_in_release(release: Release, go_type: str, value: Any) -> GoText:
    """A value with the fields that its type has in the release."""
    return GoText(_dump(go_type, value, release), _json_text(json_form(go_type, value, release)))


def pointer_text(value: str) -> GoText:
    """A bad value that Go has a pointer to: later releases print it as JSON."""
    return GoText(go_quote(value), _json_text(value))


def _time_text(stamp: str) -> str:
    return f"{stamp.replace('T', ' ', 1).removesuffix('Z')} +0000 UTC"


def dump_label_selector(value: dict[str, Any]) -> GoText:
    return go_dump("v1.LabelSelector", value)


def dump_string_map(value: dict[str, str] | None) -> GoText:
    return go_dump("map[string]string", value)


def dump_int_or_string(value: int | str) -> GoText:
    if isinstance(value, int):
        return GoText(f'intstr.IntOrString{{Type:0, IntVal:{value}, StrVal:""}}', str(value))
    return GoText(
        f"intstr.IntOrString{{Type:1, IntVal:0, StrVal:{go_quote(value)}}}", go_quote(value)
    )


def dump_quantity(text: str) -> GoText:
    """A quantity: mantissa and scale as written, then the text."""
    parsed = parse_quantity(text)
    return GoText(
        f"resource.Quantity{{i:resource.int64Amount{{value:{parsed.mantissa}, "
        f"scale:{parsed.exponent}}}, "
        f"d:resource.infDecAmount{{Dec:(*inf.Dec)(nil)}}, s:{go_quote(text)}, "
        f"Format:{go_quote(parsed.format)}}}",
        go_quote(text),
    )


def _dump(go_type: str, value: Any, release: Release = DEFAULT) -> str:
    if go_type == "*v1.Time":  # prints itself, even as a pointer
        return "<nil>" if value is None else _time_text(value)
    if go_type.startswith("*"):
        return f"({go_type})(nil)" if value is None else f"({go_type})({_address(value)})"
    if go_type.startswith("[]"):
        if not value:
            return f"{_printed(go_type)}(nil)"
        items = ", ".join(_dump(go_type[2:], v, release) for v in value)
        return f"{_printed(go_type)}{{{items}}}"
    if go_type.startswith("map[string]"):
        return _dump_map(go_type, go_type.removeprefix("map[string]"), value, release)
    if go_type in ("apiextensions.JSONSchemaDependencies", "apiextensions.JSONSchemaDefinitions"):
        return f"{go_type}(nil)"
    if go_type == "core.ResourceList":
        return _dump_map(go_type, "resource.Quantity", value, release)
    if go_type == "resource.Quantity":
        return dump_quantity(value or "0")
    if go_type == "intstr.IntOrString":
        return dump_int_or_string(0 if value is None else value)
    if go_type == "v1.Time":
        return _ZERO_TIME
    if go_type in _NUMBERS:
        return str(value or 0) if go_type != "bool" else ("true" if value else "false")
    members = struct_fields(go_type, release)
    if members is None:
        return go_quote(value or "") if value is None or isinstance(value, str) else str(value)
    value = value or {}
    fields = ", ".join(_member(f.name, f.json, f.type, value, release) for f in members)
    return f"{_printed(go_type)}{{{fields}}}"


def _printed(go_type: str) -> str:
    """The name of a type; the table has more than one form of some types (`X@selectable`)."""
    return go_type.partition("@")[0]


def _dump_map(go_type: str, value_type: str, value: dict[str, Any] | None, release: Release) -> str:
    if not value:
        return f"{go_type}(nil)"
    entries = (f"{go_quote(k)}:{_dump(value_type, value[k], release)}" for k in sorted(value))
    return go_type + "{" + ", ".join(entries) + "}"


def _json_text(value: Any) -> str:
    return gojson.escape_html(orjson.dumps(value)).decode()


def json_form(go_type: str, value: Any, release: Release = DEFAULT) -> Any:
    """What Go marshals: internal types have no JSON names, so their fields have Go's names and are
    never left out. Published types (`v1.`) have the form of the API.
    """
    if go_type.startswith("*"):
        return None if value is None else json_form(go_type[1:], value, release)
    if go_type.startswith("[]"):
        return [json_form(go_type[2:], v, release) for v in value] if value else None
    if go_type.startswith("map[string]"):
        inner = go_type.removeprefix("map[string]")
        return {k: json_form(inner, value[k], release) for k in sorted(value)} if value else None
    members = None if go_type.startswith("v1.") else struct_fields(go_type, release)
    if members is None:
        if value is None or (go_type == "core.ResourceList" and not value):
            return _JSON_ZEROS.get(go_type, "")
        return (
            dict(sorted(value.items())) if go_type == "core.ResourceList" else _sorted_maps(value)
        )
    out: dict[str, Any] = {}
    for f in members:
        inner = lift_fields(f.type, value, (value or {}).get(f.json)) if f.json else value
        found = json_form(f.type, inner, release)
        # An embedded struct has no name.
        if isinstance(found, dict) and (not f.json or f.name == "ObjectMeta"):
            out.update(found)
        elif f.name != "ObjectMeta":
            out[f.name] = found
    return out


# Maps of published types. Go sorts the keys of a map, and keeps the order of the fields of a struct.
_MAPS = frozenset(("annotations", "labels", "matchLabels"))


def _sorted_maps(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: dict(sorted(found.items())) if name in _MAPS and found else found
        for name, found in value.items()
    }


_JSON_ZEROS: dict[str, Any] = {
    "bool": False,
    "int": 0,
    "int32": 0,
    "int64": 0,
    "string": "",
    "intstr.IntOrString": 0,
    "resource.Quantity": "0",
    "core.ResourceList": None,
    "v1.Time": None,
    "v1.LabelSelector": {},
}


def _member(name: str, json: str, go_type: str, parent: dict[str, Any], release: Release) -> str:
    inner = lift_fields(go_type, parent, parent.get(json)) if json else parent
    return f"{name}:{_dump(go_type, inner, release)}"


def lift_fields(go_type: str, parent: dict[str, Any], value: Any) -> Any:
    """The value of a field, with the members that its Go type has but JSON keeps in the parent."""
    moved = LIFTED.get(go_type.lstrip("*"))
    if moved is None or value is None:
        return value
    return {**value, **{key: parent[key] for key in moved if key in parent}}


def _address(value: Any) -> str:
    return f"0xc{id(value) & 0xFFFFFFFF:09x}"
