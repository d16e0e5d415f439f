"""Transom's own regular expressions take linear time on any text that a client can send.

For each pattern at module level, texts are made that repeat what an unbounded quantifier accepts
and then do not match.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import transom

# Packages whose patterns see request data, manifests, or what a container writes.
_PACKAGES = (
    "apiserver",
    "controllers",
    "dns",
    "http",
    "kit",
    "kubelet",
    "lint",
    "machinery",
    "machines",
    "metrics",
    "network",
    "proxy",
    "runtime",
    "scheduler",
    "store",
    "userland",
    "webhook",
    "windows",
)
_SIZES = (16, 20, 24, 28, 32, 36, 40, 45, 50, 200, 2_000, 20_000)
# seconds of CPU time; a linear match of the longest text takes about a millisecond, a quadratic one
# seconds
_LIMIT = 0.1
_SEARCHES = ("search", "sub", "subn", "findall", "finditer", "split")


def _modules() -> Iterator[Any]:
    for package in _PACKAGES:
        for info in pkgutil.walk_packages(
            [f"{transom.__path__[0]}/{package}"], f"transom.{package}."
        ):
            yield importlib.import_module(info.name)


def _patterns() -> Iterator[tuple[str, re.Pattern[Any], str]]:
    """Name, pattern, and the method that the module calls."""
    for module in _modules():
        source = inspect.getsource(module)
        for name, value in list(vars(module).items()):  # the test may load lazy modules
            for found in (
                value.values()
                if isinstance(value, dict)
                else value
                if isinstance(value, list | tuple)
                else [value]
            ):
                owner = getattr(found, "__self__", None)
                if isinstance(owner, re.Pattern):
                    yield f"{module.__name__}.{name}", owner, found.__name__
                elif isinstance(found, re.Pattern):
                    used = next(
                        (m for m in _SEARCHES if re.search(rf"\b{name}\.{m}\b", source)), "match"
                    )
                    yield f"{module.__name__}.{name}", found, used


def _sample(items: Any) -> str:
    return "".join(_sample_of(operator, argument) for operator, argument in items)


def _sample_of(operator: Any, argument: Any) -> str:
    if operator is sre.LITERAL:
        return chr(argument)
    if operator is sre.NOT_LITERAL:
        return "a" if argument != ord("a") else "b"
    if operator is sre.ANY:
        return "a"
    if operator is sre.IN:
        return _member(argument)
    if operator is sre.BRANCH:
        return _sample(argument[1][0])
    if operator is sre.SUBPATTERN:
        return _sample(argument[-1])
    if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return _sample(argument[2]) * max(1, min(int(argument[0]), 64))
    if operator is sre.ATOMIC_GROUP:
        return _sample(argument)
    return ""


def _member(argument: Any) -> str:
    negated = argument[0][0] is sre.NEGATE
    for char in "a0A-_. \t/:,\\'\"=x%&+~":
        inside = any(_in(one, char) for one in argument)
        if inside != negated:
            return char
    return chr(argument[0][1]) if argument[0][0] is sre.LITERAL else "a"


def _in(one: tuple[Any, Any], char: str) -> bool:
    operator, value = one
    if operator is sre.LITERAL:
        return ord(char) == value
    if operator is sre.RANGE:
        return bool(value[0] <= ord(char) <= value[1])
    if operator is sre.CATEGORY:
        tests: dict[Any, Callable[[str], bool]] = {
            sre.CATEGORY_DIGIT: str.isdigit,
            sre.CATEGORY_SPACE: str.isspace,
            sre.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
            sre.CATEGORY_NOT_DIGIT: lambda c: not c.isdigit(),
            sre.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
            sre.CATEGORY_NOT_WORD: lambda c: not (c.isalnum() or c == "_"),
        }
        return tests[value](char)
    return False


def _pumps(items: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """What to write before, and what to repeat, for each quantifier without a small limit."""
    before = prefix
    for operator, argument in items:
        if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            if int(argument[1]) > 64:
                yield before, _sample(argument[2])
                for branch in _branches(argument[2]):
                    yield before, branch
            yield from _pumps(argument[2], before)
        elif operator is sre.SUBPATTERN:
            yield from _pumps(argument[-1], before)
        elif operator is sre.BRANCH:
            for branch in argument[1]:
                yield from _pumps(branch, before)
        elif operator in (sre.ASSERT, sre.ASSERT_NOT):
            yield from _pumps(argument[1], before)
        before += _sample_of(operator, argument)


def _branches(items: Any) -> Iterator[str]:
    for operator, argument in items:
        if operator is sre.BRANCH:
            for branch in argument[1]:
                yield _sample(branch)
        elif operator is sre.SUBPATTERN:
            yield from _branches(argument[-1])


def _slow(pattern: re.Pattern[Any], method: str) -> str | None:
    tree = sre_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE & ~re.DEBUG)
    for before, repeated in set(_pumps(tree)):
        for after in ("\0", "!", "a"):
            for size in _SIZES:
                text: Any = before + repeated * size + after
                if isinstance(pattern.pattern, bytes):
                    text = text.encode("latin-1", "replace")
                call = getattr(pattern, method)
                started = time.thread_time()
                call(b"" if isinstance(text, bytes) else "", text) if method.startswith(
                    "sub"
                ) else list(call(text)) if method == "finditer" else call(text)
                if time.thread_time() - started > _LIMIT:
                    return f"{before[:20]!r} + {repeated[:20]!r} * {size} + {after!r}"
    return None


def test_own_patterns_take_linear_time() -> None:
    slow = {
        name: (pattern.pattern, method, text)
        for name, pattern, method in _patterns()
        if (text := _slow(pattern, method)) is not None
    }
    assert not slow, "\n".join(f"{name}: {what}" for name, what in slow.items())


@pytest.mark.parametrize("pattern", [r"(\d+)\s*([a-z]+)", "(a+)+$", "(a|aa)+$"])
def test_the_check_finds_slow_patterns(pattern: str) -> None:
    assert _slow(re.compile(pattern), "search")
