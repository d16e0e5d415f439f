"""Dates that date and touch read."""

from __future__ import annotations

import re
import time
from calendar import timegm
from typing import Final

_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


def parse_date(text: str, now: float) -> float | None:
    """A moment; None for text that is not a date."""
    exact = re.fullmatch(r"@(\d+(?:\.\d+)?)", text)
    if exact is not None:
        return float(exact[1])
    relative = re.fullmatch(r"([+-]?\d+) (second|minute|hour|day)s?( ago)?", text)
    if relative is not None:
        return now + int(relative[1]) * _SECONDS[relative[2]] * (-1 if relative[3] else 1)
    if text in ("now", "today"):
        return now
    for shape in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M", "%Y-%m-%d"):
        try:
            return float(timegm(time.strptime(text, shape)))
        except ValueError:
            continue
    return None
