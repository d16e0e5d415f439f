"""Quantities: Kubernetes' printed forms and error texts, and invariants of exact arithmetic."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery import quantity
from transom.machinery.quantity import (
    FORMAT_WRONG,
    NUMERIC_WRONG,
    SUFFIX_WRONG,
    Quantity,
    QuantityError,
    parse_quantity,
)

CANONICAL = {
    "0.5": "500m",
    "1024Mi": "1Gi",
    "1000m": "1",
    "1e3": "1e3",
    "1E3": "1E3",
    "1e4": "10e3",
    "0.1Gi": "107374182400m",
    "1.5Gi": "1536Mi",
    "0.5Ki": "512",
    "512Ki": "512Ki",
    "1500Mi": "1500Mi",
    "1.500": "1.500",
    "1.50": "1500m",
    "+1": "+1",
    "m": "0",
    ".": "0",
    "1.G": "1.G",
    "-0.5": "-500m",
    "-0": "0",
    "0.0000000001": "1n",
    "-0.0000000001": "-1n",
    "1e-20": "1e-9",
    "8Ei": "9223372036854775807",
    "-8Ei": "-9223372036854775807",
    "0.0001Ki": "102400u",
    "1000E": "1",
    "123456789012345678901": "123456789012345678901",
    "1234567890123456789000k": "1234567890123456789M",
    " 1Gi ": "1Gi",
}


@pytest.mark.parametrize(("text", "expected"), CANONICAL.items())
def test_canonical(text: str, expected: str) -> None:
    assert quantity.canonical_quantity(text) == expected


def test_canonical_of_json_values_that_are_not_strings() -> None:
    assert [quantity.canonical_quantity(v) for v in (None, 1, 0.1, 1000, 1.5)] == [
        "0",
        "1",
        "100m",
        "1k",
        "1500m",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", FORMAT_WRONG),
        ("abc", FORMAT_WRONG),
        ("1GB", FORMAT_WRONG),
        ("1.2.3", FORMAT_WRONG),
        ("1 Gi", FORMAT_WRONG),
        ("1K", SUFFIX_WRONG),
        ("1e", SUFFIX_WRONG),
        ("1m3", SUFFIX_WRONG),
        ("12+3", SUFFIX_WRONG),
        ("1i", SUFFIX_WRONG),
        ("1e99999999999999999999", SUFFIX_WRONG),
        ("e-10", NUMERIC_WRONG),
        ("٣", FORMAT_WRONG),
        ("1\n", FORMAT_WRONG),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        ("1", 1, 1000),
        ("1m", 1, 1),
        ("1500m", 2, 1500),
        ("100u", 1, 1),
        ("-1500m", -2, -1500),
        ("1Gi", 1 << 30, 1000 << 30),
        ("1e30", 0, 0),
        ("0", 0, 0),
    ],
)
def test_values(text: str, value: int, milli: int) -> None:
    assert (parse_quantity(text).value(), parse_quantity(text).milli_value()) == (value, milli)


def test_sums_take_the_format_of_the_first_that_is_not_zero() -> None:
    assert str(parse_quantity("0") + parse_quantity("1Gi")) == "1Gi"
    assert str(parse_quantity("1Gi") + parse_quantity("500Mi")) == "1524Mi"
    assert str(parse_quantity("1") - parse_quantity("250m")) == "750m"
    assert str(parse_quantity("1Gi") - parse_quantity("1")) == "1073741823"
    assert str(-parse_quantity("1Gi")) == "-1Gi"


def test_round_up() -> None:
    assert str(parse_quantity("100u").round_up(-3)) == "1m"
    assert str(parse_quantity("-1100u").round_up(-3)) == "-2m"
    assert str(parse_quantity("1.500").round_up(-3)) == "1.500"
    assert str(parse_quantity("0.1Gi").round_up(0)) == "107374183"


def test_absurd_exponents_cost_nothing() -> None:
    huge, tiny = parse_quantity("1e2000000000"), parse_quantity("1e-2000000000")
    assert tiny == parse_quantity("1n") < parse_quantity("1") < huge
    assert str(huge + parse_quantity("1")) == "100e1999999998"
    assert huge.value() == 0


SUFFIXES = ["n", "u", "m", "", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e3", "e-3", "E6"]
MULTIPLE = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "e3": Fraction(1000),
    "e-3": Fraction(1, 1000),
    "E6": Fraction(10**6),
}


@st.composite
def written(draw: st.DrawFn) -> tuple[str, Fraction]:
    """A text whose amount is a multiple of a nano below the caps, and the amount."""
    suffix = draw(st.sampled_from(SUFFIXES))
    places = 0 if suffix in ("n", "u") else draw(st.integers(0, 3))
    number = draw(st.integers(-(10**6), 10**6))
    text = f"{'-' if number < 0 else ''}{abs(number)}"
    amount = Fraction(number)
    if places:
        fraction = draw(st.integers(0, 10**places - 1))
        text += f".{fraction:0{places}d}"
        amount += Fraction(fraction if number >= 0 else -fraction, 10**places)
    return text + suffix, amount * MULTIPLE[suffix]


def exact(q: Quantity) -> Fraction:
    return q.mantissa * Fraction(10) ** q.exponent


@given(written())
def test_parsing_and_printing_keep_the_exact_amount(case: tuple[str, Fraction]) -> None:
    text, amount = case
    q = parse_quantity(text)
    assert exact(q) == amount
    again = quantity.canonical_quantity(text)
    assert exact(parse_quantity(again)) == amount
    assert quantity.canonical_quantity(again) == again


@given(written(), written())
def test_order_sum_and_hash_follow_the_amounts(
    a: tuple[str, Fraction], b: tuple[str, Fraction]
) -> None:
    (x, ex), (y, ey) = (parse_quantity(a[0]), a[1]), (parse_quantity(b[0]), b[1])
    assert (x < y, x == y, x >= y) == (ex < ey, ex == ey, ex >= ey)
    assert exact(x + y) == ex + ey
    assert exact(x - y) == ex - ey
    assert x + y - y == x
    assert hash(x + y - y) == hash(x)
    assert exact(parse_quantity(str(x + y))) == ex + ey
