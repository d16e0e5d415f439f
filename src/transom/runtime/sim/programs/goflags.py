"""Go's notations, for programs that were written in it."""

from __future__ import annotations

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PIECE = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")


def duration(text: str) -> float:
    """`1h30m`, `250ms`, `0`. ValueError when it is none."""
    body = text.lstrip("+-")
    if body == "0":
        return 0.0
    total = 0.0
    position = 0
    while position < len(body):
        match = _PIECE.match(body, position)
        if match is None:
            raise ValueError(text)
        total += float(match[1]) * _UNITS[match[2]]
        position = match.end()
    if not body:
        raise ValueError(text)
    return -total if text.startswith("-") else total


def show_duration(seconds: float) -> str:
    """As `time.Duration` prints itself."""
    if seconds == 0:
        return "0s"
    if abs(seconds) < 1:
        for unit, size in (("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
            if abs(seconds) >= size:
                return f"{seconds / size:.6f}".rstrip("0").rstrip(".") + unit
    minutes, rest = divmod(abs(seconds), 60)
    hours, minutes = divmod(int(minutes), 60)
    shown = f"{rest:.9f}".rstrip("0").rstrip(".") + "s"
    if hours or minutes:
        shown = f"{minutes}m{shown}"
    if hours:
        shown = f"{hours}h{shown}"
    return f"-{shown}" if seconds < 0 else shown
