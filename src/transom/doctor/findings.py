"""A finding: the place of a problem, its effect, and its remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from transom.windows.registry import RECORDS
from transom.windows.wording import record_remedy as remedy_of

Severity = Literal["error", "warning", "info"]
RANK: Final[Mapping[Severity, int]] = {"error": 0, "warning": 1, "info": 2}


class DoctorFinding(NamedTuple):
    severity: Severity
    what: str  # without the place, so that a problem in many places is reported once
    where: tuple[str, ...] = ()  # "node/windows-1", "pod/default/web-0"; none: the cluster
    why: str = ""
    remedy: str = ""
    record: str = ""  # id of the record
    statements: tuple[str, ...] = ()  # part of the record's documentation, if it has several

    @property
    def windows(self) -> bool:
        return bool(self.record)

    def document(self) -> dict[str, Any]:
        found = {
            "severity": self.severity,
            "what": self.what,
            "where": list(self.where),
            "why": self.why,
            "remedy": self.remedy,
            "record": self.record,
            "statements": list(self.statements),
            "section": "windows" if self.windows else "general",
        }
        return {name: None if value == "" else value for name, value in found.items()}


def known_finding(
    record: str,
    what: str,
    *where: str,
    severity: Severity = "error",
    why: str = "",
    remedy: str = "",
    statements: tuple[str, ...] = (),
) -> DoctorFinding:
    """A finding with a record, whose texts are the defaults."""
    found = RECORDS[record]
    return DoctorFinding(
        severity,
        what,
        where,
        why or found.statement,
        remedy or remedy_of(found),
        record,
        statements or found.checklist,
    )


def merged_findings(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    """Merges equal problems of several places into one finding, if their remedies differ only in the
    place's own name. General findings come first, and errors before the rest.
    """
    found: dict[DoctorFinding, list[DoctorFinding]] = {}
    for one in findings:
        found.setdefault(
            one._replace(where=(), remedy=_for_any_place(one.remedy, one.where)), []
        ).append(one)
    return sorted(map(_merged, found.values()), key=lambda one: (one.windows, RANK[one.severity]))


def _merged(same: list[DoctorFinding]) -> DoctorFinding:
    """One finding for all places. Its remedy is that of the first, which may name it."""
    first, places = same[0], dict.fromkeys(place for one in same for place in one.where)
    if any(one.remedy != first.remedy for one in same):
        first = first._replace(remedy=f"{first.remedy.rstrip('.')}; likewise for the others")
    return first._replace(where=tuple(places))


def _for_any_place(remedy: str, where: tuple[str, ...]) -> str:
    """The remedy without the namespace and the name of its place."""
    names = [name for place in where for name in place.split("/")[1:]]
    for name in names:
        remedy = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "*", remedy)
    return remedy
