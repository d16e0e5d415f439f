"""Normalises an object like decoding and encoding in Go: drops unknown fields and zero values of
optional fields, adds fields that are always emitted, and makes quantities and times canonical.

All other code relies on that form, so it is established once, when a request arrives. For speed one
Python function is generated for each type, on first use. The functions only detect *that* a value
has the wrong type; the error message is built elsewhere (`jsoniter`), from the bytes.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from itertools import count
from math import isfinite
from typing import Any

from transom.machinery import gotime, quantity, schema
from transom.machinery.kinds import GVK
from transom.machinery.schema import SchemaField, SchemaTable, SchemaType, SchemaValue
from transom.machinery.serviceaccounts import are_token_sources

Normaliser = Callable[[Any], dict[str, Any]]

INT32 = 1 << 31
INT64 = 1 << 63


# Called for each struct with fields that its function does not read, and by callers before and
# after: consecutive numbers show that all fields were read. Another thread may draw a number in
# between, so only the absence of unknown fields is certain.
mark_unknown_fields = count().__next__


class TypeMismatch(ValueError):
    """A value that Go cannot decode into its field."""


class NeedsText(TypeMismatch):
    """A quantity written as a number with a fraction or exponent: its text matters (`1e3` and
    `1000.0` differ).
    """


class RawFloat(float):
    """A float that keeps its original text."""

    text: str

    def __new__(cls, text: str) -> RawFloat:
        made = super().__new__(cls, text)
        made.text = text
        return made


def normalise_value(of: SchemaType | GVK, obj: dict[str, Any]) -> dict[str, Any]:
    """A new object in the form of a Go round trip. May share parts with the input. Raises
    TypeMismatch.
    """
    kind = of if isinstance(of, SchemaType) else schema.lookup_schema_type(of)
    if kind is None:
        raise LookupError(f"no type for {of}")
    function = normaliser(kind)
    try:
        return function(obj)
    except NeedsText:
        return without_text(function(with_text(obj)))


def normalise_known(of: SchemaType, obj: dict[str, Any]) -> dict[str, Any] | None:
    """The same, or None if the object has unknown fields or does not fit its type."""
    before = mark_unknown_fields()
    try:
        made = normaliser(of)(obj)
    except TypeMismatch:
        return None
    return made if mark_unknown_fields() == before + 1 else None


def with_text(value: Any) -> Any:
    """Floats that carry the text that Go would print for them."""
    kind = value.__class__
    if kind is dict:
        return {k: with_text(v) for k, v in value.items()}
    if kind is list:
        return [with_text(v) for v in value]
    return RawFloat(repr(value)) if kind is float else value


def without_text(value: Any) -> Any:
    """Plain floats again, the only ones that the encoder supports."""
    kind = value.__class__
    if kind is dict:
        return {k: without_text(v) for k, v in value.items()}
    if kind is list:
        return [without_text(v) for v in value]
    return float(value) if kind is RawFloat else value


def normaliser(of: SchemaType) -> Normaliser:
    made = of.table.normalisers.get(_name(of.id))
    return made if made is not None else _compile(of)


# --- what the generated functions call ----------


def _bad(_: Any = None) -> Any:
    raise TypeMismatch


def _strings(value: Any) -> list[str]:
    if value.__class__ is not list:
        raise TypeMismatch
    for item in value:
        if item.__class__ is not str:
            if item is None:
                return _strings([item or "" for item in value])
            raise TypeMismatch
    return value


def _string_map(value: Any) -> dict[str, str]:
    if value.__class__ is not dict:
        raise TypeMismatch
    for item in value.values():
        if item.__class__ is not str:
            if item is None:
                return _string_map({k: v or "" for k, v in value.items()})
            raise TypeMismatch
    return value


def _string(value: Any) -> str:
    if value.__class__ is str:
        return value
    return "" if value is None else _bad()


def _bool(value: Any) -> bool:
    if value is True or value is False:
        return value
    return False if value is None else _bad()


def _int32(value: Any) -> int:
    if value.__class__ is int:
        return value if -INT32 <= value < INT32 else _too_big(value, 32)
    return 0 if value is None else _bad()


def _int64(value: Any) -> int:
    if value.__class__ is int:
        return value if -INT64 <= value < INT64 else _too_big(value, 64)
    return 0 if value is None else _bad()


def _too_big(value: int, bits: int) -> int:
    """Kubernetes' decoder does not detect every overflow; the value it then keeps is part of its
    behaviour.
    """
    number = 0
    for digit in str(abs(value)):
        grown = next_digit(number, int(digit), bits)
        if grown is None:
            raise TypeMismatch
        number = grown
    if number > (1 << (bits - 1)) - (value > 0):
        raise TypeMismatch
    return number if value > 0 else -number


def next_digit(number: int, digit: int, bits: int) -> int | None:
    """Appends a digit to an unsigned integer; None if the decoder detects an overflow."""
    top = 1 << bits
    grown = number * 10 + digit
    return grown if grown < top else grown % top if grown % top >= number else None


def _float(value: Any) -> float:
    """Go prints a float without a fraction as an integer."""
    if value.__class__ is int:
        return value if abs(value) < 1 << 53 else _float(float(value))
    if isinstance(value, float):
        if not isfinite(value):
            raise TypeMismatch
        return int(value) if value.is_integer() and abs(value) < INT64 else float(value)
    return 0 if value is None else _bad()


def _bytes(value: Any) -> str:
    if value.__class__ is str:
        try:
            return b2a_base64(decode_base64(value), newline=False).decode()
        except ValueError:
            raise TypeMismatch from None
    if value.__class__ is list:  # Go reads a list of numbers as bytes, too
        try:
            return b2a_base64(bytes(_int32(item) for item in value), newline=False).decode()
        except ValueError:
            raise TypeMismatch from None
    return "" if value is None else _bad()


def decode_base64(text: str) -> bytes:
    """Standard base64 as Go reads it: line breaks are skipped, padding is required."""
    if "\n" in text or "\r" in text:
        text = text.replace("\n", "").replace("\r", "")
    try:
        return a2b_base64(text, strict_mode=True)
    except Base64Error as e:
        raise ValueError(str(e)) from None


def _time(value: Any) -> str | None:
    if value is None:
        return None
    if value.__class__ is not str:
        raise TypeMismatch
    try:
        return gotime.canonical_time(value)
    except gotime.TimeError:
        raise TypeMismatch from None


def _micro_time(value: Any) -> str | None:
    if value is None:
        return None
    if value.__class__ is not str:
        raise TypeMismatch
    try:
        return gotime.canonical_micro_time(value)
    except gotime.TimeError:
        raise TypeMismatch from None


def _quantity(value: Any) -> str:
    kind = value.__class__
    if kind is RawFloat:
        value = value.text
    elif kind is not str and kind is not int:
        if kind is float:
            raise NeedsText
        return "0" if value is None else _bad()
    try:
        return quantity.canonical_quantity(value)
    except quantity.QuantityError:
        raise TypeMismatch from None


def _int_or_string(value: Any) -> int | str:
    if value.__class__ is str or (value.__class__ is int and -INT32 <= value < INT32):
        return value
    return 0 if value is None else _bad()


def plain_json(value: Any) -> Any:
    """Untyped JSON, as Go prints it after decoding: whole floats become integers."""
    kind = value.__class__
    if kind is dict:
        return {k: plain_json(v) for k, v in value.items()}
    if kind is list:
        return [plain_json(v) for v in value]
    if isinstance(value, float):
        return _float(value)
    if kind is int and not -INT64 <= value < 2 * INT64:
        return plain_json(float(value))
    return value


def _schema_or_bool(value: Any) -> Any:
    return value if value is True or value is False else _schema(value)


def _schema_or_array(value: Any) -> Any:
    """Anything other than an object or a list is accepted silently, and printed as null."""
    if value.__class__ is list:
        return [_schema(item) for item in value] or None
    return _schema(value) if value.__class__ is dict else None


def _schema_or_strings(value: Any) -> Any:
    if value.__class__ is list:
        return _strings(value) or None
    return _schema(value) if value.__class__ is dict else None


def _schema(value: Any) -> dict[str, Any]:
    return normaliser(schema.get_schema_type(schema.JSON_SCHEMA_PROPS))(value)


# --- generating them ----------

# kind of value -> (function that canonicalises it, what Go emits for the zero value)
_LEAVES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "string": (_string, "''"),
    "bool": (_bool, "False"),
    "int32": (_int32, "0"),
    "int64": (_int64, "0"),
    "float": (_float, "0"),
    "bytes": (_bytes, "None"),
    "time": (_time, "None"),
    "microtime": (_micro_time, "None"),
    "duration": (_string, "'0s'"),
    "quantity": (_quantity, "'0'"),
    "int-or-string": (_int_or_string, "0"),
    "raw": (lambda value: value, "None"),
    "fields": (lambda value: value, "None"),
    "any": (plain_json, "None"),
    "json": (plain_json, "None"),
    "schema-or-array": (_schema_or_array, "None"),
    "schema-or-bool": (_schema_or_bool, "None"),
    "schema-or-strings": (_schema_or_strings, "None"),
}
_PROJECTION = "core/v1.VolumeProjection"
# Go structs with a custom JSON form: `omitempty` does not drop them as values.
_STRUCT_LEAVES = frozenset({"time", "microtime", "duration", "quantity", "int-or-string", "raw"})

_HELPERS: dict[str, Any] = {
    "_bad": _bad,
    "_are_token_sources": are_token_sources,
    "_unknown": mark_unknown_fields,
    "_strings": _strings,
    "_string_map": _string_map,
    **{"leaf_" + kind.replace("-", "_"): function for kind, (function, _) in _LEAVES.items()},
}


def _name(type_id: str) -> str:
    return "n_" + type_id.replace("/", "_").replace(".", "_")


def _leaf(kind: str) -> str:
    return "leaf_" + kind.replace("-", "_")


def _compile(of: SchemaType) -> Normaliser:
    name = _name(of.id)
    source = [
        f"def {name}(o):",
        " if o.__class__ is dict:",
        f"  if not reads_{name}(o): _unknown()",
        " else:",
        "  if o is not None: _bad()",
        "  o = {}",
        " get = o.get",
        " out = {}",
    ]
    fields = [f for f in of.properties.values() if not f.gates or of.table.keeps(f)]
    for f in fields:
        source += _field(f, of.keeps_empty_lists, of.shows_empty_lists)
    source.append(" return out")
    namespace = _namespace(of.table)
    namespace[f"reads_{name}"] = frozenset(f.name for f in fields).issuperset
    exec("\n".join(source), namespace)
    made: Normaliser = of.table.normalisers[name]
    return made


def _namespace(table: SchemaTable) -> dict[str, Any]:
    """The functions of a release's types, beside those that they call."""
    if not table.normalisers:
        table.normalisers.update(_HELPERS)
    return table.normalisers


def _struct(value: SchemaValue) -> str:
    """The name of the function for a struct; until its first call, a placeholder that generates it."""
    name = _name(value.ref)
    table = value.table or schema.BASE
    namespace = _namespace(table)
    if name not in namespace:

        def stand_in(given: Any) -> Any:
            return _compile(table.get(value.ref))(given)

        namespace[name] = stand_in
    return name


def _expression(value: SchemaValue, variable: str) -> str:
    """Source that canonicalises a list element or map value."""
    if value.kind == "struct":
        return f"{_struct(value)}({variable})"
    if value.kind == "list":
        return f"(None if {variable} is None else {_list_expression(value, variable)})"
    return f"{_leaf(value.kind)}({variable})"


def _list_expression(value: SchemaValue, variable: str) -> str:
    assert value.item is not None
    if value.item.kind == "string":
        return f"_strings({variable})"
    return (
        f"[{_expression(value.item, 'i')} for i in ({variable} if {variable}.__class__ is list "
        "else _bad())]"
    )


def _field(f: SchemaField, keeps_empty_lists: bool, shows_empty_lists: bool = False) -> list[str]:
    value, out = f.value, f"out[{f.name!r}]"
    lines = [f" v = get({f.name!r})"]
    if value.kind in ("list", "map"):
        return _collection_field(lines, f, out, keeps_empty_lists, shows_empty_lists)
    if value.pointer:
        return _pointer_field(lines, f, out)
    if value.kind == "struct":
        return [*lines, f" {out} = {_struct(value)}(v)"]
    return _value_field(lines, f, out)


def _pointer_field(lines: list[str], f: SchemaField, out: str) -> list[str]:
    nothing = [f" else: {out} = None"] if f.always else []
    if f.kind == "bool":
        return [
            *lines,
            f" if v is True or v is False: {out} = v",
            " elif v is not None: _bad()",
            *nothing,
        ]
    if f.kind == "string":
        return [
            *lines,
            " if v is not None:",
            "  if v.__class__ is not str: _bad()",
            f"  {out} = v",
            *nothing,
        ]
    function = _struct(f.value) if f.kind == "struct" else _leaf(f.kind)
    return [*lines, f" if v is not None: {out} = {function}(v)", *nothing]


def _collection_field(
    lines: list[str],
    f: SchemaField,
    out: str,
    keeps_empty_lists: bool,
    shows_empty_lists: bool,
) -> list[str]:
    value, item = f.value, f.value.item
    assert item is not None
    if value.kind == "list":
        kind, made = "list", _list_expression(value, "v")
        if item.ref == _PROJECTION:  # most pods have the same ones, which are normalised already
            made = f"v if _are_token_sources(v) else {made}"
    else:
        kind = "dict"
        made = (
            "_string_map(v)"
            if item.kind == "string"
            else (f"{{k: {_expression(item, 'i')} for k, i in v.items()}}")
        )
    lines += [
        " if v:",
        f"  if v.__class__ is not {kind}: _bad()",
        f"  {out} = {made}",
        " else:",
        f"  if v is not None and v.__class__ is not {kind}: _bad()",
    ]
    if shows_empty_lists:
        lines.append(f"  if v is not None: {out} = v")
    elif f.always:
        lines.append(f"  {out} = {'v' if keeps_empty_lists else 'None'}")
    return lines


def _value_field(lines: list[str], f: SchemaField, out: str) -> list[str]:
    kind, zero = f.value.kind, _LEAVES[f.value.kind][1]
    if f.omit_zero:
        return [*lines, f" if v is not None: {out} = {_leaf(kind)}(v)"]
    if kind in _STRUCT_LEAVES or f.always:
        return [*lines, f" {out} = {_leaf(kind)}(v) if v is not None else {zero}"]
    if kind == "string":
        return [
            *lines,
            " if v:",
            "  if v.__class__ is not str: _bad()",
            f"  {out} = v",
            " elif v is not None and v.__class__ is not str: _bad()",
        ]
    if kind == "bool":
        return [
            *lines,
            f" if v is True: {out} = v",
            " elif v is not None and v is not False: _bad()",
        ]
    return [*lines, " if v is not None:", f"  v = {_leaf(kind)}(v)", f"  if v: {out} = v"]
