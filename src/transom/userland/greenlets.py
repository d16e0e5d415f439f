"""Coroutines that synchronous code inside them can suspend: each step runs in a greenlet.

Only `preemption.py` uses it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Generator
from time import perf_counter
from typing import Any

from greenlet import getcurrent, greenlet

from transom.userland.running_step import RunningStep

_MAX_IDLE = 64


class _Step(greenlet):  # type: ignore[misc]
    """Runs one step of a coroutine after the other, each until the coroutine waits or is suspended.

    Between steps it belongs to no coroutine, so that programs that only wait keep no stack.
    """

    work: tuple[Callable[[Any], Any], Any] | None = None  # what to call, and with what
    # result of the step; None: it is suspended
    outcome: tuple[Any, BaseException | None] | None = None

    def run(self) -> None:
        parent = self.parent
        assert parent is not None
        while True:
            parent.switch()
            assert self.work is not None
            (advance, value), self.work = self.work, None
            try:
                self.outcome = (advance(value), None)
            except BaseException as problem:  # raised again where the coroutine is awaited
                self.outcome = (None, problem)
            del advance, value


class _Idle(threading.local):
    """Each thread with an event loop has greenlets of its own."""

    def __init__(self) -> None:
        self.steps: list[_Step] = []

    def take(self) -> _Step:
        if self.steps:
            return self.steps.pop()
        step = _Step()
        step.switch()
        return step


_idle = _Idle()


class Steps:
    """Awaitable: the result of the coroutine. `running` identifies what suspends it."""

    __slots__ = ("_coroutine", "_running")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], running: RunningStep) -> None:
        self._coroutine = coroutine
        self._running = running

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, running = self._coroutine, self._running
        advance: Callable[[Any], Any] = coroutine.send
        value: Any = None
        while True:
            step = _idle.take()
            main = getcurrent()
            step.gr_context = main.gr_context
            step.work = (advance, value)
            running.resumed, running.suspend = perf_counter(), main.switch
            step.switch()
            while (outcome := step.outcome) is None:
                running.suspend = None
                try:
                    yield
                except BaseException as problem:  # a signal for the program, or the end of the loop
                    running.resumed, running.suspend = perf_counter(), main.switch
                    step.throw(problem)
                else:
                    running.resumed, running.suspend = perf_counter(), main.switch
                    step.switch()
            running.suspend = step.outcome = None
            if len(_idle.steps) < _MAX_IDLE:
                _idle.steps.append(step)
            yielded, raised = outcome
            if raised is not None:
                if isinstance(raised, StopIteration):
                    return raised.value
                raise raised
            try:
                value = yield yielded
                advance = coroutine.send
            except BaseException as problem:
                advance, value = coroutine.throw, problem
