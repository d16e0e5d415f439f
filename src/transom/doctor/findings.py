"""One thing that is wrong: where, why it matters, what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from transom.windows.registry import RECORDS
from transom.windows.wording import remedy as remedy_of

Severity = Literal["error", "warning", "info"]
RANK: Final[Mapping[Severity, int]] = {"error": 0, "warning": 1, "info": 2}


class Finding(NamedTuple):
    severity: Severity
    what: str  # without the place, so that what is wrong in many places is told once
    where: tuple[str, ...] = ()  # "node/windows-1", "pod/default/web-0"; none: the cluster
    why: str = ""
    remedy: str = ""
    record: str = ""  # id of what is known of it
    statements: tuple[str, ...] = ()  # of the documents, where a record holds several

    @property
    def windows(self) -> bool:
        return bool(self.record)

    def document(self) -> dict[str, Any]:
        found = {
            "severity": self.severity, "what": self.what, "where": list(self.where), "why": self.why, "remedy": self.remedy,
            "record": self.record, "statements": list(self.statements), "section": "windows" if self.windows else "general",
        }  # fmt: skip
        return {name: None if value == "" else value for name, value in found.items()}


def known(
    record: str, what: str, *where: str, severity: Severity = "error", why: str = "", remedy: str = "",
    statements: tuple[str, ...] = (),
) -> Finding:
    """Something that there is a record of: its words serve where there are no better ones."""
    found = RECORDS[record]
    return Finding(
        severity, what, where, why or found.statement, remedy or remedy_of(found), record, statements or found.checklist
    )


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """What is the same in several places is one finding. What is general comes first, and what is worst before the rest."""
    found: dict[Finding, list[str]] = {}
    for one in findings:
        found.setdefault(one._replace(where=()), []).extend(one.where)
    out = [one._replace(where=tuple(dict.fromkeys(places))) for one, places in found.items()]
    return sorted(out, key=lambda one: (one.windows, RANK[one.severity]))
