"""Which step of a program runs in a thread: `greenlets.py` sets it, `preemption.py` reads it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class RunningStep(threading.local):
    """The step of a program that each thread runs now."""

    suspend: Callable[[], object] | None = None  # None: no step runs
    resumed = 0.0  # when it got the event loop
