"""Go's regexp package on RE2: every pattern that a client supplies is compiled here and matches in
linear time.

Syntax, matching rules and error texts are those of Go. The engine is imported when the first
pattern is compiled. This module knows nothing about Kubernetes.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from transom.kit.caching import text_cache

# RE2 uses at most this much memory for the program and the automaton of one pattern.
_MAX_MEMORY = 8 << 20
_MAX_NESTING = 1000
# RE2's error texts and Go's.
_ERRORS = {
    "invalid escape sequence": "invalid escape sequence",
    "invalid character class": "invalid character class",
    "invalid character class range": "invalid character class range",
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "unexpected )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid UTF-8": "invalid UTF-8",
    "invalid named capture group": "invalid named capture",
    "pattern too large": "expression too large",
}


class RegexpError(ValueError):
    """A pattern that does not compile: Go's error code and the part of the pattern it refers to."""

    def __init__(self, code: str, expression: str) -> None:
        super().__init__(code, expression)
        self.code, self.expression = code, expression

    def __str__(self) -> str:
        return f"error parsing regexp: {self.code}: `{self.expression}`"


class Regexp:
    """A compiled pattern with the methods of Go's regexp.Regexp that Transom needs."""

    __slots__ = ("_compiled", "pattern")

    def __init__(self, pattern: str, compiled: Any) -> None:
        self.pattern, self._compiled = pattern, compiled

    def match_string(self, text: str) -> bool:
        """Report whether the text contains a match of the pattern."""
        return self._compiled.search(text.encode("utf-8", "replace")) is not None

    def find_string(self, text: str) -> str:
        """Return the leftmost match, or an empty string."""
        data = text.encode("utf-8", "replace")
        found = self._compiled.search(data)
        return data[found.start() : found.end()].decode() if found else ""

    def find_all_string(self, text: str, limit: int = -1) -> list[str]:
        """Return successive matches that do not overlap; all of them if the limit is negative."""
        data = text.encode("utf-8", "replace")
        out: list[str] = []
        for start, end in self._spans(data):
            if 0 <= limit <= len(out):
                break
            out.append(data[start:end].decode())
        return out

    def _spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """The matches as byte offsets; Go ignores an empty match next to the match before it."""
        at, previous_end = 0, -1
        while at <= len(data):
            found = self._compiled.search(data, at)
            if found is None:
                return
            start, end = found.span()
            if end > start or start != previous_end:
                yield start, end
            previous_end = end
            if end > at:
                at = end
            else:
                at += 1
                while at < len(data) and data[at] & 0xC0 == 0x80:
                    at += 1


@cache
def _engine() -> tuple[Any, Any]:
    engine = importlib.import_module("re2")
    options = engine.Options()
    options.log_errors = False
    options.never_capture = True  # only whole matches are needed
    options.max_mem = _MAX_MEMORY
    return engine, options


@text_cache(256, longest=4096)
def compile_regexp(pattern: str, *, angle_names: bool = False) -> Regexp:
    """Compile a pattern; raise RegexpError with Go's text.

    `angle_names` allows `(?<name>re)`, which Go supports since 1.22 (Kubernetes 1.30).
    """
    _check_go_syntax(pattern, angle_names)
    engine, options = _engine()
    try:
        return Regexp(pattern, engine.compile(pattern.encode("utf-8", "replace"), options))
    except engine.error as error:
        text = error.args[0]
        raise _go_error(
            text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text), pattern
        ) from None


def _go_error(text: str, pattern: str) -> RegexpError:
    if text.startswith("pattern too large"):
        return RegexpError(_ERRORS["pattern too large"], pattern)
    code, _, expression = text.partition(": ")
    if code == "invalid perl operator":
        # Go quotes what it has read up to the first character that it does not accept.
        expression = expression[:3] if expression.startswith("(?<") else expression
    return RegexpError(_ERRORS.get(code, code), expression)


def _check_go_syntax(pattern: str, angle_names: bool) -> None:
    """Reject what RE2 accepts and Go does not."""
    at, depth = 0, 0
    in_class = False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            following = pattern[at + 1 : at + 2]
            if following == "Q" and not in_class:
                end = pattern.find("\\E", at + 2)
                at = len(pattern) if end < 0 else end + 2
                continue
            if following == "C" and not in_class:
                raise RegexpError("invalid escape sequence", "\\C")
            at += 2
            continue
        if in_class:
            if pattern.startswith("[:", at) and (end := pattern.find(":]", at + 2)) >= 0:
                at = end + 2
                continue
            in_class = char != "]"
        elif char == "[":
            in_class = True
            at += 2 if pattern.startswith("[^", at) else 1
            at += pattern.startswith("]", at)
            continue
        elif char == "(":
            depth += 1
            if depth > _MAX_NESTING:
                raise RegexpError("expression nests too deeply", pattern)
            _check_group(pattern, at, angle_names)
        elif char == ")":
            depth -= 1
        at += 1


def _check_group(pattern: str, at: int, angle_names: bool) -> None:
    if pattern.startswith("(?<", at) and not angle_names:
        raise RegexpError("invalid or unsupported Perl syntax", "(?<")
    start = (
        at + 3 if pattern.startswith("(?<", at) else at + 4 if pattern.startswith("(?P<", at) else 0
    )
    end = pattern.find(">", start)
    if start and end >= 0 and not pattern[start:end].isascii():
        raise RegexpError("invalid named capture", pattern[at : end + 1])
