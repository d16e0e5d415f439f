"""A server process: signals, the event loop, and settings for speed and memory."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING

from transom.kit.garbage import bound_collections
from transom.kit.lazy import lazy_import

if TYPE_CHECKING:
    import uvloop
else:
    uvloop = lazy_import("uvloop")

log = logging.getLogger("transom.kit")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop if the extra `fast` is installed. It is loaded when a server needs it: the
    web console, which uses asyncio's loop, saves 1.3 MiB.
    """
    try:
        return uvloop.new_event_loop()
    except ModuleNotFoundError:
        return asyncio.new_event_loop()


def run_event_loop(
    main: Coroutine[None, None, None],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Runs a server's main coroutine in this process."""
    tune_process()
    with asyncio.Runner(loop_factory=loop_factory or new_event_loop) as runner:
        runner.run(main)


async def run_until_signal(work: Callable[[], Awaitable[None]]) -> None:
    """Runs until SIGTERM or SIGINT, or until `work` ends."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    working = asyncio.ensure_future(work())
    stopped = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if working.done():
        await working
        return
    log.info("stopping")
    working.cancel()
    await asyncio.wait((working,))


def tune_process() -> None:
    _tune_malloc()
    # The store's thread needs the interpreter only briefly; it must not wait 5 ms each time.
    sys.setswitchinterval(0.001)
    bound_collections()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _tune_malloc() -> None:
    """Keeps freed memory: returning each read buffer to the kernel halves the request rate."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # only glibc has it
        m_trim_threshold, m_mmap_threshold = -1, -3
        mallopt(m_trim_threshold, 256 * 1024 * 1024)
        mallopt(m_mmap_threshold, 32 * 1024 * 1024)


def use_one_malloc_arena() -> None:
    """Lets threads share one heap: those of glibc keep what each thread freed. For processes that
    should be small and whose threads seldom run at the same time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        m_arena_max = -8
        mallopt(m_arena_max, 1)


def end_with_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """The kernel sends this process the signal when its parent ends, however that happens. Also
    usable between fork and exec: it stays in force.
    """
    if sys.platform != "linux":
        return  # no other system has it
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(number), 0, 0, 0)
