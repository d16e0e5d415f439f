"""The documents' statements, each with its records, what this cluster does about it, and the tests that show it."""

from __future__ import annotations

from typing import Final, NamedTuple

from transom.windows import checklist, registry, wording
from transom.windows.records import Limit, Record, Release
from transom.windows.releases import text

_KINDS: Final = {
    "supported": "works", "procedure": "works", "rule": "does so", "default": "does so", "symptom": "says how",
    "planned": "says so",
}


class Row(NamedTuple):
    id: str
    about: str
    records: list[str]
    does: str  # what this cluster does
    tests: list[str]


def rows(release: Release) -> list[Row]:
    """In the order of the groups. Of several records, those that hold for the release come first, and what works before
    what does not."""
    return [_row(statement, release) for statement in checklist.statements().values()]


def _row(statement: checklist.Statement, release: Release) -> Row:
    records = sorted(registry.by_statement()[statement.id], key=lambda record: _rank(record, release))
    ids = [record.id for record in records]
    return Row(statement.id, statement.words, ids, _does(statement, records[0], release), checklist.tests((statement.id, *ids)))


def _rank(record: Record, release: Release) -> tuple[bool, bool]:
    return not _holds(record, release), isinstance(record, Limit)


def _holds(record: Record, release: Release) -> bool:
    return record.since <= release and (record.until is None or release <= record.until)


def _does(statement: checklist.Statement, record: Record, release: Release) -> str:
    if statement.scope == "later":
        return "not yet"
    if statement.scope == "text":
        return "says so"
    if not _holds(record, release):
        return f"nothing in {text(release)}: holds {wording.where(record)}"
    if isinstance(record, Limit):
        return ": ".join(part for part in (wording.EFFECTS[record.effect], record.reason) if part)
    return _KINDS[record.kind]
