"""Tables of custom resources: the columns of a CustomResourceDefinition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from transom.machinery.tables.jsonpath import Budget, Path, PathError, compile_path
from transom.machinery.tables.text import (
    INVALID,
    Object,
    human_duration,
    name_cell,
    since_cell,
    timestamp,
)


class CustomColumns(NamedTuple):
    """Column definitions and a function that returns the cells of a row."""

    definitions: list[dict[str, Any]]
    cells: Callable[[Object, float], list[Any]]


def build_custom_columns(
    name_column: dict[str, Any], age_column: dict[str, Any], wanted: Iterable[Mapping[str, Any]]
) -> CustomColumns:
    """The name column first, then the columns of the definition, or the age if there are none. An
    invalid path ends the table.
    """
    wanted = list(wanted) or [
        {
            "name": "Age",
            "type": "date",
            "description": age_column["description"],
            "jsonPath": ".metadata.creationTimestamp",
        }
    ]
    definitions = [name_column]
    readers: list[tuple[str, Path]] = []
    for column in wanted:
        path = column.get("jsonPath", "")
        try:
            find = compile_path(path)
        except PathError:
            break
        readers.append((column.get("type", ""), find))
        definitions.append(
            {
                "name": column.get("name", ""),
                "type": column.get("type", ""),
                "format": column.get("format", ""),
                "description": column.get("description")
                or f"Custom resource definition column (in JSONPath format): {path}",
                "priority": column.get("priority", 0),
            }
        )

    def cells(obj: Object, now: float) -> list[Any]:
        budget = Budget()  # of all columns
        return [name_cell(obj), *(_cell(kind, find, obj, now, budget) for kind, find in readers)]

    return CustomColumns(definitions, cells)


def _cell(kind: str, find: Path, obj: Object, now: float, budget: Budget) -> Any:
    """A cell whose path selects too many values is empty."""
    try:
        found = find(obj, budget)
    except PathError:
        return None
    if not found:
        return None
    value = found[0]  # a column shows one value
    if kind == "string":
        return go_text(value)
    return _TYPED[kind](value, now) if kind in _TYPED and value is not None else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _date(value: Any, now: float) -> str | None:
    if not isinstance(value, str):
        return None
    if value in ("", "null"):
        return since_cell(None, now)
    try:
        return human_duration(now - timestamp(value))
    except ValueError:
        return INVALID


_INT64 = 1 << 63
_TYPED: dict[str, Callable[[Any, float], Any]] = {
    "integer": lambda value, now: _int64(value) if _is_number(value) else None,
    "number": lambda value, now: float(value) if _is_number(value) else None,
    "boolean": lambda value, now: value if isinstance(value, bool) else None,
    "date": _date,
}


def _int64(value: float) -> int:
    """Go's int64(value): a number out of range becomes the smallest one."""
    return int(value) if -_INT64 <= value < _INT64 else -_INT64


def go_text(value: Any) -> str:
    """A JSON value as Go prints it: text without quotes, lists and objects as JSON, floats in the
    shortest form.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, int):
        return str(value)
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _float(value: float) -> str:
    """Go's %v: an exponent only below 1e-4 and from 1e21 on."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    return f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].zfill(2)}"
