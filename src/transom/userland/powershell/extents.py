"""Where in a script a statement or command is, and how error messages show it.

It only describes text: parser and evaluator decide what has an extent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_WIDTH: Final = 69  # a line of 80 columns without "+ " and the dots
_BEFORE: Final = 12  # characters of context, where there is not enough room
_AFTER: Final = 8


@dataclass(frozen=True, slots=True)
class SourceExtent:
    """A part of a script."""

    script: str
    start: int
    end: int

    @property
    def line(self) -> int:
        """The number of its first line, from 1."""
        return self.script.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int:
        """From 1."""
        return self.start - self.script.rfind("\n", 0, self.start)

    @property
    def source_line(self) -> str:
        """Its whole first line."""
        begin = self.script.rfind("\n", 0, self.start) + 1
        end = self.script.find("\n", begin)
        return self.script[begin : end if end >= 0 else len(self.script)].rstrip()


def position_lines(extent: SourceExtent, path: str = "") -> list[str]:
    """`At line:1 char:5`, the line of the script, and what the extent is of it. `path` is the
    script's file.
    """
    shown = extent.source_line.replace("\t", "    ")
    tabs = extent.source_line.count("\t", 0, extent.column - 1)
    before = extent.column - 1 + 3 * tabs
    length = max(
        1,
        min(
            len(extent.script[extent.start : extent.end].split("\n")[0].rstrip()),
            len(shown) - before,
        ),
    )
    first, last = 0, len(shown)
    if len(shown) > _WIDTH:
        length = min(length, _WIDTH)
        first = max(0, before - _BEFORE)
        last = min(len(shown), before + length + _AFTER)
        if last - first > _WIDTH:
            last = first + _WIDTH
        else:
            first = max(0, first - (_WIDTH - (last - first)))
            last = min(len(shown), first + _WIDTH)
    dots = "... " if first else ""
    return [
        f"At {path + ':' if path else 'line:'}{extent.line} char:{extent.column}",
        f"+ {dots}{shown[first:last]}{' ...' if last < len(shown) else ''}",
        f"+ {' ' * (len(dots) + before - first)}{'~' * min(length, last - before)}",
    ]
