"""The fields of messages: numbers joined with the types of the schema.

Releases up to 1.20 have the numbers of `numbers.txt`, later ones those of their own types
(`releases/types.txt`). The tables are read on first use, and each message is built on first use.
Does not encode or decode.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from transom.machinery.schema import BASE, SchemaTable, SchemaType, SchemaValue

_OLD_META, _META = "meta/v1beta1.", "meta/v1."


class FieldRow(NamedTuple):
    number: int
    name: str  # in JSON; "" if the fields of `value` are inlined in JSON
    go_name: str
    value: SchemaValue


@cache
def _lines() -> dict[str, str]:
    lines = Path(__file__).with_name("numbers.txt").read_text(encoding="utf-8").splitlines()
    table = {}
    for line in lines:
        name, _, fields = line.partition(" ")
        if name and name != "#":
            table[name] = fields
    return table


def message_names(table: SchemaTable = BASE) -> list[str]:
    """The full name of every message."""
    if table is BASE:
        return list(_lines())
    return [name for name in table.names() if is_known_message(name, table)]


def is_known_message(name: str, table: SchemaTable = BASE) -> bool:
    if table is BASE or name not in table:
        return name in _lines()
    return bool(table.field_numbers(name)) or not table.get(name).properties


def message_fields(name: str, table: SchemaTable = BASE) -> tuple[FieldRow, ...]:
    """The fields of a message by rising number; KeyError if there is no such message."""
    if table is BASE or name not in table:
        of, numbers = BASE.get(name.replace(_OLD_META, _META)), _base_numbers(name)
    else:
        of, numbers = table.get(name), sorted(table.field_numbers(name), key=lambda row: row[1])
    return tuple(
        _inline(number, field[1:], of) if field[0] == "&" else _row(number, field, of)
        for field, number in numbers
    )


def _base_numbers(name: str) -> list[tuple[str, int]]:
    out = []
    number = 0
    for entry in _lines()[name].split():
        field, _, given = entry.partition("=")
        number = int(given) if given else number + 1
        out.append((field, number))
    return out


def _row(number: int, name: str, of: SchemaType) -> FieldRow:
    field = of.properties[name]
    return FieldRow(number, name, field.go_path[-1], field.value)


def _inline(number: int, name: str, of: SchemaType) -> FieldRow:
    ref = name if "/" in name else f"{of.id.partition('.')[0]}.{name}"
    value = SchemaValue("struct", "", ref=ref, table=of.table)
    return FieldRow(number, "", ref.rpartition(".")[2], value)


def is_message_of_items(value: SchemaValue) -> bool:
    """A named list-of-strings type is a message that holds the list."""
    return (
        value.kind == "list"
        and not value.go_name.startswith("[]")
        and value.item is not None
        and value.item.kind == "string"
    )
