"""Durations in Go's form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery import goduration
from transom.machinery.goduration import DurationError


@pytest.mark.parametrize(("seconds", "text"), [
    (0, "0s"), (1.2, "1.2s"), (0.25, "250ms"), (0.0000015, "1.5µs"), (90, "1m30s"), (3600, "1h0m0s"), (300, "5m0s"),
    (3661.5, "1h1m1.5s"), (-2, "-2s"), (0.000000007, "7ns"), (1.234567891, "1.234567891s"),
])
def test_show(seconds: float, text: str) -> None:
    assert goduration.show(seconds) == text


@pytest.mark.parametrize(("text", "seconds"), [
    ("1m30s", 90), ("1.5h", 5400), ("-250ms", -0.25), ("0", 0), ("+2s", 2), ("1h1m1s", 3661), (".5s", 0.5), ("2us", 2e-6),
])
def test_parse(text: str, seconds: float) -> None:
    assert goduration.parse(text) == seconds


@pytest.mark.parametrize(("text", "problem"), [
    ("", 'time: invalid duration ""'), ("1", 'time: missing unit in duration "1"'), ("s", 'time: invalid duration "s"'),
    ("1x", 'time: unknown unit "x" in duration "1x"'), ("1d", 'time: unknown unit "d" in duration "1d"'),
])
def test_no_duration(text: str, problem: str) -> None:
    with pytest.raises(DurationError) as error:
        goduration.parse(text)
    assert str(error.value) == problem


@given(st.integers(-10**12, 10**12))
def test_what_is_shown_is_read_back(microseconds: int) -> None:
    assert goduration.parse(goduration.show(microseconds / 1e6)) == pytest.approx(microseconds / 1e6, abs=1e-9)
