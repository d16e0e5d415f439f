"""Waits until the process has little to do: for work that can wait, and that everything else would
have to share the interpreter with.

A thread of low priority is no replacement: while it holds the interpreter lock and other processes
keep it from running, the event loop waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

_WINDOW = 0.2  # seconds
_BUSY = 0.1  # of a core, all threads together


async def wait_until_idle(
    *,
    cpu_seconds: Callable[[], float] = time.process_time,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Returns once the process has used less than a tenth of a core for a moment."""
    used = cpu_seconds()
    while True:
        await sleep(_WINDOW)
        before, used = used, cpu_seconds()
        if used - before < _WINDOW * _BUSY:
            return
