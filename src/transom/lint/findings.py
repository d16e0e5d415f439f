"""What lint says: a limit of Windows that something in an object meets, where, and what can be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from transom.lint.objects import Object
from transom.lint.sources import Source
from transom.lint.tree import Span, Steps, locate
from transom.windows.match import path_text
from transom.windows.records import Limit, Severity

SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")
RANK: Final = {"error": 3, "warning": 2, "info": 1, "none": 0}
_LOWER: Final[dict[Severity, Severity]] = {"error": "warning", "warning": "info", "info": "info", "none": "none"}


class Change(NamedTuple):
    """One step of a fix, at a path of the object. `set` makes what is missing on the way, `add` appends to a list."""

    verb: Literal["drop", "set", "add"]
    steps: Steps
    value: Any = None


class Fix(NamedTuple):
    """Changes that belong together, safe to make without asking."""

    title: str
    changes: tuple[Change, ...]


class Found(NamedTuple):
    """What a rule gives: a place in an object, and what is particular to it."""

    obj: Object
    steps: Steps
    message: str = ""  # what is so here; empty for the limit's title
    severity: Severity | None = None  # if it is not the limit's
    remedy: str = ""
    nodes: tuple[str, ...] = ()
    fix: Fix | None = None
    limit: str = ""  # the id, where a rule has several limits


@dataclass(slots=True)
class Finding:
    limit: Limit
    severity: Severity
    source: Source
    message: str
    consequence: str = ""  # what happens on which nodes
    remedy: str = ""
    obj: Object | None = None
    steps: Steps = ()
    span: Span | None = None
    nodes: tuple[str, ...] = ()
    fix: Fix | None = None

    @property
    def id(self) -> str:
        return self.limit.id

    @property
    def path(self) -> str:
        return path_text(self.steps)

    @property
    def place(self) -> tuple[int, int]:
        """Line and column; zeros for what no text tells of."""
        return self.source.text.place(self.span.start) if self.span is not None else (0, 0)

    @property
    def end(self) -> tuple[int, int]:
        return self.source.text.place(self.span.end) if self.span is not None else (0, 0)


def lower(severity: Severity) -> Severity:
    return _LOWER[severity]


def span_of(obj: Object, steps: Steps) -> Span | None:
    """The stretch of text to show for a path: key and value where they share a line, else the key."""
    document = obj.document
    if document is None:
        return None
    place = locate(document.node, obj.steps + steps)
    value = document.span(place.value)
    start = value.start if place.key is None else document.span(place.key).start
    text = document.text
    line = text.place(start)[0]
    last = max(start + 1, text.start(line + 1) - 1 if line < text.count() else len(text.text))
    end = min(value.end, last)
    if place.key is not None and value.end > last:
        end = document.span(place.key).end
    stretch = text.text[start:end].rstrip()
    return Span(start, start + max(1, len(stretch)))
