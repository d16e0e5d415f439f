"""Durations in Go's notation (`1m30s`, `250ms`, `1.5h`), as Kubernetes reads and prints them.

The only implementation of time.ParseDuration and Duration.String. Does not depend on a clock.
"""

from __future__ import annotations

import re

from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_pattern

SECOND = 10**9  # in nanoseconds
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # U+00B5
    "μs": 10**3,  # U+03BC
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PART = lazy_pattern(r"(\d*+)(?:\.(\d*+))?([^\d.]*+)", re.ASCII)
_MAX = (1 << 63) - 1
_MAX_DIGITS = 19  # more digits exceed the range, or are too small to count


class DurationError(ValueError):
    """The text is not a duration; `str()` is Go's message."""


def parse_duration(text: str) -> float:
    """Seconds. Raises DurationError."""
    return parse_nanoseconds(text) / SECOND


def is_duration(text: str) -> bool:
    try:
        parse_nanoseconds(text)
    except DurationError:
        return False
    return True


def parse_nanoseconds(text: str) -> int:
    """Raises DurationError."""
    negative = text[:1] == "-"
    at = 1 if text[:1] in ("-", "+") else 0
    if text[at:] == "0":
        return 0
    if at == len(text):
        raise _invalid(text)
    total = 0
    while at < len(text):
        found = _PART.match(text, at)
        assert found is not None  # every part of the expression is optional
        whole, fraction, unit = found[1], (found[2] or "")[:_MAX_DIGITS], found[3]
        if not whole and not fraction:
            raise _invalid(text)
        if not unit:
            raise DurationError(f"time: missing unit in duration {go_quote(text)}")
        size = _UNITS.get(unit)
        if size is None:
            raise DurationError(f"time: unknown unit {go_quote(unit)} in duration {go_quote(text)}")
        whole = whole.lstrip("0")
        if len(whole) > _MAX_DIGITS:
            raise _invalid(text)
        total += int(whole or "0") * size
        if fraction:
            total += int(fraction) * size // 10 ** len(fraction)
        if total > _MAX:
            raise _invalid(text)
        at = found.end()
    return -total if negative else total


def _invalid(text: str) -> DurationError:
    return DurationError(f"time: invalid duration {go_quote(text)}")


def format_duration(seconds: float) -> str:
    """The text of a duration, exact to the nanosecond."""
    nanoseconds = round(seconds * SECOND)
    if nanoseconds == 0:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest < SECOND:
        unit = "ns" if rest < 10**3 else "µs" if rest < 10**6 else "ms"
        return f"{sign}{_decimal(rest, _UNITS[unit])}{unit}"
    minutes, rest = divmod(rest, 60 * SECOND)
    text = f"{_decimal(rest, SECOND)}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
    return sign + text


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    return f"{whole}." + str(rest).zfill(len(str(unit)) - 1).rstrip("0")
