"""The statements of the source documents, each with its records and what this cluster does."""

from __future__ import annotations

from typing import Final, NamedTuple

from transom.windows import checklist, registry, wording
from transom.windows.records import Record, Release, WindowsLimit
from transom.windows.releases import release_text

_KINDS: Final = {
    "supported": "works",
    "procedure": "works",
    "rule": "follows it",
    "default": "follows it",
    "symptom": "explains it",
    "planned": "documented",
}


class StatementRow(NamedTuple):
    id: str
    about: str
    records: list[str]
    does: str  # what this cluster does


def statement_rows(release: Release) -> list[StatementRow]:
    """Ordered by group. If there are several records, those that apply to the release come first,
    and supported features before limits.
    """
    return [_row(statement, release) for statement in checklist.checklist_statements().values()]


def _row(statement: checklist.ChecklistStatement, release: Release) -> StatementRow:
    records = sorted(
        registry.records_by_statement()[statement.id], key=lambda record: _rank(record, release)
    )
    ids = [record.id for record in records]
    return StatementRow(
        statement.id,
        statement.words,
        ids,
        _does(statement, records[0], release),
    )


def _rank(record: Record, release: Release) -> tuple[bool, bool]:
    return not _holds(record, release), isinstance(record, WindowsLimit)


def _holds(record: Record, release: Release) -> bool:
    return record.since <= release and (record.until is None or release <= record.until)


def _does(statement: checklist.ChecklistStatement, record: Record, release: Release) -> str:
    if statement.scope == "later":
        return "not yet"
    if statement.scope == "text":
        return "documented"
    if not _holds(record, release):
        return f"not in {release_text(release)}: applies {wording.record_location(record)}"
    if isinstance(record, WindowsLimit):
        return ": ".join(part for part in (wording.EFFECTS[record.effect], record.reason) if part)
    return _KINDS[record.kind]
