"""Which fields a message has: the numbers of `numbers.txt` joined with the types of the schema.

The table is read on first use, and a message is put together when somebody asks for it. Knows no bytes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from transom.machinery import schema
from transom.machinery.schema import Type, Value

_OLD_META, _META = "meta/v1beta1.", "meta/v1."


class Row(NamedTuple):
    number: int
    name: str  # in JSON; "" when the fields of `value` are the message's own in JSON
    go_name: str
    value: Value


@cache
def _lines() -> dict[str, str]:
    lines = Path(__file__).with_name("numbers.txt").read_text(encoding="utf-8").splitlines()
    table = {}
    for line in lines:
        name, _, fields = line.partition(" ")
        if name and name != "#":
            table[name] = fields
    return table


def names() -> list[str]:
    """The full name of every message."""
    return list(_lines())


def known(name: str) -> bool:
    return name in _lines()


@cache
def rows(name: str) -> tuple[Row, ...]:
    """The fields of a message by rising number; KeyError when there is no such message."""
    of = schema.get(name.replace(_OLD_META, _META))
    out = []
    number = 0
    for entry in _lines()[name].split():
        field, _, given = entry.partition("=")
        number = int(given) if given else number + 1
        out.append(_inline(number, field[1:], of) if field[0] == "&" else _row(number, field, of))
    return tuple(out)


def _row(number: int, name: str, of: Type) -> Row:
    field = of.properties[name]
    return Row(number, name, field.go_path[-1], field.value)


def _inline(number: int, name: str, of: Type) -> Row:
    ref = name if "/" in name else f"{of.id.partition('.')[0]}.{name}"
    return Row(number, "", ref.rpartition(".")[2], Value("struct", "", ref=ref))


def is_message_of_items(value: Value) -> bool:
    """A list of strings with a type name of its own is a message that holds the list."""
    return value.kind == "list" and not value.go_name.startswith("[]") and value.item is not None \
        and value.item.kind == "string"
