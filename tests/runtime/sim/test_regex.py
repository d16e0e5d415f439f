"""Regular expressions of simulated programs never hold the event loop."""

from __future__ import annotations

import re
import time

import pytest

from transom.userland.posix.sh import patterns
from transom.userland.regex import PatternTooComplexError, compile_pattern


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", ".*.*.*.*.*b", r"^(\w+\s?)*$"])
def test_patterns_that_backtrack_take_linear_time(pattern: str) -> None:
    compiled = compile_pattern(pattern)
    started = time.thread_time()
    compiled.search("a" * 50_000 + "!")
    assert time.thread_time() - started < 0.5


def test_shell_patterns_take_linear_time() -> None:
    started = time.thread_time()
    assert not patterns.matches_glob("*a" * 20 + "*b", "a" * 10_000)
    assert time.thread_time() - started < 0.5


def test_back_references_and_look_around_work() -> None:
    assert compile_pattern(r"^(.)x\1$").search("axa")
    assert not compile_pattern(r"^(.)x\1$").search("axb")
    assert compile_pattern(r"a(?=b)").sub("c", "abaa") == "cbaa"


@pytest.mark.parametrize("pattern", [r"(a+)+(?=b)$", r"((a|aa)+)\1$", r"(a*)*\1$"])
def test_a_pattern_that_backtracks_without_bound_is_refused(pattern: str) -> None:
    with pytest.raises(PatternTooComplexError):
        compile_pattern(pattern).search("a" * 40)


def test_a_long_text_is_refused_where_its_length_makes_matching_slow() -> None:
    compiled = compile_pattern(r"(.*),(.*)\1$")
    assert compiled.search("ab,ab")
    with pytest.raises(PatternTooComplexError):
        compiled.search("," * 5_000)


def test_invalid_patterns_raise_the_usual_error() -> None:
    for pattern in ("(", "*", "[a"):
        with pytest.raises(re.error):
            compile_pattern(pattern)


def test_text_that_is_not_utf8_can_be_searched() -> None:
    assert compile_pattern("b.c").search("a\udc80b\udc81c")
    assert compile_pattern("b").sub("x", "ab") == "ax"
