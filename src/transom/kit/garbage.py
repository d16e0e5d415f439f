"""When a server's garbage collector runs: not while it starts, then often and each time briefly."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_CPU_SECONDS = 0.2  # between two passes
_SECONDS = 0.1  # between two looks at the CPU time


class _Pauses:
    """How many parts of the process, in any of its threads, are in `pause_collections`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._was_enabled = True

    def begin(self) -> None:
        with self._lock:
            if not self._count:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count:
                return
            if _freeze_live_objects in gc.callbacks:
                gc.freeze()
            if self._was_enabled:
                gc.enable()


_pauses = _Pauses()


@contextmanager
def pause_collections() -> Iterator[None]:
    """For a start and for imports: what they make lives until exit, and the collector would examine
    it again and again. A tenth of the CPU time of a cluster's start was that.
    """
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()


def bound_collections() -> None:
    """Keeps each pass of the garbage collector short, however large the heap.

    A pass over the whole heap of a cluster with 50,000 pods takes a second, and nothing else runs
    meanwhile. The heap is mostly stored objects, which have no cycles and are freed without the
    collector. So the collector looks at new objects once or twice, at most 60,000 of them in one
    pass (about 20 ms), and does not examine the survivors again, nor what was made before this call.
    """
    gc.freeze()
    gc.set_threshold(30_000, 0, 1_000_000_000)
    if _freeze_live_objects not in gc.callbacks:
        gc.callbacks.append(_freeze_live_objects)


def collect_regularly(
    call_later: Callable[[float, Callable[[], None]], object],
    cpu_time: Callable[[], float] = time.thread_time,
) -> None:
    """Starts passes of the garbage collector by CPU time as well, beginning now.

    The interpreter counts objects that were made less those that were freed. While stored objects
    are replaced it counts none, and the pass after that looks at all that were made since the last
    one: 800,000 objects took 84 ms. How many are made depends on the CPU time of this thread. On a
    busy machine, passes by the clock would examine objects of requests in progress again and again.
    """

    def look(generation: int, last: float) -> None:
        now = cpu_time()
        if gc.isenabled() and now - last >= _CPU_SECONDS:
            gc.collect(generation)
            generation, last = 1 - generation, cpu_time()
        call_later(_SECONDS, lambda: look(generation, last))

    look(0, cpu_time())


def _freeze_live_objects(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] > 0:
        gc.freeze()
