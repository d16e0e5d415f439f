"""Reports when a log file has grown or was replaced. Polls: a runtime's shims write logs, and they
do not notify.

Only while a log is followed, at the cost of a few system calls per second.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from transom.kit.clock import Clock, Timer

_PERIOD: Final = 0.2


def watch_log(
    clock: Clock, path: Callable[[], str], listener: Callable[[], None]
) -> Callable[[], None]:
    """`path` returns where the log is now. Call the result to stop."""
    before = _look(path())
    timer: Timer
    ended = False

    def look() -> None:
        nonlocal before, timer
        now = _look(path())
        if now != before:
            before = now
            listener()
        if not ended:
            timer = clock.call_later(_PERIOD, look)

    def end() -> None:
        nonlocal ended
        ended = True
        timer.cancel()

    timer = clock.call_later(_PERIOD, look)
    return end


def _look(path: str) -> tuple[int, int]:
    """The file's identity and size; nothing between two files."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_ino, found.st_size
