"""The schedule of a CronJob: five fields or a descriptor, with the messages of Kubernetes' parser."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from transom.kit.durations import SECOND, DurationError, parse_nanoseconds
from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple

_MAX_INT64 = (1 << 63) - 1


class _Bounds(NamedTuple):
    low: int
    high: int
    names: dict[str, int]


_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS = (
    _Bounds(0, 59, {}),
    _Bounds(0, 23, {}),
    _Bounds(1, 31, {}),
    _Bounds(1, 12, {name: i for i, name in enumerate(_MONTHS, 1)}),
    _Bounds(0, 6, {name: i for i, name in enumerate(_DAYS)}),
)
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "


class CronError(ValueError):
    """The schedule is invalid; `str()` is the reason."""


class CronField(NamedTuple):
    """The values that a field matches, and whether it has a star: then it does not select days by
    itself.
    """

    values: frozenset[int]
    star: bool


# minute, hour, day of the month, month, day of the week
Fields = tuple[CronField, CronField, CronField, CronField, CronField]


class ZonedCron(NamedTuple):
    """A parsed schedule, and the time zone that it names."""

    parsed: Fields | int
    zone: ZoneInfo | None = None


def check_schedule(schedule: str, *, zoned: bool = False) -> str:
    """The error of the schedule, or "". `zoned` as for parse_zoned_cron."""
    try:
        if zoned:
            parse_zoned_cron(schedule)
        else:
            parse_cron(schedule)
    except CronError as error:
        return str(error)
    return ""


def parse_zoned_cron(text: str) -> ZonedCron:
    """A schedule as newer releases parse it: `TZ=UTC 0 3 * * *` names a time zone, and errors begin
    with a small letter.
    """
    zone, schedule = None, text
    if text.startswith(("TZ=", "CRON_TZ=")):
        prefix, space, schedule = text.partition(" ")
        if not space:
            problem = "runtime error: slice bounds out of range [:-1]"
            raise CronError(f"invalid schedule format: {problem}")
        name, schedule = prefix.partition("=")[2], schedule.strip()
        zone = load_time_zone(name)
        if zone is None:
            raise CronError(f"provided bad location {name}: unknown time zone {name}")
    fields = schedule.split()
    if not schedule.startswith("@") and len(fields) != len(_FIELDS):
        shown = f"[{' '.join(fields)}]"
        raise CronError(f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: {shown}")
    try:
        return ZonedCron(parse_cron(schedule, steps_are_stars=False), zone)
    except CronError as error:
        message = str(error)
        raise CronError(message[:1].lower() + message[1:]) from None


def load_time_zone(name: str) -> ZoneInfo | None:
    """A time zone as Go loads it: "" is UTC. None if it is unknown."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def parse_cron(schedule: str, *, steps_are_stars: bool = True) -> Fields | int:
    """The fields of a schedule, or the whole seconds of an `@every`. `steps_are_stars`: a field like
    `*/2` has a star.
    """
    if schedule.startswith("@"):
        described = _DESCRIPTORS.get(schedule)
        return _parse_every(schedule) if described is None else parse_cron(described)
    fields = schedule.split()
    if len(fields) != len(_FIELDS):
        raise CronError(f"Expected exactly {len(_FIELDS)} fields, found {len(fields)}: {schedule}")
    minute, hour, day, month, weekday = (
        _parse_field(text, bounds, steps_are_stars)
        for text, bounds in zip(fields, _FIELDS, strict=True)
    )
    return minute, hour, day, month, weekday


def _parse_every(text: str) -> int:
    if not text.startswith(_EVERY):
        raise CronError(f"Unrecognized descriptor: {text}")
    try:
        nanoseconds = parse_nanoseconds(text.removeprefix(_EVERY))
    except DurationError as error:
        raise CronError(f"Failed to parse duration {text}: {error}") from error
    return max(nanoseconds // SECOND, 1)


def _parse_field(text: str, bounds: _Bounds, steps_are_stars: bool) -> CronField:
    values: set[int] = set()
    star = False
    # Each expression once: a schedule can repeat one a hundred thousand times.
    for expression in dict.fromkeys(filter(None, text.split(","))):
        found = _parse_range(expression, bounds)
        values.update(found)
        star = star or (expression[0] in "*?" and (steps_are_stars or found.step == 1))
    return CronField(frozenset(values), star)


def _parse_range(expression: str, bounds: _Bounds) -> range:
    """`number`, `low-high`, `*`, each with an optional `/step`."""
    extent, *steps = expression.split("/")
    ends = extent.split("-")
    if ends[0] in ("*", "?"):
        low, high = bounds.low, bounds.high
    else:
        low = high = _number_or_name(ends[0], bounds.names)
        if len(ends) == 2:
            high = _number_or_name(ends[1], bounds.names)
        elif len(ends) > 2:
            raise CronError(f"Too many hyphens: {expression}")
    step = 1
    if len(steps) == 1:
        step = _number(steps[0])
        if len(ends) == 1:  # `5/2` means `5-max/2`
            high = bounds.high
    elif steps:
        raise CronError(f"Too many slashes: {expression}")
    if low < bounds.low:
        raise CronError(f"Beginning of range ({low}) below minimum ({bounds.low}): {expression}")
    if high > bounds.high:
        raise CronError(f"End of range ({high}) above maximum ({bounds.high}): {expression}")
    if low > high:
        raise CronError(f"Beginning of range ({low}) beyond end of range ({high}): {expression}")
    if step == 0:
        raise CronError(f"Step of range should be a positive number: {expression}")
    return range(low, high + 1, step)


def _number_or_name(text: str, names: dict[str, int]) -> int:
    named = names.get(text.lower())
    return _number(text) if named is None else named


def _number(text: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    quoted = f"Failed to parse int from {text}: strconv.Atoi: parsing {go_quote(text)}: "
    if not digits.isascii() or not digits.isdigit():
        raise CronError(quoted + "invalid syntax")
    value = int(text) if len(digits) < 30 else _MAX_INT64 + 2
    if not -_MAX_INT64 - 1 <= value <= _MAX_INT64:
        raise CronError(quoted + "value out of range")
    if value < 0:
        raise CronError(f"Negative number ({value}) not allowed: {text}")
    return value
