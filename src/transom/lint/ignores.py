"""Comments that silence findings.

    # transom: ignore WIN-SEC-009 WIN-RES-003     at the end of a line: for it and its nested nodes
    # transom: ignore WIN-SEC-009                 on its own line: for the next line and its nested nodes
    # transom: ignore-file WIN-RES-003            anywhere: for the file

Without ids the comment applies to all findings; `WIN-SEC-*` applies to an area. Text after ` -- `
explains the reason to readers.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Final

from transom.lint.findings import LintFinding
from transom.lint.text import SourceText
from transom.lint.tree import locate_path

_COMMENT: Final = re.compile(r"(?:^|\s)#\s*transom:\s*(ignore-file|ignore)\b(?P<rest>[^\n]*)")
_ID: Final = re.compile(r"WIN-[A-Z0-9*]+(?:-[A-Z0-9*]+)?|\*")


class Ignores:
    """The ignore comments of a text."""

    __slots__ = ("_everywhere", "_lines")

    def __init__(self, text: SourceText) -> None:
        self._everywhere: tuple[str, ...] = ()
        self._lines: dict[int, tuple[str, ...]] = {}
        if "transom:" in text.text:
            self._read(text)

    def _read(self, text: SourceText) -> None:
        waiting: tuple[str, ...] = ()
        for number in range(1, text.count() + 1):
            line = text.line(number)
            bare = line.strip()
            match = _COMMENT.search(line)
            ids = _ids(match["rest"]) if match else ()
            if match and match[1] == "ignore-file":
                self._everywhere += ids
                continue
            if bare.startswith("#"):
                waiting += ids
            elif bare and bare not in ("---", "..."):
                own = ids + waiting
                if own:
                    self._lines[number] = own
                waiting = ()

    def __bool__(self) -> bool:
        return bool(self._everywhere or self._lines)

    def silences(self, finding: LintFinding) -> bool:
        if matches_patterns(finding.id, self._everywhere):
            return True
        return bool(self._lines) and any(
            matches_patterns(finding.id, self._lines.get(line, ()))
            for line in _lines_around(finding)
        )


def _ids(rest: str) -> tuple[str, ...]:
    named = rest.partition(" -- ")[0]
    return tuple(_ID.findall(named)) or ("*",)


def matches_patterns(name: str, patterns: tuple[str, ...]) -> bool:
    return any(
        name == pattern or ("*" in pattern and fnmatchcase(name, pattern)) for pattern in patterns
    )


def _lines_around(finding: LintFinding) -> list[int]:
    """The line of a finding, and the first lines of the nodes that contain it."""
    lines = [finding.place[0]] if finding.span is not None else []
    obj = finding.obj
    if obj is None or obj.document is None:
        return lines
    document, whole = obj.document, obj.steps + finding.steps
    for depth in range(len(obj.steps), len(whole) + 1):
        place = locate_path(document.node, whole[:depth])
        node = place.key if place.key is not None else place.value
        lines.append(document.text.place(document.span(node).start)[0])
    return lines
