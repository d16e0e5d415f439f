"""Runs CPU-bound functions in a worker thread, so that the event loop keeps answering while one of
them computes.

Use it for pure functions whose cost grows with the input of a client: decoding, defaulting and
validation of a large body, YAML, expensive CEL rules. The function must not touch asyncio objects
or state that the event loop changes. Each call has a budget of CPU time; a function that exceeds it
is interrupted. Groups of callers (users) take turns, so one of them cannot keep the worker from the
others. This module knows nothing about Kubernetes.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")

CPU_SECONDS = 10.0  # of one call
_QUEUE_LENGTH = 100  # waiting calls of one group
_IDLE_SECONDS = 10.0  # an idle worker thread ends after this time
_CHECK_SECONDS = 0.25  # how often a running call's CPU time is compared with its budget
# While a worker computes, the event loop gets the interpreter lock back within about this time each
# time it wakes up.
_SWITCH_SECONDS = 0.0005


class WorkTimeout(Exception):
    """The call used up its budget of CPU time."""


class WorkRejected(Exception):
    """Too many calls of the same group are waiting."""


class _Interrupted(BaseException):
    """Raised inside a running call to end it; never leaves this module."""


class WorkRunner(Protocol):
    """Runs CPU-bound functions."""

    async def run(
        self, work: Callable[[], T], *, group: Hashable = None, seconds: float | None = None
    ) -> T: ...
    def close(self) -> None: ...


class _State(Enum):
    QUEUED = 1
    RUNNING = 2
    FINISHED = 3


class _SwitchInterval:
    """The interpreter's switch interval, short while any worker of this process computes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._computing = 0
        self._usual = 0.0

    def shorten(self) -> None:
        with self._lock:
            if not self._computing:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, _SWITCH_SECONDS))
            self._computing += 1

    def restore(self) -> None:
        with self._lock:
            self._computing -= 1
            if not self._computing:
                sys.setswitchinterval(self._usual)


_interval = _SwitchInterval()


class _Job(Generic[T]):
    def __init__(
        self, work: Callable[[], T], loop: asyncio.AbstractEventLoop, seconds: float
    ) -> None:
        self.work = work
        self.loop = loop
        self.seconds = seconds
        self.future: asyncio.Future[T] = loop.create_future()
        self.state = _State.QUEUED
        self.timed_out = False
        # Interruptions that were begun and that were carried out; see `WorkerThread._interrupt`.
        self.interrupts_begun = 0
        self.interrupts_sent = 0
        self.started = 0.0  # the worker thread's CPU time at the start


class WorkerThread:
    """A queue of CPU-bound calls and the thread that runs them.

    One thread is enough: the interpreter runs one thread at a time anyway, and a second one would
    double the time that the event loop waits for its turn.
    """

    def __init__(self, cpu_seconds: float = CPU_SECONDS, queue_length: int = _QUEUE_LENGTH) -> None:
        self.cpu_seconds = cpu_seconds
        self._queue_length = queue_length
        self._lock = threading.Condition()
        # the next group to serve is first
        self._queues: OrderedDict[Hashable, deque[_Job[Any]]] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._running: _Job[Any] | None = None
        self._closed = False

    async def run(
        self, work: Callable[[], T], *, group: Hashable = None, seconds: float | None = None
    ) -> T:
        """Returns the result of `work()`, computed in the worker thread; its exceptions are raised
        here.

        WorkTimeout after `seconds` of CPU time. A call whose caller is cancelled while it waits
        does not start.
        """
        loop = asyncio.get_running_loop()
        job: _Job[T] = _Job(work, loop, self.cpu_seconds if seconds is None else seconds)
        self._submit(job, group)
        try:
            while not (await asyncio.wait((job.future,), timeout=_CHECK_SECONDS))[0]:
                self._check_budget(job)
            return job.future.result()
        finally:
            if not job.future.done():
                job.future.cancel()
                self._cancel(job, group)
                self._watch_abandoned(job)
            # An exception refers to this frame and to all that its call used, such as a body of
            # 3 MiB. With the future, that is a cycle, which the garbage collector never finds if the
            # call took long (`garbage.bound_collections`).
            del job

    def close(self) -> None:
        """End the thread. Calls that have not finished are interrupted."""
        with self._lock:
            self._closed = True
            self._queues.clear()
            running, thread = self._running, self._thread
            self._lock.notify_all()
        if running is not None:
            self._interrupt(running)
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    # ---- on the event loop ----

    def _submit(self, job: _Job[Any], group: Hashable) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError("the workers are closed")
            queue = self._queues.setdefault(group, deque())
            if len(queue) >= self._queue_length:
                raise WorkRejected(f"{len(queue)} calls are waiting")
            queue.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="worker", daemon=True)
                self._thread.start()
            self._lock.notify()

    def _check_budget(self, job: _Job[Any]) -> None:
        with self._lock:
            if (
                job.state is not _State.RUNNING
                or self._thread is None
                or self._thread.ident is None
            ):
                return
            used = time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident)) - job.started
        if used > job.seconds:
            job.timed_out = True
            self._interrupt(job)

    def _cancel(self, job: _Job[Any], group: Hashable) -> None:
        with self._lock:
            queue = self._queues.get(group)
            if job.state is _State.QUEUED and queue is not None and job in queue:
                queue.remove(job)
                job.state = _State.FINISHED
                if not queue:
                    del self._queues[group]

    def _watch_abandoned(self, job: _Job[Any]) -> None:
        """A call whose caller is gone may continue within its budget: an interruption can leave a
        lock locked, so only calls without end are interrupted.
        """
        if job.state is not _State.FINISHED:
            self._check_budget(job)
            job.loop.call_later(_CHECK_SECONDS, self._watch_abandoned, job)

    def _interrupt(self, job: _Job[Any]) -> None:
        """Raise `_Interrupted` in the running call. It may get lost in a finalizer, so callers
        repeat this until the call ends.

        The worker marks a call as finished before it reads `interrupts_begun`, and this counts
        before it reads the state: either nothing is raised here, or the worker waits for the
        exception and cancels it.
        """
        thread = self._thread
        job.interrupts_begun += 1
        if job.state is _State.RUNNING and thread is not None and thread.ident is not None:
            _raise_in(thread.ident, _Interrupted)
        job.interrupts_sent += 1

    # ---- in the worker thread ----

    def _serve(self) -> None:
        while True:
            job = self._next()
            if job is None:
                return
            _interval.shorten()
            try:
                self._run(job)
            finally:
                _interval.restore()
            del job  # the result may be large

    def _next(self) -> _Job[Any] | None:
        with self._lock:
            while True:
                if self._queues:
                    group, queue = self._queues.popitem(last=False)
                    job = queue.popleft()
                    if queue:
                        self._queues[group] = queue  # behind the other groups
                    job.state = _State.RUNNING
                    job.started = time.thread_time()
                    self._running = job
                    return job
                if self._closed or not self._lock.wait(_IDLE_SECONDS):
                    self._thread = None
                    return None

    def _run(self, job: _Job[T]) -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = job.work()
        except BaseException as problem:
            error = problem
        while True:
            try:
                self._finish(job)
                break
            except _Interrupted as late:
                error = late
        if isinstance(error, _Interrupted):
            error = WorkTimeout(f"used {job.seconds:g} s of CPU time") if job.timed_out else None
            if error is None:
                return  # the workers are closed
        try:
            job.loop.call_soon_threadsafe(_settle, job.future, result, error)
        except RuntimeError:
            return  # the event loop was closed meanwhile
        finally:
            del job, result, error  # the exception's traceback refers to this frame: see `run`

    def _finish(self, job: _Job[Any]) -> None:
        """After this no interruption of the job can arrive. Takes no lock: an interruption could
        leave it locked.
        """
        job.state = _State.FINISHED
        self._running = None
        while job.interrupts_sent < job.interrupts_begun:
            time.sleep(0)
        if job.interrupts_begun:
            _raise_in(threading.get_ident(), None)


def _raise_in(thread: int, exception: type[BaseException] | None) -> None:
    """Raise an exception in a thread when it next runs Python code; None cancels one that has not
    been raised yet.
    """
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), None if exception is None else ctypes.py_object(exception)
    )


def _settle(future: asyncio.Future[T], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, Exception):
        future.set_exception(error)
    else:
        future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
