"""Errors of CEL: issues of an expression, with the text that cel-go prints, and errors of an
evaluation.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

_MAX_SNIPPET = 16384
_MAX_ISSUES = 100  # that are printed; cel-go's maxErrorsToReport
_DEEP = 6000  # frames


class _RecursionLimit:
    """The interpreter's recursion limit, which all threads share: high while any of them needs
    it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._usual = 0

    def raise_limit(self) -> None:
        with self._lock:
            if not self._users:
                self._usual = sys.getrecursionlimit()
                sys.setrecursionlimit(max(self._usual, _DEEP))
            self._users += 1

    def restore(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                sys.setrecursionlimit(self._usual)


_recursion_limit = _RecursionLimit()


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """Enough recursion for an expression as deep as cel-go allows (250 levels of each rule)."""
    _recursion_limit.raise_limit()
    try:
        yield
    finally:
        _recursion_limit.restore()


class CelError(Exception):
    """An evaluation failed; the text is cel-go's."""


class CostLimitExceededError(CelError):
    """An evaluation used more than its cost limit. It is not caught by `||` and `&&`."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class CompileError(Exception):
    """An expression is invalid; the text lists its issues."""


class Issues:
    """The errors of one expression, in the order in which cel-go prints them."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._found: list[tuple[int, int, str]] = []  # line, column, message
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._found)

    def __len__(self) -> int:
        return self._count

    def report(self, pos: int, message: str) -> None:
        """An error at an offset into the source; -1 for an error of the whole expression."""
        self._count += 1
        if self._count > _MAX_ISSUES:
            return
        if pos < 0:
            self._found.append((-1, -1, message))
            return
        before = self.source[:pos]
        self._found.append((before.count("\n") + 1, pos - before.rfind("\n") - 1, message))

    def raise_if_any(self) -> None:
        if self._found:
            raise CompileError(str(self))

    def __str__(self) -> str:
        lines = self.source.split("\n")
        out = []
        for line, column, message in sorted(self._found, key=lambda found: found[:2]):
            text = f"ERROR: <input>:{line}:{column + 1}: {message}"
            if line > 0 and len(lines[line - 1].encode()) <= _MAX_SNIPPET:
                snippet = lines[line - 1].replace("\t", " ")
                dots = "".join("." if char.isascii() else "．" for char in snippet[:column])
                here = snippet[column : column + 1]
                text += f"\n | {snippet}\n | {dots}{'^' if here.isascii() else '＾'}"
            out.append(text)
        if self._count > _MAX_ISSUES:
            out.append(f"{self._count - _MAX_ISSUES} more errors were truncated")
        return "\n".join(out)
