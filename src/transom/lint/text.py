"""A text and positions in it. Lines and columns count from 1, as in editors; columns count
characters.
"""

from __future__ import annotations

from bisect import bisect_right


class SourceText:
    __slots__ = ("_starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts: list[int] | None = None  # line starts, computed only for texts with findings

    def place(self, index: int) -> tuple[int, int]:
        """Line and column of a character offset."""
        starts = self._lines()
        line = bisect_right(starts, index)
        return line, index - starts[line - 1] + 1

    def start(self, line: int) -> int:
        """The offset of a line; the end of the text for lines after the last."""
        starts = self._lines()
        return starts[line - 1] if line <= len(starts) else len(self.text)

    def line(self, number: int) -> str:
        """A line without its line break."""
        return self.text[self.start(number) : self.start(number + 1)].rstrip("\r\n")

    def count(self) -> int:
        return len(self._lines())

    def _lines(self) -> list[int]:
        if self._starts is None:
            starts = [0]
            at = self.text.find("\n")
            while at >= 0:
                starts.append(at + 1)
                at = self.text.find("\n", at + 1)
            self._starts = starts
        return self._starts
