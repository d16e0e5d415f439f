"""Doctor's findings while a scenario is on, for a page that must not wait for them.

Doctor takes seconds in a large cluster or on a busy machine. The page waits for a moment; later
requests get the result of the same run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from transom.kit.clock import Clock
from transom.machinery.errors import ApiError
from transom.web.child_jobs import Job, JobRunner
from transom.web.tasks import StreamLimit

_WAIT_SECONDS: Final = 1.0
_FRESH_SECONDS: Final = 10.0  # a result that no request has read by then is dropped

Findings = Sequence[dict[str, Any]]


class ScenarioDoctor:
    def __init__(self, jobs: JobRunner, streams: StreamLimit, clock: Clock) -> None:
        self._jobs = jobs
        self._streams = streams
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._result: Findings | ApiError = ()
        self._finished = 0.0

    async def find_causes(self) -> Findings | None:
        """The findings; None while doctor examines the cluster. Raises ApiError if it cannot."""
        task = self._task
        old = self._clock.monotonic() - self._finished > _FRESH_SECONDS
        if task is None or (task.done() and old):
            task = self._task = self._streams.start(self._examine())
        await asyncio.wait({task}, timeout=_WAIT_SECONDS)
        if not task.done():
            return None
        self._task = None
        if isinstance(self._result, ApiError):
            raise self._result
        return self._result

    async def _examine(self) -> None:
        try:
            self._result = await self._jobs.run(Job.DOCTOR)
        except ApiError as problem:
            self._result = problem
        self._finished = self._clock.monotonic()
