"""One worker for each pod: whatever happens to a pod is looked at by one task at a time, and there is none while it rests.

A wake-up while the task is busy makes it look once more. What a look is, and when the next one is due, `sync` decides.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from typing import NamedTuple, TypeVar

from transom.kit.clock import Clock, Timer
from transom.kubelet.backoff import Backoff
from transom.kubelet.podstate import is_deleted
from transom.kubelet.status import Waiting
from transom.machinery.objects import Object

log = logging.getLogger("transom.kubelet")

Result = TypeVar("Result")

_FAILED_SECONDS, _SOON_SECONDS = 10.0, 1.0
_JITTER = 0.5


class Outcome(Enum):
    OK = "ok"  # look again after the resync interval
    FAILED = "failed"  # after ten seconds
    SOON = "soon"  # after a second
    DONE = "done"  # nothing is left to do until something happens


class Interrupted(Exception):
    """A wait was cut short, because the pod has to end."""


class KillRequest(NamedTuple):
    """Somebody (eviction) wants the pod to fail with this status."""

    status: Object
    grace: int | None
    done: asyncio.Future[None]


class Worker:
    """What is remembered of a pod between looks at it. `pod` is None for what is left of one that nobody knows any
    more. `reasons`: why containers could not be started."""

    __slots__ = (
        "again", "backoff", "deadline", "finished", "gone", "interrupted", "kill", "pod", "reasons", "resync", "task",
        "timer", "uid", "waits",
    )

    def __init__(self, uid: str, pod: Object | None) -> None:
        self.uid = uid
        self.pod = pod
        self.task: asyncio.Task[None] | None = None
        self.timer: Timer | None = None
        self.deadline: Timer | None = None
        self.again = False
        self.resync = True
        self.gone = pod is None
        self.finished = False
        self.kill: KillRequest | None = None
        self.waits = False
        self.interrupted = False
        self.reasons: dict[str, Waiting] = {}
        self.backoff: Backoff | None = None

    @property
    def ends(self) -> bool:
        return self.gone or self.kill is not None or self.pod is None or is_deleted(self.pod)

    async def interruptible(self, work: Awaitable[Result]) -> Result:
        """Wait for something that may take long. Raises Interrupted when the pod has to end meanwhile."""
        self.waits = True
        try:
            return await work
        except asyncio.CancelledError:
            if not self.interrupted or self.task is None:
                raise
            self.interrupted = False
            self.task.uncancel()
            raise Interrupted from None
        finally:
            self.waits = False


class Workers:
    def __init__(
        self, clock: Clock, rng: random.Random, resync: float, sync: Callable[[Worker], Awaitable[Outcome]]
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._resync = resync
        self._sync = sync
        self._workers: dict[str, Worker] = {}
        self._stopped = False

    def __iter__(self) -> Iterator[Worker]:
        return iter([*self._workers.values()])

    def get(self, uid: str) -> Worker | None:
        return self._workers.get(uid)

    def add(self, uid: str, pod: Object | None) -> Worker:
        worker = self._workers[uid] = Worker(uid, pod)
        return worker

    def drop(self, worker: Worker) -> None:
        """Nothing is left of the pod."""
        self._rest(worker)
        if worker.deadline is not None:
            worker.deadline.cancel()
        if self._workers.get(worker.uid) is worker:
            del self._workers[worker.uid]

    def wake(self, worker: Worker) -> None:
        """Look at the pod, now or as soon as the look that is under way has ended."""
        worker.again = True
        if worker.task is not None:
            if worker.waits and worker.ends and not worker.interrupted:
                worker.interrupted = True
                worker.task.cancel()
        elif not self._stopped:
            self._rest(worker)
            worker.task = asyncio.get_running_loop().create_task(self._run(worker))

    def wake_uid(self, uid: str) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            self.wake(worker)

    async def stop(self) -> None:
        """As if the process had died: what is under way is given up, the runtime keeps what it has."""
        self._stopped = True
        tasks = [worker.task for worker in self._workers.values() if worker.task is not None]
        for worker in [*self._workers.values()]:
            self.drop(worker)
            if worker.task is not None:
                worker.task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, worker: Worker) -> None:
        outcome = Outcome.FAILED
        try:
            while worker.again:
                worker.again = False
                try:
                    outcome = await self._sync(worker)
                except Interrupted:
                    worker.again = True
                except Exception:
                    log.exception("the sync of pod %s failed", worker.uid)
                    outcome = Outcome.FAILED
        finally:
            worker.task = None
        if self._workers.get(worker.uid) is worker:
            self._schedule(worker, outcome)

    def _schedule(self, worker: Worker, outcome: Outcome) -> None:
        if outcome is Outcome.DONE or self._stopped:
            return
        seconds = {Outcome.OK: self._resync, Outcome.FAILED: _FAILED_SECONDS, Outcome.SOON: _SOON_SECONDS}[outcome]
        worker.timer = self._clock.call_later(seconds * (1 + _JITTER * self._rng.random()), self._due, worker)

    def _due(self, worker: Worker) -> None:
        worker.timer = None
        worker.resync = True
        self.wake(worker)

    def _rest(self, worker: Worker) -> None:
        if worker.timer is not None:
            worker.timer.cancel()
            worker.timer = None
