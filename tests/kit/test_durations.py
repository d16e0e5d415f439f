"""Durations in Go's form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.kit.durations import DurationError, format_duration, parse_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (1.2, "1.2s"),
        (0.25, "250ms"),
        (0.0000015, "1.5µs"),
        (90, "1m30s"),
        (3600, "1h0m0s"),
        (300, "5m0s"),
        (3661.5, "1h1m1.5s"),
        (-2, "-2s"),
        (0.000000007, "7ns"),
        (1.234567891, "1.234567891s"),
    ],
)
def test_show(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1m30s", 90),
        ("1.5h", 5400),
        ("-250ms", -0.25),
        ("0", 0),
        ("+2s", 2),
        ("1h1m1s", 3661),
        (".5s", 0.5),
        ("2us", 2e-6),
        ("2µs", 2e-6),
        ("2\u03bcs", 2e-6),
        ("0" * 5000 + "1s", 1),
        ("1." + "0" * 5000 + "1s", 1),
        ("-0.5m", -30),
    ],
)
def test_parse(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", 'time: invalid duration ""'),
        ("1", 'time: missing unit in duration "1"'),
        ("s", 'time: invalid duration "s"'),
        ("1x", 'time: unknown unit "x" in duration "1x"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("-", 'time: invalid duration "-"'),
        (".", 'time: invalid duration "."'),
        ("1h.", 'time: invalid duration "1h."'),
        ("1m 2s", 'time: unknown unit "m " in duration "1m 2s"'),
        ("9999999999h", 'time: invalid duration "9999999999h"'),
        ("9" * 5000 + "s", 'time: invalid duration "' + "9" * 5000 + 's"'),
    ],
)
def test_no_duration(text: str, problem: str) -> None:
    with pytest.raises(DurationError) as error:
        parse_duration(text)
    assert str(error.value) == problem


@given(st.integers(-(10**12), 10**12))
def test_what_is_shown_is_read_back(microseconds: int) -> None:
    assert parse_duration(format_duration(microseconds / 1e6)) == pytest.approx(
        microseconds / 1e6, abs=1e-9
    )
