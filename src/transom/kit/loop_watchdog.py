"""Finds event-loop callbacks that use too much CPU time, and reports each one with the stack that
was running.

A second thread reads the CPU clock of the loop's thread, so ordinary callbacks pay nothing and a
busy machine causes no false reports. Works with asyncio and uvloop; must not depend on what the
loop serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import sys
import threading
import time
from asyncio import base_events, events, runners
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from transom.kit.lazy_dataclass import dataclass
from transom.kit.logs import MULTILINE
from transom.kit.prometheus import Family, Sample, Summary

log = logging.getLogger("transom.loop")

DEFAULT_BUDGET = 0.1
MARK = "event loop blocked"
"""The prefix of every log line about a long callback; tests search for it in cluster logs."""

_CPU_READING_SECONDS = 0.005  # see exact_watch
_DEPTH = 60  # frames of a stack that are kept
# A frame below one of these is the callback itself; above it is the loop.
_LOOP_CODE: frozenset[CodeType] = frozenset(
    (
        runners.Runner.run.__code__,
        base_events.BaseEventLoop._run_once.__code__,  # type: ignore[attr-defined]
        base_events.BaseEventLoop.run_forever.__code__,
        base_events.BaseEventLoop.run_until_complete.__code__,
    )
)

Stack = tuple[tuple[CodeType, int], ...]


@dataclass(frozen=True, slots=True)
class LongCallback:
    """One callback that exceeded the budget."""

    seconds: float  # CPU time of the loop's thread
    gc_seconds: float  # how much of it the garbage collector took
    # the stack that was seen most often, innermost frame first; empty if there was no time for a
    # sample
    stack: Stack

    def describe(self, budget: float) -> str:
        text = f"{MARK} for {self.seconds * 1000:.0f} ms of CPU time (budget {budget * 1000:.0f} ms"
        if self.gc_seconds >= 0.001:
            text += f", garbage collection {self.gc_seconds * 1000:.0f} ms"
        return text + ")\n" + format_stack(self.stack)


def format_stack(stack: Stack) -> str:
    if not stack:
        return "  (no Python frame was seen)"
    lines = [
        f"  {code.co_filename}:{line} in {code.co_qualname}"
        for code, line in reversed(stack)
        if code.co_filename not in (__file__, events.__file__)
    ]
    return "\n".join(lines)


@dataclass(slots=True)
class _Sample:
    cpu: float
    held: float  # CPU time right before the sample that a single call into C used
    root: FrameType | None  # the outermost frame of the callback
    stack: Stack


class LoopWatchdog:
    """Watches the running loop between `start` and `stop`, both called on the loop's thread.

    While the loop is busy, the thread asks it a few times per second to run a trivial callback (a
    beat). If a beat does not run within a fraction of the budget, the thread samples the stack of
    the loop's thread until it does. Samples with the same outermost frame between two beats belong
    to the same callback. A call into C that keeps the interpreter lock lets no sample happen; the
    time that the thread waits for the lock then counts.
    """

    def __init__(self, budget: float, report: Callable[[LongCallback], None] | None = None) -> None:
        self.budget = budget
        self.count = 0
        self.total = 0.0
        self.worst = 0.0
        self._report = report
        self._tick = budget / 5
        self._fine = budget / 20
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Lock()
        self._owner = 0
        self._clock = 0
        self._beat_cpu = 0.0
        self._waiting = False
        self._gc = GcTimer()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._owner)
        self._beat_cpu = time.clock_gettime(self._clock)
        self._stopping.acquire()
        self._gc.start()
        self._thread = threading.Thread(target=self._watch, name="loop-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._thread is not None:
            self._stopping.release()
            self._thread.join()
            self._stopping.acquire()
            self._stopping.release()
            self._gc.stop()
            self._thread = None

    def collect_metrics(self) -> list[Family]:
        name = "transom_loop_blocked_seconds"
        return [
            Family(
                name,
                "summary",
                "[STABLE] CPU time of event loop callbacks that exceeded the loop budget.",
                [Summary((), self.count, self.total)],
            ),
            Family(
                f"{name}_max",
                "gauge",
                "[STABLE] CPU time of the longest event loop callback that exceeded the loop "
                "budget.",
                [Sample((), self.worst)],
            ),
        ]

    # ---- on the loop's thread ----

    def _beat(self) -> None:
        self._beat_cpu = time.thread_time()
        self._waiting = False

    # ---- on the watchdog's thread ----

    def _watch(self) -> None:
        assert self._loop is not None
        least = self.budget / 200  # less CPU time than this since the last tick: the loop is idle
        lock_wait = LockWait()
        seen = time.clock_gettime(self._clock)
        beat = self._beat_cpu  # when the beat before this one ran
        samples: list[_Sample] = []
        gc_before = 0.0
        began = time.monotonic()
        pause = self._tick
        while not self._stopping.acquire(timeout=pause):
            cpu = time.clock_gettime(self._clock)
            held = min(lock_wait.passed(time.monotonic() - began - pause), cpu - seen)
            if self._waiting:
                if cpu - seen > least / 5:
                    samples.append(self._sample(cpu, held))
                pause = self._fine
            else:
                if samples:
                    if self._beat_cpu - beat > self.budget:
                        self._check_stall(samples, beat, self._gc.total - gc_before)
                    beat = self._beat_cpu
                    samples = []
                pause = self._tick
                if cpu - seen > least:
                    samples = [self._sample(cpu, held)]
                    gc_before = self._gc.total
                    self._waiting = True
                    try:
                        self._loop.call_soon_threadsafe(self._beat)
                    except RuntimeError:  # the loop is closed
                        break
                else:
                    beat = cpu
            seen = cpu
            began = time.monotonic()
        else:
            if samples and not self._waiting and self._beat_cpu - beat > self.budget:
                self._check_stall(samples, beat, self._gc.total - gc_before)
            self._stopping.release()
        lock_wait.close()

    def _sample(self, cpu: float, held: float) -> _Sample:
        root, stack = _stack_of(self._owner)
        return _Sample(cpu, held, root, stack)

    def _check_stall(self, samples: list[_Sample], before: float, gc_seconds: float) -> None:
        """Adds up the CPU time of each callback between two beats and reports those over budget."""
        start = 0
        for index in range(1, len(samples) + 1):
            if index < len(samples) and samples[index].root is samples[start].root:
                continue
            run = samples[start:index]
            ended = (
                samples[index].cpu - samples[index].held if index < len(samples) else self._beat_cpu
            )
            previous = samples[start - 1].cpu if start else before
            start = index
            if run[0].root is None and not run[0].held:
                continue  # the loop itself, between callbacks
            first = run[0].cpu - run[0].held
            # The callback began between the previous sample and its first one, and ended likewise:
            # half the gap is likely.
            seconds = run[-1].cpu - first
            seconds += (
                min(max(0.0, first - previous), self._tick) / 2
                + min(max(0.0, ended - run[-1].cpu), self._fine) / 2
            )
            if seconds > self.budget:
                self._found(LongCallback(seconds, min(gc_seconds, seconds), _likely(run)))

    def _found(self, long: LongCallback) -> None:
        self.count += 1
        self.total += long.seconds
        self.worst = max(self.worst, long.seconds)
        if self._report is not None:
            self._report(long)
        else:
            log.error("%s", long.describe(self.budget), extra=MULTILINE)


def _stack_of(thread: int) -> tuple[FrameType | None, Stack]:
    """The callback that the thread runs now: its outermost frame and current position.

    Without garbage collection: `f_back` allocates, a collection in the middle of it lets the other
    thread continue, and CPython 3.11 then returns a frame that no longer exists.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        frame = sys._current_frames().get(thread)
        root: FrameType | None = None
        stack: list[tuple[CodeType, int]] = []
        while frame is not None and frame.f_code not in _LOOP_CODE:
            root = frame
            if len(stack) < _DEPTH and not frame.f_code.co_filename.startswith("<frozen importlib"):
                stack.append((frame.f_code, frame.f_lineno or 0))
            frame = frame.f_back
        return root, tuple(stack)
    finally:
        if collecting:
            gc.enable()


def _likely(run: list[_Sample]) -> Stack:
    """The most representative stack of the callback: the function that took most time, at its most
    frequent line.
    """
    weights: dict[CodeType, float] = defaultdict(float)
    previous = run[0].cpu
    for sample in run:
        weight = max(sample.held, sample.cpu - previous, 1e-6)
        previous = sample.cpu
        for code in {code for code, _ in sample.stack}:
            weights[code] += weight
    most = max(weights.values(), default=0.0)
    best, deepest = run[0].stack, -1
    for sample in run:
        # How deep the functions go that were on the stack nearly all the time; that sample explains
        # most.
        often = (
            len(sample.stack) - i
            for i, (code, _) in enumerate(sample.stack)
            if weights[code] > most * 0.8
        )
        depth = max(often, default=0)
        if depth > deepest:
            best, deepest = sample.stack, depth
    return best


class LockWait:
    """How long this thread waited for the interpreter lock while one thread held it without
    releasing it.

    A waiting thread wakes up after each switch interval, asks the holder for the lock, and waits
    again. How often the kernel ran this thread therefore shows how long it waited: less often than
    once per interval means that the kernel or the hypervisor let others run, more often that the
    lock was released in between and another thread got it.
    """

    def __init__(self) -> None:
        self._file = -1
        with contextlib.suppress(OSError):
            self._file = os.open(
                f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC
            )
        self._last = self._read()

    def _read(self) -> int:
        return int(os.pread(self._file, 100, 0).split()[2]) if self._file >= 0 else 0

    def passed(self, elapsed: float) -> float:
        """Seconds waited out of the last `elapsed` ones, all since the last call; zero where the
        kernel does not report it.
        """
        now = self._read()
        woken, self._last = now - self._last, now
        # The end of the pause, the lock request and its acquisition are not waiting.
        waited = max(0, woken - 3) * sys.getswitchinterval()
        return waited if waited <= elapsed else 0.0

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)


class GcTimer:
    """CPU time of the garbage collector in this process, whichever thread ran it."""

    def __init__(self) -> None:
        self.total = 0.0
        self.worst = 0.0
        self._began = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._collect)

    def stop(self) -> None:
        with contextlib.suppress(ValueError):
            gc.callbacks.remove(self._collect)

    def _collect(self, phase: str, _info: dict[str, int]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._began = now
        else:
            self.total += now - self._began
            self.worst = max(self.worst, now - self._began)


class StackRecorder:
    """Samples the stack of one thread while a callback has used more than `after` seconds of CPU
    time.
    """

    def __init__(self, after: float) -> None:
        self.began = 0.0  # CPU time of the thread at the start of its callback, 0 between callbacks
        self._after = after
        self._interval = after / 5
        self._owner = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._owner)
        self._samples: deque[_Sample] = deque(maxlen=1000)
        self._stopping = threading.Lock()
        self._stopping.acquire()
        self._thread = threading.Thread(target=self._record, name="stack-recorder", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.release()
        self._thread.join()

    def between(self, began: float, ended: float) -> Stack:
        """The stack that explains this stretch of the thread's CPU time; empty if there is no
        sample of it.
        """
        run = [sample for sample in list(self._samples) if began <= sample.cpu <= ended]
        return _likely(run) if run else ()

    def _record(self) -> None:
        while not self._stopping.acquire(timeout=self._interval):
            cpu, began = time.clock_gettime(self._clock), self.began
            if began and cpu - began > self._after:
                self._samples.append(_Sample(cpu, 0.0, None, _stack_of(self._owner)[1]))


@contextlib.contextmanager
def exact_watch(budget: float, report: Callable[[LongCallback], None]) -> Iterator[None]:
    """Measures every callback of asyncio's own loops on this thread, for tests: exact to a few
    milliseconds, and never too much. Each callback pays for it.

    uvloop does not run its callbacks this way and is not measured. Garbage collection is
    subtracted: the heap of a test process is mostly not the server's. A callback that imports a
    module is exempt: which one it is depends on the tests that ran before.
    """
    handles: Any = events.Handle
    original = handles._run
    thread_time, wall_time, modules = time.thread_time, time.perf_counter, sys.modules
    thread_of_caller, owner = threading.get_ident, threading.get_ident()
    recorder: StackRecorder | None = None
    garbage = GcTimer()
    # The CPU time of the thread at one moment. Reading it takes ten times as long as reading the
    # wall clock, so it is not read for each callback: since that moment, the thread has used at
    # most the time that has passed.
    read_at = cpu = 0.0

    def run(handle: Any) -> None:
        nonlocal read_at, cpu, recorder
        if thread_of_caller() != owner:
            original(handle)
            return
        if recorder is None:
            recorder = StackRecorder(budget / 2)
        collected, imported, started = garbage.total, len(modules), wall_time()
        if started - read_at > _CPU_READING_SECONDS:
            read_at, cpu = started, thread_time()
        recorder.began = began = cpu + started - read_at
        original(handle)
        recorder.began = 0.0
        if wall_time() - started <= budget:
            return
        ended = thread_time()
        if ended - began - (garbage.total - collected) > budget and len(modules) == imported:
            report(
                LongCallback(
                    ended - began, garbage.total - collected, recorder.between(began, ended)
                )
            )

    garbage.start()
    handles._run = run
    try:
        yield
    finally:
        handles._run = original
        garbage.stop()
        if recorder is not None:
            recorder.stop()
