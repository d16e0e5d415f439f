"""Reads the printer columns of one release of Kubernetes from its Go source.

Used by `tools/release_facts.py`. Only facts are taken: names, types and descriptions of columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_TABLE = re.compile(r"(\w+) :?= \[\]metav1(?:beta1)?\.TableColumnDefinition\{\n(.*?)\n\t\}", re.S)
_MORE = re.compile(
    r"(\w+) = append\(\1, \[\]metav1\.TableColumnDefinition\{\n(.*?)\n\t+\}\.\.\.\)", re.S
)
_COLUMN = re.compile(r"\{(Name: .*)\},")
_HANDLER = re.compile(r"h\.TableHandler\((\w+), (\w+)\)")
_PRINTER = re.compile(r"^func (print\w+)\(\w+ \*(\w+)\.(\w+),", re.M)
_TEXT = re.compile(r'(\w+): "((?:[^"\\]|\\.)*)"')
_DOC = re.compile(r'Description: (\w+)\.(\w+)\{\}(?:\.(\w+))?\.SwaggerDoc\(\)\["(\w*)"\]')
# The types of the fields whose documentation a column shows.
_FIELD_TYPES = {("Event", "InvolvedObject"): "ObjectReference"}
_MAP = re.compile(r"var map_(\w+) = map\[string\]string\{\n(.*?)\n\}", re.S)
_ENTRY = re.compile(r'^\s*"(\w*)":\s*"((?:[^"\\]|\\.)*)",$', re.M)
_IMPORT = re.compile(r'^\s*(\w+)\s+"([^"]+)"', re.M)


class Column(NamedTuple):
    name: str
    type: str
    format: str
    priority: int
    description: str


def unquoted(text: str) -> str:
    """A Go string literal's value; its escapes are those of JSON."""
    return str(json.loads(f'"{text}"'))


def documented(texts: Iterable[tuple[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
    """(import path, struct) -> field -> description, from generated swagger documentation."""
    out = {}
    for path, text in texts:
        for struct, body in _MAP.findall(text):
            out[path, struct] = {name: unquoted(about) for name, about in _ENTRY.findall(body)}
    return out


def kind_columns(
    printers: str, docs: dict[tuple[str, str], dict[str, str]]
) -> Iterator[tuple[str, list[Column]]]:
    """Kind -> its columns."""
    imports = dict(_IMPORT.findall(printers.partition(")\n")[0]))
    tables = dict(_TABLE.findall(printers))
    for table, more in _MORE.findall(printers):
        tables[table] += "\n" + more
    kinds = {function: kind for function, _, kind in _PRINTER.findall(printers)}
    for table, function in _HANDLER.findall(printers):
        kind = kinds.get(function, "")
        if table in tables and kind and not kind.endswith("List"):
            yield kind, [_column(text, imports, docs) for text in _COLUMN.findall(tables[table])]


def _column(
    text: str, imports: dict[str, str], docs: dict[tuple[str, str], dict[str, str]]
) -> Column:
    notes = {name: unquoted(value) for name, value in _TEXT.findall(text)}
    found = _DOC.search(text)
    if found:
        package, struct, member, name = found.groups()
        if member:
            struct = _FIELD_TYPES[struct, member]
        notes["Description"] = docs.get((imports[package], struct), {}).get(name, "")
    priority = re.search(r"Priority: (\d+)", text)
    return Column(
        notes["Name"],
        notes.get("Type", ""),
        notes.get("Format", ""),
        int(priority[1]) if priority else 0,
        notes.get("Description", ""),
    )
