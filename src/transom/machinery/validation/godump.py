"""Prints values like Go's %#v, from JSON dicts.

Go prints pointers as addresses; this module prints an address-like number, since clients cannot
expect a particular one.
"""

from __future__ import annotations

from typing import Any

from transom.kit.goquote import go_quote
from transom.machinery.field import GoText
from transom.machinery.quantity import parse_quantity
from transom.machinery.validation.gotypes import LIFTED, struct_fields

_NUMBERS = {"int", "int32", "int64", "bool"}
_ZERO_TIME = "v1.Time{Time:time.Time{wall:0x0, ext:0, loc:(*time.Location)(nil)}}"


def go_dump(go_type: str, value: Any) -> GoText:
    """A value of a type of the table (`core.Toleration`, `[]string`, `map[string]string`) in Go
    syntax.

    A top-level time is printed by its own method; a missing one is a nil pointer.
    """
    if go_type == "v1.Time":
        return GoText('"null"' if value is None else _time_text(value))
    return GoText(_dump(go_type, value))


def _time_text(stamp: str) -> str:
    return f"{stamp.replace('T', ' ', 1).removesuffix('Z')} +0000 UTC"


def dump_label_selector(value: dict[str, Any]) -> GoText:
    return go_dump("v1.LabelSelector", value)


def dump_string_map(value: dict[str, str] | None) -> GoText:
    return go_dump("map[string]string", value)


def dump_int_or_string(value: int | str) -> GoText:
    if isinstance(value, int):
        return GoText(f'intstr.IntOrString{{Type:0, IntVal:{value}, StrVal:""}}')
    return GoText(f"intstr.IntOrString{{Type:1, IntVal:0, StrVal:{go_quote(value)}}}")


def dump_quantity(text: str) -> GoText:
    """A quantity: mantissa and scale as written, then the text."""
    parsed = parse_quantity(text)
    return GoText(
        f"resource.Quantity{{i:resource.int64Amount{{value:{parsed.mantissa}, "
        f"scale:{parsed.exponent}}}, "
        f"d:resource.infDecAmount{{Dec:(*inf.Dec)(nil)}}, s:{go_quote(text)}, "
        f"Format:{go_quote(parsed.format)}}}"
    )


def _dump(go_type: str, value: Any) -> str:
    if go_type == "*v1.Time":  # prints itself, even as a pointer
        return "<nil>" if value is None else _time_text(value)
    if go_type.startswith("*"):
        return f"({go_type})(nil)" if value is None else f"({go_type})({_address(value)})"
    if go_type.startswith("[]"):
        if not value:
            return f"{go_type}(nil)"
        return go_type + "{" + ", ".join(_dump(go_type[2:], v) for v in value) + "}"
    if go_type == "map[string]string":
        if not value:
            return f"{go_type}(nil)"
        return (
            go_type
            + "{"
            + ", ".join(f"{go_quote(k)}:{go_quote(value[k])}" for k in sorted(value))
            + "}"
        )
    if go_type.startswith("map[string]"):
        if not value:
            return f"{go_type}(nil)"
        inner = go_type.removeprefix("map[string]")
        return (
            go_type
            + "{"
            + ", ".join(f"{go_quote(k)}:{_dump(inner, value[k])}" for k in sorted(value))
            + "}"
        )
    if go_type in ("apiextensions.JSONSchemaDependencies", "apiextensions.JSONSchemaDefinitions"):
        return f"{go_type}(nil)"
    if go_type == "core.ResourceList":
        if not value:
            return f"{go_type}(nil)"
        return (
            go_type
            + "{"
            + ", ".join(f"{go_quote(k)}:{dump_quantity(value[k])}" for k in sorted(value))
            + "}"
        )
    if go_type == "resource.Quantity":
        return dump_quantity(value or "0")
    if go_type == "intstr.IntOrString":
        return dump_int_or_string(0 if value is None else value)
    if go_type == "v1.Time":
        return _ZERO_TIME
    if go_type in _NUMBERS:
        return str(value or 0) if go_type != "bool" else ("true" if value else "false")
    members = struct_fields(go_type)
    if members is None:
        return go_quote(value or "") if value is None or isinstance(value, str) else str(value)
    value = value or {}
    return go_type + "{" + ", ".join(_member(f.name, f.json, f.type, value) for f in members) + "}"


def _member(name: str, json: str, go_type: str, parent: dict[str, Any]) -> str:
    inner = lift_fields(go_type, parent, parent.get(json)) if json else parent
    return f"{name}:{_dump(go_type, inner)}"


def lift_fields(go_type: str, parent: dict[str, Any], value: Any) -> Any:
    """The value of a field, with the members that its Go type has but JSON keeps in the parent."""
    moved = LIFTED.get(go_type.lstrip("*"))
    if moved is None or value is None:
        return value
    return {**value, **{key: parent[key] for key in moved if key in parent}}


def _address(value: Any) -> str:
    return f"0xc{id(value) & 0xFFFFFFFF:09x}"
