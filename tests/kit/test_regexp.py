"""Go's regexp on RE2: syntax, matches, error texts, linear time."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from transom.kit.regexp import RegexpError, compile_regexp


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^[a-z]+$", "abc", True),
        ("^[a-z]+$", "abc\n", False),  # `$` is the end of the text, not of the line
        ("(?m)^[a-z]+$", "abc\n", True),
        (r"^\d+$", "٣", False),  # ASCII digits only
        ("[[:alpha:]_]+", "_", True),
        ("^[]a]$", "]", True),
        (r"\Qa.b\E", "a.b", True),
        (r"\Qa.b\E", "axb", False),
        (r"\Q\C\E", r"\C", True),
        (r"^\p{L}+$", "né", True),
        (r"^\P{L}+$", "né", False),
        (r"^\p{Greek}+$", "αβγ", True),
        (r"^[\p{Lu}\d]+$", "É1", True),
        ("a{,3}", "a{,3}", True),  # no repetition in Go
        ("(?i)ABC", "abc", True),
        (r"a\z", "ba", True),
        ("^.$", "é", True),
        ("(?s)^.$", "\n", True),
        ("(?P<n>a)(?P<n>b)", "ab", True),
    ],
)
def test_match_string(pattern: str, text: str, matches: bool) -> None:
    assert compile_regexp(pattern).match_string(text) == matches


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(", "missing closing ): `(`"),
        ("(a|b", "missing closing ): `(a|b`"),
        ("a)", "unexpected ): `a)`"),
        ("(a))", "unexpected ): `(a))`"),
        ("[a", "missing closing ]: `[a`"),
        ("([a-z)", "missing closing ]: `[a-z)`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("(|*)", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("x{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
        ("(?<=a)", "invalid or unsupported Perl syntax: `(?<`"),
        ("(?<n>a)", "invalid or unsupported Perl syntax: `(?<`"),
        ("(?i", "invalid or unsupported Perl syntax: `(?i`"),
        ("(?P=n)", "invalid or unsupported Perl syntax: `(?P`"),
        ("(?P<name", "invalid named capture: `(?P<name`"),
        ("(?P<x y>a)", "invalid named capture: `(?P<x y>`"),
        ("(?P<ñ>a)", "invalid named capture: `(?P<ñ>`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        (r"\y", r"invalid escape sequence: `\y`"),
        (r"\C", r"invalid escape sequence: `\C`"),
        (r"\Z", r"invalid escape sequence: `\Z`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        (r"\p{Foo}", r"invalid character class range: `\p{Foo}`"),
        ("a{3,1}", "invalid repeat count: `{3,1}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("(a{100}){100}", "invalid repeat count: `{100}`"),
    ],
)
def test_errors_have_gos_texts(pattern: str, text: str) -> None:
    with pytest.raises(RegexpError) as raised:
        compile_regexp(pattern)
    assert str(raised.value) == f"error parsing regexp: {text}"


def test_deep_nesting_and_large_programs_are_rejected() -> None:
    with pytest.raises(RegexpError, match="expression nests too deeply"):
        compile_regexp("(" * 1001 + ")" * 1001)
    with pytest.raises(RegexpError, match="expression too large"):
        compile_regexp(r"(\pL{500}\pL{500}){2}" * 100)


def test_named_groups_in_angle_brackets_exist_since_go_1_22() -> None:
    assert compile_regexp("(?<n>a)", angle_names=True).match_string("a")


@pytest.mark.parametrize(
    ("pattern", "text", "limit", "found"),
    [
        ("a*", "baaac", -1, ["", "aaa", ""]),  # an empty match next to a match is ignored
        ("[0-9]+", "1é22é333", -1, ["1", "22", "333"]),
        ("[0-9]+", "1 22 333", 2, ["1", "22"]),
        ("[0-9]+", "1 22", 0, []),
        ("", "é", -1, ["", ""]),
        ("x", "abc", -1, []),
    ],
)
def test_find_all_string(pattern: str, text: str, limit: int, found: list[str]) -> None:
    assert compile_regexp(pattern).find_all_string(text, limit) == found


def test_find_string_returns_the_leftmost_match() -> None:
    assert compile_regexp("b+").find_string("aébbb b") == "bbb"
    assert compile_regexp("x").find_string("abc") == ""


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|aa)+$", "^(a|a?)+$", "(.*a){20}$", r"^(\w+\s?)*$", "(x+x+)+y"]
)
def test_patterns_that_backtrack_take_linear_time(pattern: str) -> None:
    regexp = compile_regexp(pattern)
    started = time.thread_time()
    regexp.match_string("a" * 100_000 + "!")
    regexp.match_string("x" * 100_000)
    assert time.thread_time() - started < 1


def test_the_engine_is_loaded_by_the_first_pattern_only() -> None:
    code = (
        "import sys\nfrom transom.kit import regexp\na = 're2' in "
        "sys.modules\nregexp.compile_regexp('a')\n"
    )
    code += "print(a, 're2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
