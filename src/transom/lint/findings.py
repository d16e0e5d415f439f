"""Findings: a Windows limitation that applies to an object, its position, and possible fixes."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from transom.kit.lazy_dataclass import dataclass
from transom.lint.objects import ManifestObject
from transom.lint.sources import ManifestSource
from transom.lint.tree import Steps, TextSpan, locate_path
from transom.windows.match import steps_text
from transom.windows.records import Severity, WindowsLimit

SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")
RANK: Final = {"error": 3, "warning": 2, "info": 1, "none": 0}
_LOWER: Final[dict[Severity, Severity]] = {
    "error": "warning",
    "warning": "info",
    "info": "info",
    "none": "none",
}


class FixStep(NamedTuple):
    """One step of a fix, at a path of the object. `set` creates missing parents, `add` appends to a
    list.
    """

    verb: Literal["drop", "set", "add"]
    steps: Steps
    value: Any = None


class LintFix(NamedTuple):
    """Changes that belong together and are safe to apply automatically."""

    title: str
    changes: tuple[FixStep, ...]


class RuleMatch(NamedTuple):
    """The result of a rule: a path in an object, and details."""

    obj: ManifestObject
    steps: Steps
    message: str = ""  # details; empty for the limitation's title
    severity: Severity | None = None  # overrides that of the limitation
    remedy: str = ""
    nodes: tuple[str, ...] = ()
    fix: LintFix | None = None
    limit: str = ""  # the id, if a rule has several limitations


@dataclass(slots=True)
class LintFinding:
    limit: WindowsLimit
    severity: Severity
    source: ManifestSource
    message: str
    consequence: str = ""  # the effect by nodes
    remedy: str = ""
    obj: ManifestObject | None = None
    steps: Steps = ()
    span: TextSpan | None = None
    nodes: tuple[str, ...] = ()
    fix: LintFix | None = None

    @property
    def id(self) -> str:
        return self.limit.id

    @property
    def path(self) -> str:
        return steps_text(self.steps)

    @property
    def place(self) -> tuple[int, int]:
        """Line and column; zeros for objects without source text."""
        return self.source.text.place(self.span.start) if self.span is not None else (0, 0)

    @property
    def end(self) -> tuple[int, int]:
        return self.source.text.place(self.span.end) if self.span is not None else (0, 0)


def lower_severity(severity: Severity) -> Severity:
    return _LOWER[severity]


def span_of(obj: ManifestObject, steps: Steps) -> TextSpan | None:
    """The span of text to show for a path: key and value if they are on one line, otherwise the
    key.
    """
    document = obj.document
    if document is None:
        return None
    place = locate_path(document.node, obj.steps + steps)
    value = document.span(place.value)
    start = value.start if place.key is None else document.span(place.key).start
    text = document.text
    line = text.place(start)[0]
    last = max(start + 1, text.start(line + 1) - 1 if line < text.count() else len(text.text))
    end = min(value.end, last)
    if place.key is not None and value.end > last:
        end = document.span(place.key).end
    stretch = text.text[start:end].rstrip()
    return TextSpan(start, start + max(1, len(stretch)))
