"""The fields of messages: the numbers of `numbers.txt` joined with the types of the schema.

The table is read on first use, and each message is built on first use. Does not encode or decode.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from transom.machinery import schema
from transom.machinery.schema import SchemaType, SchemaValue

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


def message_names() -> list[str]:
    """The full name of every message."""
    return list(_lines())


def is_known_message(name: str) -> bool:
    return name in _lines()


@cache
def message_fields(name: str) -> tuple[FieldRow, ...]:
    """The fields of a message by rising number; KeyError if there is no such message."""
    of = schema.get_schema_type(name.replace(_OLD_META, _META))
    out = []
    number = 0
    for entry in _lines()[name].split():
        field, _, given = entry.partition("=")
        number = int(given) if given else number + 1
        out.append(_inline(number, field[1:], of) if field[0] == "&" else _row(number, field, of))
    return tuple(out)


def _row(number: int, name: str, of: SchemaType) -> FieldRow:
    field = of.properties[name]
    return FieldRow(number, name, field.go_path[-1], field.value)


def _inline(number: int, name: str, of: SchemaType) -> FieldRow:
    ref = name if "/" in name else f"{of.id.partition('.')[0]}.{name}"
    return FieldRow(number, "", ref.rpartition(".")[2], SchemaValue("struct", "", ref=ref))


def is_message_of_items(value: SchemaValue) -> bool:
    """A named list-of-strings type is a message that holds the list."""
    return (
        value.kind == "list"
        and not value.go_name.startswith("[]")
        and value.item is not None
        and value.item.kind == "string"
    )
