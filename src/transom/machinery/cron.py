"""The next time of a cron schedule. Pure: the caller passes the time, in unix seconds.

The algorithm is that of the library Kubernetes uses, so that both agree on edge cases: a day
matches by the day of the month or the day of the week, unless one of them has a star; and hours
that a time zone skips or repeats are counted in real time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from transom.machinery.validation.cron import Fields, parse_cron, parse_zoned_cron

_YEARS = 5  # a schedule that is not due for this long never is
_HOUR, _MINUTE = timedelta(hours=1), timedelta(minutes=1)


class CronSchedule:
    """Raises CronError if the text is not a schedule. `zoned`: the text may name a time zone, as in
    newer releases.
    """

    __slots__ = ("_parsed", "_zone")

    def __init__(self, text: str, zone: tzinfo = UTC, *, zoned: bool = False) -> None:
        if zoned:
            self._parsed, own = parse_zoned_cron(text)
            self._zone = zone if own is None else own
        else:
            self._parsed, self._zone = parse_cron(text), zone

    def next(self, after: float) -> float | None:
        """The first due time after this one, None if there is none."""
        if isinstance(self._parsed, int):
            return float(int(after) + self._parsed)
        start = datetime.fromtimestamp(int(after) + 1, self._zone)
        found = _next(self._parsed, start, self._zone)
        return found.timestamp() if found is not None else None


def _next(fields: Fields, t: datetime, zone: tzinfo) -> datetime | None:
    minute, hour, day, month, weekday = fields
    last_year = t.year + _YEARS
    if t.second:
        t = _later(t.replace(second=0), _MINUTE, zone)
    while t.year <= last_year:
        if t.month not in month.values:
            year, next_month = divmod(t.month, 12)
            t = datetime(t.year + year, next_month + 1, 1, tzinfo=zone)
            continue
        by_month, by_week = t.day in day.values, t.isoweekday() % 7 in weekday.values
        if not (by_month and by_week if day.star or weekday.star else by_month or by_week):
            # by the calendar, not by 24 hours
            t = datetime(t.year, t.month, t.day, tzinfo=zone) + timedelta(days=1)
            continue
        if t.hour not in hour.values:
            t = _later(t.replace(minute=0), _HOUR, zone)
            continue
        if t.minute not in minute.values:
            t = _later(t, _MINUTE, zone)
            continue
        return t
    return None


def _later(t: datetime, by: timedelta, zone: tzinfo) -> datetime:
    """Adds real time, regardless of clock changes in the zone."""
    return (t.astimezone(UTC) + by).astimezone(zone)
