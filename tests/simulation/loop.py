"""An event loop on virtual time: when no task can run, time advances to the next timer.

Nothing sleeps and nothing comes from outside, so a run is a function of its seed. Two things would
still differ from one process to the next: the order of sets, which hang on the hashes of strings
(`__main__` fixes those), and of sets of tasks, which hang on addresses (tasks here are hashed by
their number).
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

# 2020-01-02T03:04:05Z
_START = 1577934245.0
_MOST_TURNS = 20_000


class Standstill(Exception):
    """Time does not move: no task has anything to do and never will, or a task never ends."""


class _Selector(selectors.SelectSelector):
    """Waits by moving the time of its loop."""

    loop: VirtualLoop
    turns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Standstill("every task waits for another one")
        self.turns += 1
        if timeout > 0:
            self.loop.now += timeout
            self.turns = 0
        elif self.turns > _MOST_TURNS:
            self.turns = 0  # all tasks are cancelled now, which takes some turns too
            raise Standstill(
                f"at {self.loop.now:.3f}s something goes on and on without any time passing"
            )
        return []


class _Task(asyncio.Task):
    __slots__ = ("_number",)

    def __init__(self, number: int, coro: Any, *, loop: Any, **options: Any) -> None:
        self._number = number  # first: the base puts the task into a set
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        numbers = count()
        self.set_task_factory(
            lambda loop, coro, **options: _Task(next(numbers), coro, loop=loop, **options)
        )

    def time(self) -> float:
        return self.now


class LoopClock:
    """The time of the running loop as a `Clock`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def time(self) -> float:
        return _START + self._loop.now

    def monotonic(self) -> float:
        return self._loop.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(
        self, seconds: float, function: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        return self._loop.call_later(max(seconds, 0.0), function, *args)


# For `anyio_backend`: an async test runs on a virtual loop of its own that starts at time zero.
VIRTUAL_LOOP: tuple[str, dict[str, object]] = ("asyncio", {"loop_factory": VirtualLoop})


def loop_clock() -> LoopClock:
    """The clock of the running virtual loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return LoopClock(loop)


def run(main: Callable[[LoopClock], Coroutine[Any, Any, Any]]) -> Any:
    """Run to its end, on a loop of its own that begins at time zero."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        return runner.run(main(LoopClock(loop)))
