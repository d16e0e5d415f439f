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
    commands: tuple[str, ...] = ()  # carry out the remedy, as they are pasted into a shell

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
            "commands": list(self.commands),
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
    commands: tuple[str, ...] = (),
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
        commands,
    )


# A command in a text, up to the end of its clause.
INLINE_COMMAND: Final = re.compile(
    r"\b(?:kubectl|transom) [a-z][^;(),]*?(?=[.:]?(?: (?:lists|shows|waits|of)\b|[;(),]|$|\. ))"
)
_READS: Final = re.compile(
    r"kubectl (?:get|describe|logs|top|exec|edit) |transom \S*(?:list|doctor|explain)"
)


_WITHOUT_OBJECT: Final = re.compile(r"kubectl (?:(?:create|rollout|set) )?\w+")


def sole_command(remedy: str) -> tuple[str, ...]:
    """The command that a remedy begins with ("Start it: transom node start NAME"), if it is not one of
    several, changes something and names an object.
    """
    found = INLINE_COMMAND.findall(remedy)
    before = remedy.partition(found[0])[0] if len(found) == 1 else ""
    if len(found) != 1 or _READS.match(found[0]) or _WITHOUT_OBJECT.fullmatch(found[0]):
        return ()
    if re.search(r"[;,&|]| or |\bif\b", before):
        return ()
    return (found[0],)


def merged_findings(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    """Merges equal problems of several places into one finding, if their remedies differ only in the
    place's own name. General findings come first, and errors before the rest.
    """
    found: dict[DoctorFinding, list[DoctorFinding]] = {}
    for one in findings:
        found.setdefault(
            one._replace(where=(), remedy=_for_any_place(one.remedy, one.where), commands=()), []
        ).append(one)
    return sorted(map(_merged, found.values()), key=lambda one: (one.windows, RANK[one.severity]))


def _merged(same: list[DoctorFinding]) -> DoctorFinding:
    """One finding for all places. Its remedy is that of the first, which may name it."""
    first, places = same[0], dict.fromkeys(place for one in same for place in one.where)
    if any(one.remedy != first.remedy for one in same):
        first = first._replace(remedy=f"{first.remedy.rstrip('.')}; likewise for the others")
    commands = dict.fromkeys(command for one in same for command in one.commands)
    return first._replace(where=tuple(places), commands=tuple(commands))


def _for_any_place(remedy: str, where: tuple[str, ...]) -> str:
    """The remedy without the namespace and the name of its place."""
    names = [name for place in where for name in place.split("/")[1:]]
    for name in names:
        remedy = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "*", remedy)
    return remedy


# Text in quotes that a shell does not expand.
_QUOTED: Final = re.compile(r"""'[^']*'|"[^"$`\\]*\"""")
_REPLACE: Final = " | kubectl replace --force --filename -"


def is_safe_command(line: str) -> bool:
    """Whether a shell runs nothing but the command itself, whatever the names in it are: users of the
    cluster choose them, and the administrator pastes the line.
    """
    plain = _QUOTED.sub("", line.removesuffix(_REPLACE))
    return not set(plain) & set(";&|<>$`()\\\"'\n")
