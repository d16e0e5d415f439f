"""The schedule of a CronJob: five fields or a descriptor, with the messages of the parser Kubernetes uses."""

from __future__ import annotations

import re
from typing import NamedTuple

from transom.machinery.field import go_quote

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
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}
_EVERY = "@every "
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_DURATION_PART = re.compile(r"(\d*)(?:\.(\d*))?([^\d.]*)", re.ASCII)


class CronError(ValueError):
    """The schedule cannot be read; `str()` says why."""


class Field(NamedTuple):
    """The values one field takes, and whether it was written with a star: then it does not choose days by itself."""

    values: frozenset[int]
    star: bool


Fields = tuple[Field, Field, Field, Field, Field]  # minute, hour, day of the month, month, day of the week


def check_schedule(schedule: str) -> str:
    """What is wrong with the schedule, empty when nothing is."""
    try:
        parse(schedule)
    except CronError as error:
        return str(error)
    return ""


def parse(schedule: str) -> Fields | int:
    """The fields of a schedule, or the whole seconds of an `@every`."""
    if schedule.startswith("@"):
        described = _DESCRIPTORS.get(schedule)
        return _parse_every(schedule) if described is None else parse(described)
    fields = schedule.split()
    if len(fields) != len(_FIELDS):
        raise CronError(f"Expected exactly {len(_FIELDS)} fields, found {len(fields)}: {schedule}")
    minute, hour, day, month, weekday = map(_parse_field, fields, _FIELDS)
    return minute, hour, day, month, weekday


def _parse_every(text: str) -> int:
    if not text.startswith(_EVERY):
        raise CronError(f"Unrecognized descriptor: {text}")
    nanoseconds, problem = _duration(text.removeprefix(_EVERY))
    if problem:
        raise CronError(f"Failed to parse duration {text}: {problem}")
    return max(nanoseconds // 10**9, 1)


def _parse_field(text: str, bounds: _Bounds) -> Field:
    values: set[int] = set()
    star = False
    for expression in filter(None, text.split(",")):
        values.update(_parse_range(expression, bounds))
        star = star or expression[0] in "*?"
    return Field(frozenset(values), star)


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


def duration_error(text: str) -> str:
    """Why Go's time.ParseDuration refuses a text, empty when it does not."""
    return _duration(text)[1]


def _duration(text: str) -> tuple[int, str]:
    """Nanoseconds, and why there are none."""
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0, ""
    wrong = f"time: invalid duration {go_quote(text)}"
    if not rest:
        return 0, wrong
    total = 0
    while rest:
        found = _DURATION_PART.match(rest)
        assert found is not None  # every part of the expression is optional
        whole, fraction, unit = found.group(1), found.group(2) or "", found.group(3)
        if not whole and not fraction:
            return 0, wrong
        if not unit:
            return 0, f"time: missing unit in duration {go_quote(text)}"
        if unit not in _UNITS:
            return 0, f"time: unknown unit {go_quote(unit)} in duration {go_quote(text)}"
        total += (int(whole or "0") if len(whole) < 30 else _MAX_INT64 + 1) * _UNITS[unit]
        total += int((fraction or "0")[:18]) * _UNITS[unit] // 10 ** len(fraction[:18])
        if total > _MAX_INT64:
            return 0, wrong
        rest = rest[found.end() :]
    return -total if text[0] == "-" else total, ""
