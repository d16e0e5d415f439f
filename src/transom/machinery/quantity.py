"""Exact resource quantities: `500m`, `1Gi`, `12e6`, read, computed with and printed as Kubernetes
does.

Quantities determine scheduling, quota and limits, and their printed form is part of every object,
so there is no floating point and only Kubernetes' own rounding. A quantity is `mantissa *
10**exponent` in a format (decimal suffix, binary suffix, decimal exponent). This module does not
depend on objects.
"""

from __future__ import annotations

import re
from typing import Final

from transom.kit.caching import text_cache
from transom.kit.lazy import lazy_pattern

DECIMAL_SI: Final = "DecimalSI"
BINARY_SI: Final = "BinarySI"
DECIMAL_EXPONENT: Final = "DecimalExponent"

FORMAT_WRONG = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
NUMERIC_WRONG = "unable to parse numeric part of quantity"
SUFFIX_WRONG = "unable to parse quantity's suffix"

NANO: Final = -9
MILLI: Final = -3

_MAX_INT64 = (1 << 63) - 1
_INT64_DIGITS = 18  # decimal digits that always fit an int64
_MAX_DIGITS = 4000  # below CPython's limit for int <-> str
_CACHED_LENGTH = 32
# Sums of values further apart than this keep only the larger one: `1e2000000000` must not become
# two billion digits.
_FAR_APART = 10_000

# More permissive than the documented expression, exactly as Kubernetes' scanner is: `m`, `.`, `+`
# read as zero.
_SCAN = lazy_pattern(
    r"([+-]?)0*+([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[-+]?+[0-9]*+)\Z", re.ASCII
)
_ONLY_ZEROS = lazy_pattern(r"[+-]?0*+\Z", re.ASCII)

DECIMAL_SUFFIXES = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAMES = {exponent: name for name, exponent in DECIMAL_SUFFIXES.items()}
_BINARY_NAMES = ("", *BINARY_SUFFIXES)


class QuantityError(ValueError):
    """The text is not a quantity; `str()` is Kubernetes' own message."""


class Quantity:
    """An immutable exact amount. Equality and order compare amounts, regardless of the format."""

    __slots__ = ("_text", "_wide", "exponent", "format", "mantissa")

    def __init__(
        self,
        mantissa: int,
        exponent: int = 0,
        format: str = DECIMAL_SI,
        *,
        text: str = "",
        wide: bool = False,
    ) -> None:
        self.mantissa = mantissa
        self.exponent = exponent
        self.format = format
        self._text = text
        # Kubernetes holds amounts as an int64 or, when `wide`, as a big decimal; the two overflow
        # differently.
        self._wide = wide

    @property
    def is_zero(self) -> bool:
        return self.mantissa == 0

    @property
    def sign(self) -> int:
        return (self.mantissa > 0) - (self.mantissa < 0)

    def value(self) -> int:
        """The amount as an int64, rounded away from zero."""
        return self.scaled_value(0)

    def milli_value(self) -> int:
        """The amount in thousandths as an int64, rounded away from zero."""
        return self.scaled_value(MILLI)

    def scaled_value(self, scale: int) -> int:
        shift = self.exponent - scale
        if shift < 0:
            whole = _divide_up(self.mantissa, -shift)
        elif self.mantissa == 0 or shift > _FAR_APART:
            return 0
        else:
            whole = self.mantissa * 10**shift
        if -_MAX_INT64 <= whole <= _MAX_INT64:
            return whole
        return _wrap_int64(whole) if self._wide else 0

    def as_int64(self) -> int | None:
        """The amount if it is a whole int64 as written, otherwise None."""
        if self._wide or self.exponent < 0 or self.exponent > _INT64_DIGITS:
            return 0 if self.mantissa == 0 and not self._wide and self.exponent > 0 else None
        whole = self.mantissa * 10**self.exponent
        return whole if -_MAX_INT64 <= whole <= _MAX_INT64 else None

    def to_float(self) -> float:
        if self.exponent > 400:
            return 0.0 if self.mantissa == 0 else float("inf") * self.sign
        return float(f"{self.mantissa}e{self.exponent}")

    def round_up(self, scale: int) -> Quantity:
        """Rounded away from zero to a multiple of `10**scale`."""
        if self.exponent >= scale:
            return (
                self
                if not self._wide
                else Quantity(self.mantissa, self.exponent, self.format, wide=True)
            )
        return Quantity(
            _divide_up(self.mantissa, scale - self.exponent), scale, self.format, wide=self._wide
        )

    def compare(self, other: Quantity) -> int:
        a, b = self.mantissa, other.mantissa
        if self.exponent != other.exponent and a and b and (a > 0) == (b > 0):
            size_a, size_b = _digits(a) + self.exponent, _digits(b) + other.exponent
            if size_a != size_b:
                return self.sign if size_a > size_b else -self.sign
            # Same magnitude: the exponents differ by no more than the mantissas' lengths.
            if self.exponent > other.exponent:
                a *= 10 ** (self.exponent - other.exponent)
            else:
                b *= 10 ** (other.exponent - self.exponent)
        return (a > b) - (a < b)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.compare(other) == 0

    def __lt__(self, other: Quantity) -> bool:
        return self.compare(other) < 0

    def __le__(self, other: Quantity) -> bool:
        return self.compare(other) <= 0

    def __gt__(self, other: Quantity) -> bool:
        return self.compare(other) > 0

    def __ge__(self, other: Quantity) -> bool:
        return self.compare(other) >= 0

    def __hash__(self) -> int:
        return hash(_strip_tens(self.mantissa, self.exponent))

    def __add__(self, other: Quantity) -> Quantity:
        """The sum in this quantity's format, or in the other's if this one is zero."""
        return self._plus(other.mantissa, other)

    def __sub__(self, other: Quantity) -> Quantity:
        return self._plus(-other.mantissa, other)

    def __neg__(self) -> Quantity:
        return Quantity(-self.mantissa, self.exponent, self.format, wide=self._wide)

    def _plus(self, addend: int, other: Quantity) -> Quantity:
        wide = self._wide or other._wide
        if self.mantissa == 0:
            return Quantity(addend, other.exponent, other.format, wide=wide)
        if addend == 0:
            return Quantity(self.mantissa, self.exponent, self.format, wide=wide)
        shift = self.exponent - other.exponent
        if abs(shift) > _FAR_APART:
            larger = (self.mantissa, self.exponent) if shift > 0 else (addend, other.exponent)
            return Quantity(*larger, self.format, wide=True)
        if shift >= 0:
            total, exponent = self.mantissa * 10**shift + addend, other.exponent
        else:
            total, exponent = self.mantissa + addend * 10**-shift, self.exponent
        return Quantity(
            total, exponent, self.format, wide=wide or not -_MAX_INT64 <= total <= _MAX_INT64
        )

    def __str__(self) -> str:
        if not self._text:
            self._text = self._canonical()
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def _canonical(self) -> str:
        if self.mantissa == 0:
            return "0"
        if self.format == BINARY_SI and self.exponent <= _INT64_DIGITS:
            whole = (
                self.mantissa * 10**self.exponent
                if self.exponent >= 0
                else _exact(self.mantissa, -self.exponent)
            )
            # Small or fractional amounts are printed in decimal, which loses nothing.
            if whole is not None and not -1024 < whole < 1024:
                power = 0
                while whole % 1024 == 0:
                    whole //= 1024
                    power += 1
                return f"{whole}{_BINARY_NAMES[power] if power < len(_BINARY_NAMES) else ''}"
        mantissa, exponent = _strip_tens(self.mantissa, self.exponent)
        extra = exponent % 3
        mantissa *= 10**extra
        exponent -= extra
        if self.format == DECIMAL_EXPONENT:
            return f"{mantissa}e{exponent}" if exponent else str(mantissa)
        # Beyond the largest suffix Kubernetes prints no suffix at all.
        return f"{mantissa}{_DECIMAL_NAMES.get(exponent, '')}"


ZERO = Quantity(0, text="0")


def parse_quantity(value: str | int | float | Quantity) -> Quantity:
    """The quantity written as `value`; raises QuantityError with Kubernetes' text."""
    if isinstance(value, str):
        return _parse_cached(value) if len(value) <= _CACHED_LENGTH else _parse(value)
    if isinstance(value, Quantity):
        return value
    return parse_quantity(_number_text(value))


def canonical_quantity(value: str | int | float | None) -> str:
    """The text that a server returns for a quantity."""
    if value is None:
        return "0"
    if not isinstance(value, str):
        value = _number_text(value)
    if len(value) <= _CACHED_LENGTH:
        return _canonical_cached(value)
    return str(_parse(value.strip()))


def from_int(value: int, format: str = DECIMAL_SI) -> Quantity:
    return Quantity(value, 0, format)


def from_milli(value: int, format: str = DECIMAL_SI) -> Quantity:
    return Quantity(value, MILLI, format)


@text_cache(8192)
def _canonical_cached(text: str) -> str:
    return str(_parse(text.strip()))


def _parse(text: str) -> Quantity:
    if not text:
        raise QuantityError(FORMAT_WRONG)
    if text == "0":
        return ZERO
    found = _SCAN.match(text)
    if found is None:
        raise QuantityError(FORMAT_WRONG)
    minus, number, fraction, suffix = found.groups("")
    if len(number) + len(fraction) > _MAX_DIGITS:
        raise QuantityError(NUMERIC_WRONG)
    negative = minus == "-"
    if _ONLY_ZEROS.match(text):
        return Quantity(0)

    power = BINARY_SUFFIXES.get(suffix)
    if power is not None:
        return _parse_binary(text, negative, number, fraction, power)

    exponent = DECIMAL_SUFFIXES.get(suffix)
    format = DECIMAL_SI
    if exponent is None:
        exponent, format = _read_exponent(suffix), DECIMAL_EXPONENT
    digits = (number or "0") + fraction
    scale = exponent - len(fraction)
    if len(digits) <= _INT64_DIGITS and scale >= NANO:
        mantissa = -int(digits) if negative else int(digits)
        # A text in (nearly) canonical form is kept: `1E3`, `+1`, `1.500`.
        kept = text if scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0" else ""
        return Quantity(mantissa, scale, format, text=kept)
    if not number and not fraction and not _has_digit(text, suffix):
        raise QuantityError(NUMERIC_WRONG)
    mantissa = int(digits)
    if scale < NANO:
        mantissa, scale = _divide_up(mantissa, NANO - scale), NANO
    return Quantity(-mantissa if negative else mantissa, scale, format, wide=True)


_parse_cached = text_cache(8192)(_parse)


def _parse_binary(text: str, negative: bool, number: str, fraction: str, power: int) -> Quantity:
    digits = number or "0"
    if not fraction and 14 - len(digits) - power * 3 // 10 >= 0:
        count = int(digits)
        kept = text if count & 7 else ""
        return Quantity((-count if negative else count) << power, 0, BINARY_SI, text=kept)
    mantissa, scale = int(digits + fraction) << power, -len(fraction)
    if scale < NANO:
        mantissa, scale = _divide_up(mantissa, NANO - scale), NANO
    format = BINARY_SI
    if mantissa > _MAX_INT64 * 10**-scale:
        mantissa, scale = _MAX_INT64, 0
    elif 0 < mantissa < 10**-scale:
        format = DECIMAL_SI
    return Quantity(-mantissa if negative else mantissa, scale, format, wide=True)


def _read_exponent(suffix: str) -> int:
    """`e3`, `E-3`: anything else is not a suffix."""
    digits = suffix[1:]
    if suffix[:1] not in ("e", "E") or not digits.lstrip("+-").isdigit():
        raise QuantityError(SUFFIX_WRONG)
    if len(digits) > 20 or not -_MAX_INT64 - 1 <= int(digits) <= _MAX_INT64:
        raise QuantityError(SUFFIX_WRONG)
    return (int(digits) + (1 << 31)) % (1 << 32) - (1 << 31)  # held in an int32


def _has_digit(text: str, suffix: str) -> bool:
    return any(ch.isdigit() for ch in text[: len(text) - len(suffix)])


def _number_text(value: int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def _divide_up(mantissa: int, tens: int) -> int:
    """mantissa / 10**tens, rounded away from zero."""
    if mantissa == 0:
        return 0
    if tens > _digits(mantissa):
        return 1 if mantissa > 0 else -1
    quotient = -(-abs(mantissa) // 10**tens)
    return quotient if mantissa > 0 else -quotient


def _exact(mantissa: int, tens: int) -> int | None:
    if tens > _digits(mantissa):
        return None
    quotient, rest = divmod(mantissa, 10**tens)
    return None if rest else quotient


def _digits(mantissa: int) -> int:
    return len(str(abs(mantissa)))


def _strip_tens(mantissa: int, exponent: int) -> tuple[int, int]:
    if mantissa == 0:
        return 0, 0
    while mantissa % 10 == 0:
        mantissa //= 10
        exponent += 1
    return mantissa, exponent


def _wrap_int64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
