"""Ctrl-C at moments at which it must not take effect."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def delayed_interrupts() -> Iterator[None]:
    """Delays SIGINT and SIGTERM to the end of the block. Imports of extension modules need it: an
    exception while one is initialized can crash the process.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
