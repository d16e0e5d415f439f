"""Timestamps and durations of CEL: reading, printing, and their parts in a time zone."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from functools import lru_cache

from transom.kit.cel.errors import CelError
from transom.kit.cel.values import SECOND, Duration, Timestamp
from transom.kit.durations import parse_nanoseconds
from transom.kit.lazy import lazy_pattern

_RFC3339 = lazy_pattern(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:(Z)|([+-])(\d\d):(\d\d))", re.ASCII
)
_OFFSET = lazy_pattern(r"([+-]?)(\d\d):(\d\d)", re.ASCII)
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def parse_timestamp(text: str) -> Timestamp:
    """Read RFC 3339; raise ValueError."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(found[i]) for i in range(1, 7))
    days = datetime.date(year, month, day).toordinal() - _EPOCH
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(text)
    nanos = int(((found[7] or "") + "000000000")[:9])
    total = days * 86400 + hour * 3600 + minute * 60 + second
    if found[9]:
        offset = int(found[10]) * 3600 + int(found[11]) * 60
        total -= offset if found[9] == "+" else -offset
    return Timestamp(total * SECOND + nanos)


def parse_cel_duration(text: str) -> Duration:
    """Read Go's notation, such as `1h2m3.5s`; raise ValueError."""
    return Duration(parse_nanoseconds(text))


def _fraction(nanos: int) -> str:
    return f".{nanos:09d}".rstrip("0") if nanos else ""


def show_timestamp(value: Timestamp) -> str:
    seconds, nanos = divmod(value.nanos, SECOND)
    days, rest = divmod(seconds, 86400)
    day = datetime.date.fromordinal(days + _EPOCH)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{day.year:04d}-{day.month:02d}-{day.day:02d}T{clock}{_fraction(nanos)}Z"


def show_duration(value: Duration) -> str:
    """Seconds with a fraction, as string() gives it."""
    sign = "-" if value.nanos < 0 else ""
    seconds, nanos = divmod(abs(value.nanos), SECOND)
    return f"{sign}{seconds}{_fraction(nanos)}s"


@lru_cache(maxsize=64)
def _zone(name: str) -> datetime.tzinfo:
    found = _OFFSET.fullmatch(name)
    if found is not None:
        minutes = int(found[2]) * 60 + int(found[3])
        return datetime.timezone(
            datetime.timedelta(minutes=-minutes if found[1] == "-" else minutes)
        )
    if name in ("UTC", ""):
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise CelError(f"unknown time zone {name}") from None


def time_in_zone(value: Timestamp, zone: str = "UTC") -> datetime.datetime:
    """The time in a zone, to the second."""
    moment = datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(
        seconds=value.nanos // SECOND
    )
    try:
        return moment.astimezone(_zone(zone))
    except OverflowError:
        raise CelError("timestamp overflow") from None
