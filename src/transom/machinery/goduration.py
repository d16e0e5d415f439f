"""Durations as Go reads and prints them: `1m30s`, `250ms`, `1.5s`. Events and settings carry them. Knows no clock."""

from __future__ import annotations

import re

from transom.machinery.field import go_quote

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"(\d*)(?:(\.)(\d*))?([^\d.]*)", re.ASCII)
_SECOND = 10**9
_LARGEST = (1 << 63) - 1


class DurationError(ValueError):
    """The text is no duration; `str()` is Go's message."""


def show(seconds: float) -> str:
    """The text of a duration, exact to the nanosecond."""
    nanoseconds = round(seconds * _SECOND)
    if nanoseconds == 0:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest < _SECOND:
        unit = "ns" if rest < 10**3 else "µs" if rest < 10**6 else "ms"
        return f"{sign}{_decimal(rest, _UNITS[unit])}{unit}"
    minutes, rest = divmod(rest, 60 * _SECOND)
    text = f"{_decimal(rest, _SECOND)}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
    return sign + text


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    return f"{whole}." + str(rest).zfill(len(str(unit)) - 1).rstrip("0")


def parse(text: str) -> float:
    """Seconds. Raises DurationError."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text[1:] if text[:1] == "+" else text)
    if rest == "0":
        return 0.0
    total = 0
    if not rest:
        raise DurationError(f"time: invalid duration {go_quote(text)}")
    while rest:
        found = _PART.match(rest)
        assert found is not None  # every part of it is optional
        whole, _, fraction, unit = found.groups("")
        if not whole and not fraction:
            raise DurationError(f"time: invalid duration {go_quote(text)}")
        if not unit:
            raise DurationError(f"time: missing unit in duration {go_quote(text)}")
        size = _UNITS.get(unit)
        if size is None:
            raise DurationError(f"time: unknown unit {go_quote(unit)} in duration {go_quote(text)}")
        total += int(whole or "0") * size
        if fraction:
            total += int(fraction) * size // 10 ** len(fraction)
        if total > _LARGEST:
            raise DurationError(f"time: invalid duration {go_quote(text)}")
        rest = rest[found.end():]
    return sign * total / _SECOND
