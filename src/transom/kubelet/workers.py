"""One worker per pod: a single task at a time handles everything that happens to a pod, and there
is none while it is idle.

A wake-up while the task is busy triggers one more sync. `sync` defines what a sync does, and when
the next one is due.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from typing import TypeVar

from transom.client.backoff import KeyedBackoff
from transom.kit.clock import Clock, Timer
from transom.kit.named_tuple import NamedTuple
from transom.kubelet.podstate import is_deleted
from transom.kubelet.status import WaitingReason
from transom.machinery.objects import Object

log = logging.getLogger("transom.kubelet")

Result = TypeVar("Result")

_FAILED_SECONDS, _SOON_SECONDS = 10.0, 1.0
_JITTER = 0.5


class SyncOutcome(Enum):
    OK = "ok"  # sync again after the resync interval
    FAILED = "failed"  # after ten seconds, or at `PodWorker.backoff_ends`
    SOON = "soon"  # after a second
    DONE = "done"  # nothing to do until something happens


class SyncInterrupted(Exception):
    """A wait was interrupted, because the pod must terminate."""


class KillRequest(NamedTuple):
    """Another part (eviction) makes the pod fail with this status."""

    status: Object
    grace: int | None
    done: asyncio.Future[None]


class PodWorker:
    """The state of a pod between syncs. `pod` is None for the remains of one that the kubelet no
    longer knows. `reasons`: why containers could not be started.
    """

    __slots__ = (
        "again",
        "backoff",
        "backoff_ends",
        "deadline",
        "due",
        "finished",
        "gone",
        "interrupted",
        "kill",
        "pod",
        "reasons",
        "resync",
        "synced",
        "task",
        "timer",
        "uid",
        "waits",
    )

    def __init__(self, uid: str, pod: Object | None) -> None:
        self.uid = uid
        self.pod = pod
        self.task: asyncio.Task[None] | None = None
        self.timer: Timer | None = None
        self.deadline: Timer | None = None
        self.again = False
        self.resync = True
        self.due = False  # its timer caused the next sync, not a change
        self.synced = False
        self.gone = pod is None
        self.finished = False
        self.kill: KillRequest | None = None
        self.waits = False
        self.interrupted = False
        self.reasons: dict[str, WaitingReason] = {}
        self.backoff: KeyedBackoff | None = None
        # when the first of the containers that delayed this sync can be restarted
        self.backoff_ends: float | None = None

    @property
    def operation(self) -> str:
        """What the next sync does, as the metrics name it."""
        if not self.synced:
            return "create"
        if self.ends:
            return "kill"
        return "sync" if self.due else "update"

    @property
    def ends(self) -> bool:
        return self.gone or self.kill is not None or self.pod is None or is_deleted(self.pod)

    async def interruptible(self, work: Awaitable[Result]) -> Result:
        """Waits for something that may take long. Raises Interrupted when the pod must terminate in
        the meantime.
        """
        self.waits = True
        try:
            return await work
        except asyncio.CancelledError:
            if not self.interrupted or self.task is None:
                raise
            self.interrupted = False
            self.task.uncancel()
            raise SyncInterrupted from None
        finally:
            self.waits = False


class PodWorkers:
    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        resync: float,
        sync: Callable[[PodWorker], Awaitable[SyncOutcome]],
        on_synced: Callable[[str, float], None] = lambda _operation, _seconds: None,
    ) -> None:
        """`on_synced` receives the operation of each sync and how long it took."""
        self._on_synced = on_synced
        self._clock = clock
        self._rng = rng
        self._resync = resync
        self._sync = sync
        self._workers: dict[str, PodWorker] = {}
        self._stopped = False

    def __iter__(self) -> Iterator[PodWorker]:
        return iter([*self._workers.values()])

    def get(self, uid: str) -> PodWorker | None:
        return self._workers.get(uid)

    def add(self, uid: str, pod: Object | None) -> PodWorker:
        worker = self._workers[uid] = PodWorker(uid, pod)
        return worker

    def drop(self, worker: PodWorker) -> None:
        """Nothing is left of the pod."""
        self._cancel_timer(worker)
        if worker.deadline is not None:
            worker.deadline.cancel()
        if self._workers.get(worker.uid) is worker:
            del self._workers[worker.uid]

    def wake(self, worker: PodWorker) -> None:
        """Syncs the pod, now or as soon as the current sync has ended."""
        worker.again = True
        if worker.task is not None:
            if worker.waits and worker.ends and not worker.interrupted:
                worker.interrupted = True
                worker.task.cancel()
        elif not self._stopped:
            self._cancel_timer(worker)
            worker.task = asyncio.get_running_loop().create_task(self._run(worker))

    def wake_uid(self, uid: str) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            self.wake(worker)

    async def stop(self) -> None:
        """Simulates the death of the process: abandons current work; the runtime keeps its
        state.
        """
        self._stopped = True
        tasks = [worker.task for worker in self._workers.values() if worker.task is not None]
        for worker in [*self._workers.values()]:
            self.drop(worker)
            if worker.task is not None:
                worker.task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, worker: PodWorker) -> None:
        outcome = SyncOutcome.FAILED
        try:
            while worker.again:
                worker.again = False
                operation, began = worker.operation, self._clock.monotonic()
                worker.due, worker.backoff_ends = False, None
                try:
                    outcome = await self._sync(worker)
                    worker.synced = True
                    self._on_synced(operation, self._clock.monotonic() - began)
                except SyncInterrupted:
                    worker.again = True
                except Exception:
                    log.exception("the sync of pod %s failed", worker.uid)
                    outcome = SyncOutcome.FAILED
        finally:
            worker.task = None
        if self._workers.get(worker.uid) is worker:
            self._schedule(worker, outcome)

    def _schedule(self, worker: PodWorker, outcome: SyncOutcome) -> None:
        if outcome is SyncOutcome.DONE or self._stopped:
            return
        seconds = {
            SyncOutcome.OK: self._resync,
            SyncOutcome.FAILED: self._retry_seconds(worker),
            SyncOutcome.SOON: _SOON_SECONDS,
        }[outcome]
        worker.timer = self._clock.call_later(
            seconds * (1 + _JITTER * self._rng.random()), self._due, worker
        )

    def _retry_seconds(self, worker: PodWorker) -> float:
        if worker.backoff_ends is None:
            return _FAILED_SECONDS
        return min(max(0.0, worker.backoff_ends - self._clock.time()), self._resync)

    def _due(self, worker: PodWorker) -> None:
        worker.timer = None
        worker.resync = worker.due = True
        self.wake(worker)

    def _cancel_timer(self, worker: PodWorker) -> None:
        if worker.timer is not None:
            worker.timer.cancel()
            worker.timer = None
