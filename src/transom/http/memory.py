"""Returns memory to the system after a burst of connections or of buffered output.

The C library keeps freed memory in its heap when something small above it is still in use. One call
returns all whole pages; it takes milliseconds, so it runs only after a lot was freed, and in a
thread.
"""

from __future__ import annotations

import asyncio
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from transom.kit.lazy import lazy_import

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = lazy_import("ctypes")  # some builds of Python for Windows lack it

_PER_CONNECTION = 32 * 1024  # approximate memory of one TLS connection
_WORTHWHILE = 16 * 1024 * 1024
_QUIET_TICKS = 2  # ticks without a burst before trimming


class MemoryTrimmer:
    """Called with every tick of a server. Trims when memory use has fallen well below its last peak
    and stays there.
    """

    def __init__(self) -> None:
        self._peak = 0
        self._last = 0
        self._quiet = 0

    def tick(self, connections: int, buffered: int) -> None:
        use = connections * _PER_CONNECTION + buffered
        self._quiet = self._quiet + 1 if abs(use - self._last) < _WORTHWHILE // 16 else 0
        self._last = use
        self._peak = max(self._peak, use)
        if self._peak - use >= _WORTHWHILE and self._quiet >= _QUIET_TICKS:
            self._peak = use
            trim_memory_later()


_running: asyncio.Future[Any] | None = None


def trim_memory_later() -> None:
    """Returns free memory to the system, in a thread, unless that is already running."""
    global _running
    if _libc() is not None and (_running is None or _running.done()):
        _running = asyncio.get_running_loop().run_in_executor(None, trim_memory)


def trim_memory() -> None:
    libc = _libc()
    if libc is not None:
        libc.malloc_trim(0)


@cache
def _libc() -> Any:
    """The C library, if it supports trimming (glibc)."""
    if os.name != "posix":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") else None
