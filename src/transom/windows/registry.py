"""All records together, by id, by the documents' statements, by words."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Final

from transom.windows.limits import LIMITS
from transom.windows.records import Limit, Record
from transom.windows.support import SUPPORT

RECORDS: Final[Mapping[str, Record]] = {**LIMITS, **SUPPORT}


@cache
def by_statement() -> Mapping[str, tuple[Record, ...]]:
    """Statement of the documents ("API-23") -> the records that hold it, limits first."""
    found: dict[str, list[Record]] = {}
    for record in RECORDS.values():
        for statement in record.checklist:
            found.setdefault(statement, []).append(record)
    return {statement: tuple(records) for statement, records in found.items()}


def find(query: str, records: Mapping[str, Record] = RECORDS) -> list[Record]:
    """By id, by a statement's id, by an area ("WIN-POD"), by a field's name or by words; none if nothing fits.

    Words must all be there: in titles, topics, fields and sections, else in the texts.
    """
    upper = query.strip().upper()
    if upper in records:
        return [records[upper]]
    if upper in by_statement():
        return list(by_statement()[upper])
    area = [record for id, record in records.items() if id.startswith(upper + "-")]
    if area:
        return area
    words = query.lower().split()
    if not words:
        return []
    near = [record for record in records.values() if all(word in _labels(record) for word in words)]
    return near or [record for record in records.values() if all(word in _text(record) for word in words)]


def similar(query: str, records: Mapping[str, Record] = RECORDS) -> list[str]:
    """What somebody may have meant who found nothing."""
    known = {*records, *by_statement()}
    for record in records.values():
        known.update(record.topics)
    by_lower = {name.lower(): name for name in known}
    return [by_lower[name] for name in get_close_matches(query.lower(), by_lower, 3)]


@cache
def _labels(record: Record) -> str:
    fields = " ".join(field.path for field in record.fields) if isinstance(record, Limit) else ""
    return " ".join((record.title, *record.topics, fields, record.section)).lower()


@cache
def _text(record: Record) -> str:
    more = f"{record.remedy} {record.message}" if isinstance(record, Limit) else record.enable
    return f"{_labels(record)} {record.statement} {more} {record.note}".lower()
