"""Times in API objects: parsed like Go's RFC 3339 parser, printed in UTC, with Go's messages for
invalid ones.

Kubernetes prints a time in whole seconds and a micro time with six digits; both are null when they
are Go's zero time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

RFC3339 = "2006-01-02T15:04:05Z07:00"
RFC3339_MICRO = "2006-01-02T15:04:05.000000Z07:00"

_DATE_AND_TIME = r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
# Already in printed form: almost everything.
_CANONICAL = re.compile(_DATE_AND_TIME + "Z", re.ASCII).fullmatch
_CANONICAL_MICRO = re.compile(_DATE_AND_TIME + r"\.\d{6}Z", re.ASCII).fullmatch

_ZERO = datetime(1, 1, 1, tzinfo=UTC)


class TimeError(ValueError):
    """The text is not a time; `str()` is Go's message."""


def canonical_time(text: str) -> str | None:
    """The time as `metav1.Time` prints it, None for the zero time."""
    if _CANONICAL(text) and not text.startswith("000"):
        return text
    when, _ = _read(text, RFC3339)
    return None if when is None else _stamp(when) + "Z"


def canonical_micro_time(text: str) -> str | None:
    """The time as `metav1.MicroTime` prints it, None for the zero time."""
    if _CANONICAL_MICRO(text) and not text.startswith("000"):
        return text
    when, nanoseconds = _read(text, RFC3339_MICRO)
    return None if when is None else f"{_stamp(when)}.{nanoseconds // 1000:06d}Z"


def _stamp(when: datetime) -> str:
    return f"{when.year:04d}-{when.month:02d}-{when.day:02d}T{when.hour:02d}:{when.minute:02d}:{when.second:02d}"


def _element(pattern: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(pattern, re.ASCII).match


_FIXED = _element(r"\d\d")
_FRACTION = _element(r"\.\d+")
_MICROSECONDS = _element(r"\.\d{6}")
_ZONE = _element(r"Z|([+-])(\d\d):(\d\d)")
# The layout in order: Go's name of the element, what it accepts, its name in range errors and its
# range.
_LAYOUT: tuple[tuple[str, Callable[[str], re.Match[str] | None], str, int, int], ...] = (
    ("2006", _element(r"\d{4}"), "", 0, 0),
    ("-", _element("-"), "", 0, 0),
    ("01", _FIXED, "month", 1, 12),
    ("-", _element("-"), "", 0, 0),
    ("02", _FIXED, "", 0, 0),
    ("T", _element("T"), "", 0, 0),
    ("15", _element(r"\d\d?"), "hour", 0, 23),
    (":", _element(":"), "", 0, 0),
    ("04", _FIXED, "minute", 0, 59),
    (":", _element(":"), "", 0, 0),
    ("05", _FIXED, "second", 0, 59),
)


def _read(text: str, layout: str) -> tuple[datetime | None, int]:
    """The time in UTC without its fraction (None for the zero time), and the nanoseconds."""
    rest = text

    def refused(element: str) -> TimeError:
        return TimeError(
            f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{element}"'
        )

    def out_of_range(what: str) -> TimeError:
        return TimeError(f'parsing time "{text}": {what} out of range')

    numbers = []
    for element, accept, what, low, high in _LAYOUT:
        match = accept(rest)
        if not match:
            raise refused(element)
        if match[0].isdigit():
            numbers.append(int(match[0]))
            if what and not low <= numbers[-1] <= high:
                raise out_of_range(what)
        rest = rest[match.end() :]
    fraction = _MICROSECONDS(rest) if layout is RFC3339_MICRO else _FRACTION(rest)
    if fraction:
        rest = rest[fraction.end() :]
    elif layout is RFC3339_MICRO:
        raise refused(".000000")
    zone = _ZONE(rest)
    if not zone:
        raise refused("Z07:00")
    rest = rest[zone.end() :]
    if rest:
        raise TimeError(f'parsing time "{text}": extra text: {rest}')
    year, month, day, hour, minute, second = numbers
    if not 1 <= day <= _days_in(year, month):
        raise out_of_range("day")
    offset = timedelta()
    if zone[1]:
        offset = timedelta(hours=int(zone[2]), minutes=int(zone[3])) * (-1 if zone[1] == "-" else 1)
    try:
        when = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - offset
    except (
        OverflowError,
        ValueError,
    ):  # the year 0, or one that the offset moves out of four digits
        raise out_of_range("year") from None
    nanoseconds = int(fraction[0][1:10].ljust(9, "0")) if fraction else 0
    return (None if when == _ZERO and not nanoseconds else when), nanoseconds


def _days_in(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31
