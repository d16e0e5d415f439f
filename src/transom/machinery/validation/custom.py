"""Validates custom objects with the OpenAPI v3 schema of their definition, with the API's messages.

The schema is the JSON of `openAPIV3Schema`. Peculiarities: errors of list items have the path of
the list, and errors of `anyOf`, `oneOf`, `allOf` and `not` have no field at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple
from transom.kit.regexp import RegexpError, compile_regexp
from transom.machinery import gojson
from transom.machinery.field import (
    OMITTED,
    FieldError,
    GoText,
    errors_are_omitted,
    invalid,
    not_supported,
    required,
)
from transom.machinery.objects import same_json
from transom.machinery.validation.formats import format_check
from transom.machinery.validation.repetitions import repetitions

Schema = Mapping[str, Any]
_INT_OR_STRING = ("integer", "string")
_MAX_INT = (1 << 63) - 1


def go_json(value: Any) -> str:
    """A JSON value as Go's %#v prints it."""
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, dict):
        return (
            "map[string]interface {}{"
            + ", ".join(f"{go_quote(k)}:{go_json(value[k])}" for k in sorted(value))
            + "}"
        )
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(map(go_json, value)) + "}"
    return go_quote(value) if isinstance(value, str) else go_number(value)


def go_number(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e21:
            return str(int(value))
        mantissa, e, exponent = repr(value).partition("e")
        return (
            f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].zfill(2)}" if e else mantissa
        )
    return str(value)


def shown_value(value: Any) -> Any:
    """An invalid value of any JSON type, formatted for a field error."""
    if isinstance(value, dict | list):
        return GoText(go_json(value), gojson.marshal(value).decode())
    return GoText(go_number(value)) if isinstance(value, float) else value


class _Result:
    """Errors, and the number of successful checks: of several failures, the one with most is
    reported.
    """

    __slots__ = ("errors", "matches")

    def __init__(self) -> None:
        self.errors: dict[FieldError, None] = {}  # an ordered set
        self.matches = 0

    def add(self, error: FieldError) -> None:
        self.errors[error] = None

    def merge(self, other: _Result) -> None:
        self.matches += other.matches
        self.errors.update(other.errors)


class SchemaOptions(NamedTuple):
    """What validation with a schema does since a release.

    `typed`: errors have paths with the indexes of list items, and the number of properties.
    `numeric_formats`: numbers must fit into the type and format of their schema.
    `name_formats`: `k8s-short-name` and `k8s-long-name` are known.
    `status_alone`: the status subresource is validated by the schema of the status.
    `status_lists`: elements of lists are unique in a new status too.
    `positive_factors`: zero is no factor for multipleOf.
    """

    typed: bool = False
    numeric_formats: bool = False
    name_formats: bool = False
    status_alone: bool = False
    status_lists: bool = False
    positive_factors: bool = False


NO_OLD_VALUE: Any = object()
OF_1_20 = SchemaOptions()


class _At:
    """The current place in the value, how its errors are written, and the old value there."""

    __slots__ = ("name", "old", "root", "rules")

    def __init__(
        self, root: str, name: str, rules: SchemaOptions = OF_1_20, old: Any = NO_OLD_VALUE
    ) -> None:
        self.root, self.name, self.rules, self.old = root, name, rules, old

    def child(self, key: str) -> _At:
        return self.entry(key, f"{self.name}.{key}" if self.name else key)

    def entry(self, key: str, name: str) -> _At:
        old = self.old.get(key, NO_OLD_VALUE) if isinstance(self.old, dict) else NO_OLD_VALUE
        return _At(self.root, name, self.rules, old)

    def item(self, index: int, old: Any) -> _At:
        name = f"{self.name}[{index}]" if self.rules.typed else self.name
        return _At(self.root, name, self.rules, old)

    @property
    def path(self) -> str:
        if not self.name or self.name == ".":
            return self.root or "<nil>"
        name = self.name.removeprefix(".")
        return f"{self.root}.{name}" if self.root else name

    def bad(self, value: Any, text: str) -> FieldError:
        return invalid(
            self.path, "" if value is None else shown_value(value), f"{self.name} in body {text}"
        )

    def choice(self, text: str) -> FieldError:
        return invalid(self.root or "<nil>", "", f"{go_quote(self.name)} {text}")


def validate_value(
    schema: Schema,
    value: Any,
    path: str = "",
    *,
    rules: SchemaOptions = OF_1_20,
    old: Any = NO_OLD_VALUE,
) -> list[FieldError]:
    """The errors of a value; `path` prefixes the fields. What is the same as in the `old` value may
    stay invalid.
    """
    return list(_validate(schema, value, _At(path, "", rules, old)).errors)


def _types(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return _INT_OR_STRING
    kind = schema.get("type")
    return (kind,) if kind else ()


def _type_of(value: Any) -> tuple[str, str]:
    """The JSON type, and the format of the Go type that holds it."""
    if isinstance(value, bool):
        return "boolean", ""
    if isinstance(value, int):
        return ("integer", "int64") if -_MAX_INT - 1 <= value <= _MAX_INT else ("number", "float64")
    if isinstance(value, float):
        return "number", "float64"
    if isinstance(value, str):
        return "string", ""
    return ("array", "") if isinstance(value, list) else ("object", "")


def _validate(schema: Schema, value: Any, at: _At) -> _Result:
    result = _validate_changed(schema, value, at)
    if result.errors and at.old is not NO_OLD_VALUE and same_json(value, at.old):
        result.errors.clear()
    return result


def _validate_changed(schema: Schema, value: Any, at: _At) -> _Result:
    result = _Result()
    types = _types(schema)
    format_name = schema.get("format", "")
    names = at.rules.name_formats
    if format_name and format_check(format_name, kubernetes_names=names) is None:
        format_name = ""
    if value is None:
        if types and not schema.get("nullable"):
            result.add(at.bad("null", f'must be of type {",".join(types)}: "null"'))
        else:
            result.matches += 1
        if schema.get("enum"):
            result.add(_enum_error(schema["enum"], value, at))
        return result
    kind, inferred = _type_of(value)
    numeric = schema.get("format") if at.rules.numeric_formats else None
    if numeric in _NUMERIC_FORMATS:
        _check_type(types, numeric, kind, inferred, value, at, result)
        result.matches += 1
    elif types or format_name:
        _check_type(types, format_name, kind, inferred, value, at, result)
        result.matches += 1
    _check_choices(schema, value, at, result)
    result.matches += 1
    check = _BY_TYPE.get(kind)
    if check is not None and kind != "object":
        check(schema, value, at, result)
        result.matches += 1
    if kind == "string" and format_name:
        if not format_check(format_name, kubernetes_names=names)(value):  # type: ignore[misc]
            result.add(at.bad(value, f"must be of type {format_name}: {go_quote(value)}"))
        result.matches += 1
    if schema.get("enum") and not any(_equal(value, allowed) for allowed in schema["enum"]):
        result.add(_enum_error(schema["enum"], value, at))
    result.matches += 1
    if kind == "object":
        _check_object(schema, value, at, result)
        result.matches += 1
    result.matches += 1
    return result


def _check_type(
    types: tuple[str, ...],
    format_name: str,
    kind: str,
    inferred: str,
    value: Any,
    at: _At,
    result: _Result,
) -> None:
    whole = kind == "number" and "integer" in types and _nearly_whole(float(value))
    fits = kind in types or whole or (kind == "integer" and "number" in types)
    textual = kind in ("string", "array")
    if not textual and format_name and not (fits or inferred == format_name):
        result.add(at.bad(inferred, f"must be of type {format_name}: {go_quote(inferred)}"))
    elif textual and format_name and "number" not in types and "integer" not in types:
        result.matches += 1
    elif not fits:
        result.add(at.bad(kind, f"must be of type {','.join(types)}: {go_quote(kind)}"))
    else:
        result.matches += 1


def _equal(value: Any, allowed: Any) -> bool:
    if isinstance(value, bool) or isinstance(allowed, bool):
        return value is allowed
    return bool(value == allowed)


def _enum_error(allowed: list[Any], value: Any, at: _At) -> FieldError:
    if errors_are_omitted():
        return OMITTED
    texts = [text if isinstance(text, str) else orjson.dumps(text).decode() for text in allowed]
    return not_supported(at.path, shown_value(value), texts)


def _check_choices(schema: Schema, value: Any, at: _At, result: _Result) -> None:
    result.matches += 1
    if schema.get("anyOf"):
        _check_any_of(schema["anyOf"], value, at, result)
    if schema.get("oneOf"):
        _check_one_of(schema["oneOf"], value, at, result)
    if schema.get("allOf"):
        outcomes = [_validate(option, value, at) for option in schema["allOf"]]
        for outcome in outcomes:
            result.merge(outcome)
        good = sum(not outcome.errors for outcome in outcomes)
        if good != len(outcomes):
            result.add(
                at.choice(
                    "must validate all the schemas (allOf)" + ("" if good else ". None validated")
                )
            )
    if schema.get("not") is not None and not _validate(schema["not"], value, at).errors:
        result.add(at.choice("must not validate the schema (not)"))


def _check_any_of(options: list[Schema], value: Any, at: _At, result: _Result) -> None:
    best: _Result | None = None
    for option in options:
        outcome = _validate(option, value, at)
        if not outcome.errors:
            result.merge(outcome)
            return
        if best is None or outcome.matches > best.matches:
            best = outcome
    result.add(at.choice("must validate at least one schema (anyOf)"))
    if best is not None:
        result.merge(best)


def _check_one_of(options: list[Schema], value: Any, at: _At, result: _Result) -> None:
    outcomes = [_validate(option, value, at) for option in options]
    good = [outcome for outcome in outcomes if not outcome.errors]
    if len(good) == 1:
        result.merge(good[0])
        return
    found = f"Found {len(good)} valid alternatives" if good else "Found none valid"
    result.add(at.choice(f"must validate one and only one schema (oneOf). {found}"))
    if not good:
        result.merge(max(outcomes, key=lambda outcome: outcome.matches))


def _check_string(schema: Schema, value: str, at: _At, result: _Result) -> None:
    longest, shortest, pattern = (
        schema.get("maxLength"),
        schema.get("minLength"),
        schema.get("pattern"),
    )
    if longest is not None and len(value) > longest:
        result.add(at.bad(value, f"should be at most {longest} chars long"))
    elif shortest is not None and len(value) < shortest:
        result.add(at.bad(value, f"should be at least {shortest} chars long"))
    elif pattern:
        try:
            if not compile_regexp(pattern).match_string(value):
                result.add(at.bad(value, f"should match '{pattern}'"))
        except RegexpError as error:
            result.add(at.bad(value, f"should match '{pattern}, but pattern is invalid: {error}'"))


def _check_number(schema: Schema, value: int | float, at: _At, result: _Result) -> None:
    native: Callable[[Any], Any] = int if isinstance(value, int) else float
    if at.rules.numeric_formats and not _fits_format(schema, value):
        kind, form = schema["type"], schema.get("format")
        shown = f"with format {form}" if form in _FORMATS[kind] else "(default format)"
        text = f"Checked value must be of type {kind} {shown} in {at.name}"
        result.add(invalid(at.root or "<nil>", "", text))
    factor = schema.get("multipleOf")
    if factor is not None:
        _check_multiple(native(factor), value, at, result)
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    if minimum is not None:
        bound, strict = native(minimum), schema.get("exclusiveMinimum")
        if value <= bound if strict else value < bound:
            words = "greater than" if strict else "greater than or equal to"
            result.add(at.bad(value, f"should be {words} {go_number(bound)}"))
    if maximum is not None:
        bound, strict = native(maximum), schema.get("exclusiveMaximum")
        if value >= bound if strict else value > bound:
            words = "less than" if strict else "less than or equal to"
            result.add(at.bad(value, f"should be {words} {go_number(bound)}"))
    result.matches += 1


_FORMATS = {"integer": ("int32", "int64"), "number": ("float", "double")}
_NUMERIC_FORMATS = frozenset(name for names in _FORMATS.values() for name in names)
_MAX_FLOAT32 = 3.4028234663852886e38


def _fits_format(schema: Schema, value: int | float) -> bool:
    kind, form = schema.get("type"), schema.get("format")
    if kind == "integer":
        if not float(value).is_integer():
            return False
        bits = 31 if form == "int32" else 63
        return -(1 << bits) <= int(value) < 1 << bits
    return not (kind == "number" and form == "float" and abs(value) > _MAX_FLOAT32)


def _check_multiple(factor: int | float, value: int | float, at: _At, result: _Result) -> None:
    if factor < 0 or (factor == 0 and at.rules.positive_factors):
        result.add(
            invalid(
                at.path,
                shown_value(factor),
                f"factor MultipleOf declared for {at.name} must be positive: {go_number(factor)}",
            )
        )
        return
    if isinstance(value, int):
        fits = factor != 0 and value % factor == 0
    else:
        fits = factor != 0 and _nearly_whole(1 / factor * value if factor < 1 else value / factor)
    if not fits:
        result.add(at.bad(value, f"should be a multiple of {go_number(factor)}"))


def _nearly_whole(value: float) -> bool:
    """Whether it is whole within the tolerance of the API's JSON library."""
    if math.isnan(value) or math.isinf(value) or abs(value) > 2**53 - 1:
        return False
    nearest = float(int(value))
    gap = abs(value - nearest)
    if value == nearest:
        return True
    return nearest != 0 and gap / (abs(value) + abs(nearest)) < 1e-9


def _check_list(schema: Schema, value: list[Any], at: _At, result: _Result) -> None:
    items = schema.get("items")
    if isinstance(items, dict):
        before = _correlated(schema, at.old)
        for i, item in enumerate(value):
            old = before(item) if before is not None else NO_OLD_VALUE
            result.merge(_validate(items, item, at.item(i, old)))
    fewest, most = schema.get("minItems"), schema.get("maxItems")
    if fewest is not None and len(value) < fewest:
        result.add(at.bad(len(value), f"should have at least {fewest} items"))
    if most is not None and len(value) > most:
        result.add(at.bad(len(value), f"should have at most {most} items"))
    if schema.get("uniqueItems") and repetitions(value):
        result.add(at.bad(None, "shouldn't contain duplicates"))
    result.matches += 1


def _correlated(schema: Schema, old: Any) -> Callable[[Any], Any] | None:
    """Finds the old item with the same keys; only items of lists with keys correspond."""
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return None
    items: dict[bytes, Any] = {}
    for item in old:
        if isinstance(item, dict):
            items.setdefault(_item_key(item, keys), item)
    return lambda item: (
        items.get(_item_key(item, keys), NO_OLD_VALUE) if isinstance(item, dict) else NO_OLD_VALUE
    )


def _item_key(item: dict[str, Any], keys: Sequence[str]) -> bytes:
    return orjson.dumps([item.get(key) for key in keys], option=orjson.OPT_SORT_KEYS)


def _check_object(schema: Schema, value: dict[str, Any], at: _At, result: _Result) -> None:
    fewest, most = schema.get("minProperties"), schema.get("maxProperties")
    if fewest is not None and len(value) < fewest:
        result.add(at.bad(fewest, f"should have at least {fewest} properties"))
        return
    if most is not None and len(value) > most:
        count = len(value) if at.rules.typed else most
        result.add(at.bad(count, f"should have at most {most} properties"))
        return
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    if additional is False:
        for key in value:
            if key not in properties:
                result.add(
                    invalid(at.path, key, f"{at.name}.{key} in body is a forbidden property")
                )
    elif isinstance(additional, dict):
        for key, item in value.items():
            if key not in properties:
                # At the root this name begins with a dot, which is in the message but not in the
                # path.
                result.merge(_validate(additional, item, at.entry(key, f"{at.name}.{key}")))
    for key, inner_schema in properties.items():
        if key in value:
            result.merge(_validate(inner_schema, value[key], at.child(key)))
    for key in schema.get("required") or ():
        if key not in value:
            result.add(required(at.child(key).path))


_BY_TYPE: dict[str, Callable[[Schema, Any, _At, _Result], None]] = {
    "string": _check_string,
    "integer": _check_number,
    "number": _check_number,
    "array": _check_list,
    "object": _check_object,
}
