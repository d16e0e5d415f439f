"""All records, by id, by the documents' statements, and by keywords."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Final

from transom.windows import releases
from transom.windows.limits import LIMITS
from transom.windows.records import Record, Release, WindowsLimit
from transom.windows.support import SUPPORT

RECORDS: Final[Mapping[str, Record]] = {**LIMITS, **SUPPORT}


@cache
def records_by_statement() -> Mapping[str, tuple[Record, ...]]:
    """Statement of the documents ("API-23") -> its records, limits first."""
    found: dict[str, list[Record]] = {}
    for record in RECORDS.values():
        for statement in record.checklist:
            found.setdefault(statement, []).append(record)
    return {statement: tuple(records) for statement, records in found.items()}


def find_records(query: str, records: Mapping[str, Record] = RECORDS) -> list[Record]:
    """By id, by a statement's id, by an area ("WIN-POD"), by a field's name or by words; empty if
    nothing matches.

    All words must match: in titles, topics, fields and sections, otherwise in the texts.
    """
    upper = query.strip().upper()
    if upper in records:
        return [records[upper]]
    if upper in records_by_statement():
        return list(records_by_statement()[upper])
    area = [record for id, record in records.items() if id.startswith(upper + "-")]
    if area:
        return area
    words = query.lower().split()
    if not words:
        return []
    near = [record for record in records.values() if all(word in _labels(record) for word in words)]
    return near or [
        record for record in records.values() if all(word in _text(record) for word in words)
    ]


def similar_records(query: str, records: Mapping[str, Record] = RECORDS) -> list[str]:
    """Suggestions for a search without results."""
    known = {*records, *records_by_statement()}
    for record in records.values():
        known.update(record.topics)
    by_lower = {name.lower(): name for name in known}
    return [by_lower[name] for name in get_close_matches(query.lower(), by_lower, 3)]


@cache
def _labels(record: Record) -> str:
    fields = (
        " ".join(field.path for field in record.fields) if isinstance(record, WindowsLimit) else ""
    )
    return " ".join((record.title, *record.topics, fields, record.section)).lower()


@cache
def _text(record: Record) -> str:
    more = (
        f"{record.remedy} {record.message}" if isinstance(record, WindowsLimit) else record.enable
    )
    return f"{_labels(record)} {record.statement} {more} {record.note}".lower()


def feature_names() -> tuple[str, ...]:
    """Features that the owner of a node can turn on, with the names of records and feature
    gates.
    """
    named = {
        name
        for record in RECORDS.values()
        for name in (*record.needs, *(record.lifted_by if isinstance(record, WindowsLimit) else ()))
    }
    return tuple(sorted({*named, *releases.GATES}, key=str.lower))


def known_release(text: str) -> Release:
    """Raises ValueError, with the known releases, for anything else."""
    try:
        release = releases.parse_release_version(text)
    except ValueError:
        release = (0, 0)
    if release not in releases.RELEASES:
        first, last = (
            releases.release_text(min(releases.RELEASES)),
            releases.release_text(max(releases.RELEASES)),
        )
        raise ValueError(
            f"{text!r} is not a Kubernetes release with Windows nodes: choose one from "
            f"{first} to {last}"
        )
    return release


def known_features(names: Iterable[str]) -> tuple[str, ...]:
    """Raises ValueError, with the known features, for an unknown one."""
    names = tuple(names)
    known = feature_names()
    for name in names:
        if name not in known:
            raise ValueError(f"unknown feature {name!r}: choose from {', '.join(known)}")
    return names
