"""Times in API objects: read with Go's RFC 3339 parser, printed in UTC, wrong ones refused with Go's text.

Kubernetes prints a time in whole seconds and a micro time with six digits; both are null when they are Go's zero time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from transom.machinery.field import go_quote

RFC3339 = "2006-01-02T15:04:05Z07:00"
RFC3339_MICRO = "2006-01-02T15:04:05.000000Z07:00"
ZERO = "0001-01-01T00:00:00Z"

_CANONICAL = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ", re.ASCII
).fullmatch
_CANONICAL_MICRO = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}Z", re.ASCII
).fullmatch
_PARTS = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
).fullmatch


class TimeError(ValueError):
    """The text is no time; `str()` is Go's message."""


def canonical(text: str) -> str | None:
    """The time as `metav1.Time` prints it, None for the zero time."""
    if _CANONICAL(text):
        return text if text != ZERO else None
    when, _ = _read(text, RFC3339)
    return _stamp(when) if when is not None else None


def canonical_micro(text: str) -> str | None:
    """The time as `metav1.MicroTime` prints it, None for the zero time."""
    if _CANONICAL_MICRO(text):
        return text
    when, nanos = _read(text, RFC3339_MICRO)
    return f"{_stamp(when)[:-1]}.{nanos // 1000:06d}Z" if when is not None else None


def _stamp(when: datetime) -> str:
    return f"{when.year:04d}-{when.month:02d}-{when.day:02d}T{when.hour:02d}:{when.minute:02d}:{when.second:02d}Z"


def _read(text: str, layout: str) -> tuple[datetime | None, int]:
    """The time in UTC without its fraction, and the nanoseconds; None for the zero time."""
    match = _PARTS(text)
    if not match or (layout is RFC3339_MICRO and (match[7] is None or len(match[7]) < 7)):
        raise TimeError(_why(text, layout))
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    nanos = int((match[7] or ".0")[1:10].ljust(9, "0"))
    if not 1 <= month <= 12:
        raise _out_of_range(text, "month")
    if hour > 23:
        raise _out_of_range(text, "hour")
    if minute > 59:
        raise _out_of_range(text, "minute")
    if second > 59:
        raise _out_of_range(text, "second")
    if not 1 <= day <= _days_in(year, month):
        raise _out_of_range(text, "day")
    offset = timedelta()
    if match[8]:
        offset = timedelta(hours=int(match[9]), minutes=int(match[10])) * (-1 if match[8] == "-" else 1)
    if year == 0:
        raise _out_of_range(text, "year")
    try:
        when = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - offset
    except OverflowError:
        raise _out_of_range(text, "year") from None
    return (None, 0) if when == datetime(1, 1, 1, tzinfo=UTC) and nanos == 0 else (when, nanos)


def _days_in(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _out_of_range(text: str, what: str) -> TimeError:
    return TimeError(f"parsing time {go_quote(text)}: {what} out of range")


# The elements of the layout: its text as Go names it, and what it accepts.
_STEPS: tuple[tuple[str, str], ...] = (
    ("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T"), ("15", r"\d\d"),
    (":", ":"), ("04", r"\d\d"), (":", ":"), ("05", r"\d\d"),
)
_ZONE = re.compile(r"Z|[+-]\d\d:\d\d", re.ASCII)


def _why(text: str, layout: str) -> str:
    """Go's message for the first element of the layout that the text does not match."""
    rest = text

    def refused(element: str) -> str:
        what = f"parsing time {go_quote(text)} as {go_quote(layout)}"
        return f"{what}: cannot parse {go_quote(rest)} as {go_quote(element)}"

    for element, pattern in _STEPS:
        match = re.match(pattern, rest, re.ASCII)
        if not match:
            return refused(element)
        rest = rest[match.end():]
    if layout is RFC3339_MICRO:
        # Go takes exactly six digits, or more when the element after them cannot be told apart.
        match = re.match(r"\.\d{6}", rest, re.ASCII)
        if not match:
            return refused(".000000")
        rest = rest[match.end():]
    elif match := re.match(r"\.\d+", rest, re.ASCII):
        rest = rest[match.end():]
    match = _ZONE.match(rest)
    if not match:
        return refused("Z07:00")
    rest = rest[match.end():]
    return f"parsing time {go_quote(text)}: extra text: {rest}"
