"""Names and numbers of the signals that stop containers."""

from __future__ import annotations

import re
import signal
from typing import Final

_SIGNAL: Final = re.compile(r"(?:SIG)?(RTMIN|RTMAX)([+-]\d+)?")
_MIDDLE: Final = 15  # the last real-time signal that is named after the first one


def signal_number(text: str) -> int:
    """SIGTERM for anything that is not a signal: `SIGQUIT`, `quit`, `3`, `RTMIN+3`."""
    text = text.strip().upper()
    if text.isascii() and text.isdigit():
        return int(text) if 0 < int(text) <= signal.SIGRTMAX else signal.SIGTERM
    if match := _SIGNAL.fullmatch(text):
        number = getattr(signal, f"SIG{match[1]}") + int(match[2] or 0)
        return int(number) if signal.SIGRTMIN <= number <= signal.SIGRTMAX else signal.SIGTERM
    found = getattr(
        signal.Signals, text if text.startswith("SIG") else f"SIG{text}", signal.SIGTERM
    )
    return int(found)


def signal_name(number: int) -> str:
    """`SIGTERM`, `SIGRTMIN+3`, `SIGRTMAX-1`."""
    first, last = int(signal.SIGRTMIN), int(signal.SIGRTMAX)
    if first < number <= first + _MIDDLE:
        return f"SIGRTMIN+{number - first}"
    if first + _MIDDLE < number < last:
        return f"SIGRTMAX-{last - number}"
    return next((known.name for known in signal.Signals if known == number), str(number))
