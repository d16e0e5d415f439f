"""Bad values as Go's %#v prints them, from the JSON dicts we hold.

Where Go prints the address of what a pointer points to, so do we: an address-like number, since no client can expect a
certain one.
"""

from __future__ import annotations

from typing import Any

from transom.machinery.field import GoText, go_quote
from transom.machinery.quantity import parse
from transom.machinery.validation.gotypes import LIFTED, fields

_NUMBERS = {"int", "int32", "int64", "bool"}
_ZERO_TIME = "v1.Time{Time:time.Time{wall:0x0, ext:0, loc:(*time.Location)(nil)}}"


def dump(go_type: str, value: Any) -> GoText:
    """A value of a type of the table (`core.Toleration`, `[]string`, `map[string]string`) in Go syntax.

    A time on its own is printed by its own method; an absent one is a null pointer.
    """
    if go_type == "v1.Time":
        return GoText('"null"' if value is None else _time_text(value))
    return GoText(_dump(go_type, value))


def _time_text(stamp: str) -> str:
    return f"{stamp.replace('T', ' ', 1).removesuffix('Z')} +0000 UTC"


def label_selector(value: dict[str, Any]) -> GoText:
    return dump("v1.LabelSelector", value)


def string_map(value: dict[str, str] | None) -> GoText:
    return dump("map[string]string", value)


def int_or_string(value: int | str) -> GoText:
    if isinstance(value, int):
        return GoText(f'intstr.IntOrString{{Type:0, IntVal:{value}, StrVal:""}}')
    return GoText(f"intstr.IntOrString{{Type:1, IntVal:0, StrVal:{go_quote(value)}}}")


def quantity(text: str) -> GoText:
    """A quantity: mantissa and scale as they are written, then the text itself."""
    parsed = parse(text)
    return GoText(
        f"resource.Quantity{{i:resource.int64Amount{{value:{parsed.mantissa}, scale:{parsed.exponent}}}, "
        f"d:resource.infDecAmount{{Dec:(*inf.Dec)(nil)}}, s:{go_quote(text)}, Format:{go_quote(parsed.format)}}}"
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
        return go_type + "{" + ", ".join(f"{go_quote(k)}:{go_quote(value[k])}" for k in sorted(value)) + "}"
    if go_type.startswith("map[string]"):
        if not value:
            return f"{go_type}(nil)"
        inner = go_type.removeprefix("map[string]")
        return go_type + "{" + ", ".join(f"{go_quote(k)}:{_dump(inner, value[k])}" for k in sorted(value)) + "}"
    if go_type in ("apiextensions.JSONSchemaDependencies", "apiextensions.JSONSchemaDefinitions"):
        return f"{go_type}(nil)"
    if go_type == "core.ResourceList":
        if not value:
            return f"{go_type}(nil)"
        return go_type + "{" + ", ".join(f"{go_quote(k)}:{quantity(value[k])}" for k in sorted(value)) + "}"
    if go_type == "resource.Quantity":
        return quantity(value or "0")
    if go_type == "intstr.IntOrString":
        return int_or_string(0 if value is None else value)
    if go_type == "v1.Time":
        return _ZERO_TIME
    if go_type in _NUMBERS:
        return str(value or 0) if go_type != "bool" else ("true" if value else "false")
    members = fields(go_type)
    if members is None:
        return go_quote(value or "") if value is None or isinstance(value, str) else str(value)
    value = value or {}
    return go_type + "{" + ", ".join(_member(f.name, f.json, f.type, value) for f in members) + "}"


def _member(name: str, json: str, go_type: str, parent: dict[str, Any]) -> str:
    inner = lift(go_type, parent, parent.get(json)) if json else parent
    return f"{name}:{_dump(go_type, inner)}"


def lift(go_type: str, parent: dict[str, Any], value: Any) -> Any:
    """The value of a field, with the members that its Go type has and JSON keeps in the parent."""
    moved = LIFTED.get(go_type.lstrip("*"))
    if moved is None or value is None:
        return value
    return {**value, **{key: parent[key] for key in moved if key in parent}}


def _address(value: Any) -> str:
    return f"0xc{id(value) & 0xFFFFFFFF:09x}"
