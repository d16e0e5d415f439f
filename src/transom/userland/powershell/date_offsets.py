"""System.DateTimeOffset: moments with the time zone that they were written in."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Final

from transom.machines.windows.time_zones import offset_seconds
from transom.userland.powershell.operators import time_span
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import DateTime, PsObject, to_text

OFFSET: Final = "System.DateTimeOffset"
_SHOWN_OFFSET: Final = "M/d/yyyy h:mm:ss tt zzz"


def _local(evaluator: PowerShellSession, moment: float) -> DateTime:
    offset = offset_seconds(evaluator.process.context.windows.system.registry, moment)
    return DateTime(moment + offset, offset)


def offset_object(date: DateTime) -> PsObject:
    """System.DateTimeOffset: a moment with the time zone that it was written in."""
    utc = DateTime(date.moment - date.offset, 0, "Utc")
    return PsObject(
        OFFSET,
        {
            "DateTime": DateTime(date.moment, date.offset),
            "UtcDateTime": utc,
            "LocalDateTime": DateTime(date.moment, date.offset, "Local"),
            "Date": DateTime(date.moment // 86400 * 86400, date.offset),
            "Offset": time_span(date.offset),
            **{
                name: int(date.format(shape))
                for name, shape in (
                    ("Day", "dd"),
                    ("Hour", "HH"),
                    ("Minute", "mm"),
                    ("Month", "MM"),
                    ("Second", "ss"),
                    ("Year", "yyyy"),
                )
            },
            "DayOfWeek": date.format("dddd"),
            "DayOfYear": time.gmtime(date.moment).tm_yday,
            "Ticks": int(date.moment * 10_000_000) + 621355968000000000,
        },
        date.format(_SHOWN_OFFSET),
    )


def _unix_time(scale: int) -> Callable[[PowerShellSession, PsObject, list[Any]], int]:
    return lambda evaluator, target, a: math.floor(target.get("UtcDateTime").moment * scale)


def _shifted(evaluator: PowerShellSession, target: PsObject, local: bool) -> PsObject:
    utc = target.get("UtcDateTime")
    return offset_object(_local(evaluator, utc.moment) if local else DateTime(utc.moment))


def _offset_text(evaluator: PowerShellSession, target: PsObject, a: list[Any]) -> str:
    date = target.get("LocalDateTime")
    return str(date.format(to_text(a[0]) if a else _SHOWN_OFFSET))


METHODS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    (OFFSET, "tounixtimeseconds"): _unix_time(1),
    (OFFSET, "tounixtimemilliseconds"): _unix_time(1000),
    (OFFSET, "tolocaltime"): lambda evaluator, target, a: _shifted(evaluator, target, True),
    (OFFSET, "touniversaltime"): lambda evaluator, target, a: _shifted(evaluator, target, False),
    (OFFSET, "tostring"): _offset_text,
}
