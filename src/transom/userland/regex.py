"""Regular expressions of simulated programs (grep, sed, awk, findstr, PowerShell), which share the
server's event loop.

A pattern arrives in Python's notation. RE2 runs it in linear time. RE2 has no back-references and
no look-around; a pattern with those runs on Python's backtracking engine, and only on texts where
the number of steps has a small bound.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any, Protocol, cast

from transom.kit.caching import text_cache
from transom.userland.preemption import check_slice

_MAX_STEPS = 1_000_000
_MAX_MATCHES = 10_000  # of RE2 in one text
_SHORT = 64  # characters of a pattern
_LONGEST = 16 * 1024  # characters; compiling them takes about 60 ms
_SURROGATE = re.compile("[\ud800-\udfff]")
_NO_CHOICE = frozenset((sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN, sre.AT, sre.GROUPREF))


class PatternTooComplexError(re.error):
    """Matching could take more steps than a simulated program may use at once."""


class Pattern(Protocol):
    """The part of re.Pattern that the programs use."""

    @property
    def groups(self) -> int: ...
    def search(self, text: str, /) -> re.Match[str] | None: ...
    def match(self, text: str, /) -> re.Match[str] | None: ...
    def fullmatch(self, text: str, /) -> re.Match[str] | None: ...
    def finditer(self, text: str, /) -> Iterator[re.Match[str]]: ...
    def split(self, text: str, /, maxsplit: int = 0) -> list[Any]: ...
    def sub(
        self, replacement: str | Callable[[re.Match[str]], str], text: str, /, count: int = 0
    ) -> str: ...
    def subn(
        self, replacement: str | Callable[[re.Match[str]], str], text: str, /, count: int = 0
    ) -> tuple[str, int]: ...


@text_cache(128, longest=4096)
def compile_pattern(pattern: str, *, ignore_case: bool = False, dot_all: bool = False) -> Pattern:
    """Compile a pattern in Python's notation; raise re.error if it is invalid."""
    if len(pattern) > _LONGEST:
        raise PatternTooComplexError("regular expression is too complex", pattern[:_SHORT])
    flags = (re.IGNORECASE if ignore_case else 0) | (re.DOTALL if dot_all else 0)
    try:
        python = re.compile(pattern, flags)
    except (OverflowError, RecursionError):
        raise PatternTooComplexError("regular expression is too complex", pattern) from None
    tree = sre_parser.parse(pattern, flags)
    if len(pattern) <= _SHORT and _choices(tree, _MAX_STEPS) == 1:
        return python  # no alternatives: linear, and faster with many matches
    if _engine() is None:
        return python
    linear = _linear(pattern, ignore_case, dot_all)
    return _Checked(linear) if linear is not None else _Bounded(python)


@cache
def _engine() -> Any:
    """RE2, or None in Wine's stand-ins, which have only the standard library and block only
    themselves.
    """
    try:
        return importlib.import_module("re2")
    except ModuleNotFoundError:
        return None


def _linear(pattern: str, ignore_case: bool, dot_all: bool) -> Any | None:
    engine = _engine()
    options = engine.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.dot_nl = dot_all
    try:
        return engine.compile(pattern.replace(r"\Z", r"\z"), options)
    except (engine.error, UnicodeEncodeError):
        return None


class _Checked:
    """RE2 on text that may contain bytes that are not UTF-8 (as lone surrogates): it sees U+FFFD
    instead.
    """

    __slots__ = ("_regexp",)

    def __init__(self, regexp: Any) -> None:
        self._regexp = regexp

    @property
    def groups(self) -> int:
        return cast(int, self._regexp.groups)

    def search(self, text: str, /) -> re.Match[str] | None:
        return cast("re.Match[str] | None", self._regexp.search(_valid(text)))

    def match(self, text: str, /) -> re.Match[str] | None:
        return cast("re.Match[str] | None", self._regexp.match(_valid(text)))

    def fullmatch(self, text: str, /) -> re.Match[str] | None:
        return cast("re.Match[str] | None", self._regexp.fullmatch(_valid(text)))

    def finditer(self, text: str, /) -> Iterator[re.Match[str]]:
        return cast("Iterator[re.Match[str]]", self._regexp.finditer(self._countable(text)))

    def _countable(self, text: str) -> str:
        """The text; raises if it has so many matches that replacing all of them would block other
        programs.
        """
        text = _valid(text)
        if (
            len(text) > _MAX_MATCHES
            and sum(1 for _ in islice(self._regexp.finditer(text), _MAX_MATCHES + 1)) > _MAX_MATCHES
        ):
            raise PatternTooComplexError("regular expression is too complex", self._regexp.pattern)
        return text

    def split(self, text: str, /, maxsplit: int = 0) -> list[Any]:
        return cast(
            "list[Any]",
            self._regexp.split(_valid(text) if maxsplit else self._countable(text), maxsplit),
        )

    def sub(
        self, replacement: str | Callable[[re.Match[str]], str], text: str, /, count: int = 0
    ) -> str:
        return self.subn(replacement, text, count)[0]

    def subn(
        self, replacement: str | Callable[[re.Match[str]], str], text: str, /, count: int = 0
    ) -> tuple[str, int]:
        return cast(
            "tuple[str, int]",
            self._regexp.subn(replacement, _valid(text) if count else self._countable(text), count),
        )


def _valid(text: str) -> str:
    check_slice()
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


class _Bounded:
    """Python's engine; raises if the pattern could take too many steps on the text."""

    __slots__ = ("_regexp", "_tree")

    def __init__(self, regexp: re.Pattern[str]) -> None:
        self._regexp = regexp
        self._tree = sre_parser.parse(regexp.pattern, regexp.flags & ~re.UNICODE)
        # a pattern that fails even on short texts is rejected when it is compiled
        self._allow("a" * 16)

    def _allow(self, text: str) -> str:
        check_slice()
        # A search may begin at each position.
        if (len(text) + 1) * _choices(self._tree, len(text)) > _MAX_STEPS:
            raise PatternTooComplexError("regular expression is too complex", self._regexp.pattern)
        return text

    @property
    def groups(self) -> int:
        return self._regexp.groups

    def search(self, text: str, /) -> re.Match[str] | None:
        return self._regexp.search(self._allow(text))

    def match(self, text: str, /) -> re.Match[str] | None:
        return self._regexp.match(self._allow(text))

    def fullmatch(self, text: str, /) -> re.Match[str] | None:
        return self._regexp.fullmatch(self._allow(text))

    def finditer(self, text: str, /) -> Iterator[re.Match[str]]:
        return self._regexp.finditer(self._allow(text))

    def split(self, text: str, /, maxsplit: int = 0) -> list[Any]:
        return self._regexp.split(self._allow(text), maxsplit)

    def sub(
        self, replacement: str | Callable[[re.Match[str]], str], text: str, /, count: int = 0
    ) -> str:
        return self._regexp.sub(replacement, self._allow(text), count)

    def subn(
        self, replacement: str | Callable[[re.Match[str]], str], text: str, /, count: int = 0
    ) -> tuple[str, int]:
        return self._regexp.subn(replacement, self._allow(text), count)


def _choices(items: Any, length: int) -> int:
    """An upper bound on the ways in which a backtracking engine can run through a sequence on a
    text of this length.
    """
    total = 1
    for operator, argument in items:
        if total > _MAX_STEPS:
            break
        total *= _choices_of(operator, argument, length)
    return total


def _choices_of(operator: Any, argument: Any, length: int) -> int:
    if operator in _NO_CHOICE:
        return 1
    if operator is sre.BRANCH:
        return sum(_choices(branch, length) for branch in argument[1])
    if operator is sre.SUBPATTERN:
        return _choices(argument[-1], length)
    if operator in (sre.ASSERT, sre.ASSERT_NOT):
        return _choices(argument[1], length)
    if operator is sre.ATOMIC_GROUP:
        return _choices(argument, length)
    if operator is sre.GROUPREF_EXISTS:
        return _choices(argument[1], length) + _choices(argument[2] or (), length)
    if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        low, high, body = argument
        times = min(int(high), length)
        inner = _choices(body, length)
        counts = max(1, times - int(low) + 1)
        if inner == 1:
            return counts
        # The body has choices of its own each time; the power is larger than any bound for all but
        # tiny repeats.
        return _MAX_STEPS + 1 if times > 20 else counts * int(inner**times)
    return _MAX_STEPS + 1
