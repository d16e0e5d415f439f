"""Components as processes: they crash at any await and are restarted later."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import count

from .faults import Faults, Line, Report

# Loop turns that pass between a call and the crash it is chosen for: the server's side of a call
# has a few awaits too.
_TURNS = 8
_UNWIND_SECONDS = 60.0

Component = Callable[[Line, random.Random], Awaitable[None]]


class Resigned(Exception):
    """A component that may not go on, and is started again: it has lost the lead to another."""


class Process:
    """Runs `component` again and again until stopped. The component gets a line that dies with
    it.
    """

    def __init__(
        self,
        name: str,
        component: Component,
        faults: Faults,
        rng: random.Random,
        report: Report,
        line: Callable[[], Line],
    ) -> None:
        self.name = name
        self._component = component
        self._faults = faults
        self._rng = rng
        self._report = report
        self._make_line = line
        self.line: Line | None = None
        self._task: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._lives = count(1)
        self.problem = ""

    def start(self) -> None:
        self._wanted.set()
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep())

    def halt(self) -> None:
        """Crash, and do not come back before `start`."""
        self._wanted.clear()
        self.crash()

    def crash(self) -> None:
        if self.line is not None and self._task is not None:
            self.line.dead = True
            self.line.drop_watches()
            self._task.cancel()
            asyncio.get_running_loop().call_later(_UNWIND_SECONDS, self._check_ended, self._task)

    def _check_ended(self, task: asyncio.Task[None]) -> None:
        if not task.done():
            self.problem = f"{self.name} does not end when it is cancelled"

    def crash_at_call(self, number: int) -> None:
        """Crash when the process makes the call of this number from now on, or shortly after."""
        line = self.line
        if line is None or line.dead:
            return
        target = line.calls + number

        def on_call() -> None:
            if line.calls >= target:
                line.on_call = None
                self._crash_soon(line, self._rng.randrange(_TURNS))

        line.on_call = on_call

    def _crash_soon(self, line: Line, turns: int) -> None:
        if line.dead:
            return
        if turns:
            asyncio.get_running_loop().call_soon(self._crash_soon, line, turns - 1)
            return
        self._report(f"{self.name} crashes")
        self.crash()

    async def _keep(self) -> None:
        while True:
            await self._wanted.wait()
            life = next(self._lives)
            self.line = self._make_line()
            rng = random.Random(self._rng.getrandbits(64))
            self._task = asyncio.create_task(
                self._component(self.line, rng), name=f"{self.name} {life}"
            )
            await asyncio.wait((self._task,))
            died = self.line.dead
            self.line.dead = True
            if not self._task.cancelled() and (problem := self._task.exception()) is not None:
                if not isinstance(problem, Resigned):
                    raise RuntimeError(f"{self.name} fell: {problem!r}") from problem
                self._report(f"{self.name} does not lead any more")
                died = True
            if not died:
                raise RuntimeError(f"{self.name} has ended")
            await asyncio.sleep(self._rng.choice((0.0, 0.1, 1.0, 15.0)) * self._rng.random())

    async def stop(self) -> None:
        """For ever. Raises what the process fell over."""
        keeper = self._keeper
        if keeper is None:
            return
        self.crash()
        keeper.cancel()
        await asyncio.wait((keeper,))
        if self._task is not None and not self._task.done():
            await asyncio.wait((self._task,), timeout=_UNWIND_SECONDS)
            self._check_ended(self._task)
        if not keeper.cancelled():
            keeper.result()
        if self.problem:
            raise RuntimeError(self.problem)
