"""The scheduling queue: pods to schedule (active), pods that wait for their back-off, and
unschedulable pods.

An unschedulable pod is retried when something happens that may make it schedulable, or after a
minute. Its back-off doubles with each attempt, from 1 s to 10 s. PreEnqueue plugins decide which
pods enter the active queue, the QueueSort plugin orders it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from functools import cmp_to_key
from itertools import count
from typing import Any

from transom.kit.clock import Clock, Timer
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object
from transom.scheduler.framework import LessFunc, QueuedPodInfo
from transom.scheduler.metrics import SchedulerMetrics
from transom.scheduler.nominator import PodNominator
from transom.scheduler.pods import PodInfo

UNKNOWN_EVENT = "Unknown"
INITIAL_BACKOFF, MAX_BACKOFF = 1.0, 10.0
_UNSCHEDULABLE_SECONDS = 60.0
_FLUSH_BACKOFF, _FLUSH_UNSCHEDULABLE = 1.0, 30.0


class _Entry(NamedTuple):
    item: QueuedPodInfo
    number: int
    backoff_ends: float = 0.0


class _Heap:
    """A heap by pod key. Entries that are equal stay in the order in which they were added. A
    removed entry stays in the heap until it is the first one."""

    def __init__(self, less: Callable[[_Entry, _Entry], bool]) -> None:
        self._heap: list[Any] = []
        self._current: dict[str, _Entry] = {}
        self._count = count(1)

        def compare(a: _Entry, b: _Entry) -> int:
            return -1 if less(a, b) else 1 if less(b, a) else a.number - b.number

        self._sort_key = cmp_to_key(compare)

    def __len__(self) -> int:
        return len(self._current)

    def get(self, key: str) -> QueuedPodInfo | None:
        entry = self._current.get(key)
        return entry.item if entry is not None else None

    def put(self, item: QueuedPodInfo, backoff_ends: float = 0.0) -> None:
        entry = _Entry(item, next(self._count), backoff_ends)
        self._current[item.pod_info.key] = entry
        heapq.heappush(self._heap, self._sort_key(entry))

    def remove(self, key: str) -> QueuedPodInfo | None:
        entry = self._current.pop(key, None)
        return entry.item if entry is not None else None

    def peek(self) -> _Entry | None:
        while self._heap:
            entry: _Entry = self._heap[0].obj
            if self._current.get(entry.item.pod_info.key) is entry:
                return entry
            heapq.heappop(self._heap)
        return None

    def pop(self) -> QueuedPodInfo | None:
        entry = self.peek()
        if entry is None:
            return None
        heapq.heappop(self._heap)
        del self._current[entry.item.pod_info.key]
        return entry.item


class SchedulingQueue:
    """`less` is the QueueSort plugin's; `may_enqueue` runs the PreEnqueue plugins of the pod's
    profile.
    """

    def __init__(
        self,
        clock: Clock,
        nominator: PodNominator,
        less: LessFunc,
        may_enqueue: Callable[[PodInfo], bool],
        *,
        initial_backoff: float = INITIAL_BACKOFF,
        max_backoff: float = MAX_BACKOFF,
        hints: bool = False,
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        """`hints`: an event that cannot help any pod does not count (queueing hints)."""
        self._metrics = metrics or SchedulerMetrics()
        self._hints = hints
        self._clock = clock
        self.nominator = nominator
        self._may_enqueue = may_enqueue
        self._initial, self._max = initial_backoff, max_backoff
        self._active = _Heap(lambda a, b: less(a.item, b.item))
        self._backoff = _Heap(lambda a, b: a.backoff_ends < b.backoff_ends)
        self._unschedulable: dict[str, QueuedPodInfo] = {}
        self._with_affinity: dict[str, QueuedPodInfo] = {}  # unschedulable, with pod affinity
        self._wake = asyncio.Event()
        self._timers: dict[str, Timer] = {}
        self.scheduling_cycle = 0
        self._move_request_cycle = -1  # the cycle in which pods were last moved
        self._in_flight: PodInfo | None = None  # the pod of the current cycle

    # ---- pop ----

    async def pop(self) -> QueuedPodInfo:
        while True:
            item = self.try_pop()
            if item is not None:
                return item
            self._wake.clear()
            await self._wake.wait()

    def try_pop(self) -> QueuedPodInfo | None:
        item = self._active.pop()
        if item is not None:
            item.attempts += 1
            self.scheduling_cycle += 1
            self._in_flight = item.pod_info
            item.attempt_started = self._clock.monotonic()
        return item

    @property
    def active(self) -> int:
        return len(self._active)

    @property
    def unschedulable(self) -> int:
        return len(self._unschedulable)

    @property
    def gated(self) -> int:
        return sum(item.gated for item in self._unschedulable.values())

    @property
    def backing_off(self) -> int:
        return len(self._backoff)

    # ---- add, update, delete ----

    def add(self, pod: PodInfo) -> None:
        self._remove(pod.key)
        self._move_to_active(QueuedPodInfo(pod, self._clock.monotonic()), "PodAdd")
        self.nominator.add_nominated_pod(pod)

    def add_unschedulable_if_not_present(self, item: QueuedPodInfo, scheduling_cycle: int) -> None:
        """Add a pod after an attempt that failed in this cycle. If pods were moved since then, the
        cause of the failure may no longer exist.
        """
        key = item.pod_info.key
        if key in self._unschedulable or self._active.get(key) or self._backoff.get(key):
            return
        item.timestamp = self._clock.monotonic()
        if self._move_request_cycle >= scheduling_cycle:
            self._move_to_backoff(item, "ScheduleAttemptFailure")
        else:
            self._move_to_unschedulable(item, "ScheduleAttemptFailure")
        self.nominator.add_nominated_pod(item.pod_info)

    def update(self, old: PodInfo, new: PodInfo) -> None:
        key = new.key
        item = self._active.get(key)
        if item is not None:
            self.nominator.update_nominated_pod(old, new)
            # A new item: the old one is still an entry of the heap, whose order must not change.
            self._put_active(QueuedPodInfo(new, item.timestamp, item.attempts, item.first_queued))
            return
        item = self._backoff.remove(key)
        if item is not None:
            self.nominator.update_nominated_pod(old, new)
            item.pod_info = new
            self._move_to_active(item, "PodUpdate")
            return
        item = self._unschedulable.get(key)
        if item is not None:
            self.nominator.update_nominated_pod(old, new)
            if item.gated or _is_pod_updated(old.pod, new.pod):
                self._remove(key)
                item.pod_info = new
                self._move_to_active(item, "PodUpdate")
            else:
                item.pod_info = new
            return
        self._move_to_active(QueuedPodInfo(new, self._clock.monotonic()), "PodUpdate")
        self.nominator.add_nominated_pod(new)

    def delete(self, key: str, uid: str) -> None:
        self.nominator.delete_nominated_pod(uid)
        self._remove(key)

    def _remove(self, key: str) -> None:
        self._active.remove(key)
        self._backoff.remove(key)
        self._unschedulable.pop(key, None)
        self._with_affinity.pop(key, None)

    def _move_to_active(self, item: QueuedPodInfo, event: str) -> None:
        """Add the pod to the active queue, or keep it as unschedulable if a PreEnqueue plugin
        rejects it.
        """
        item.gated = not self._may_enqueue(item.pod_info)
        if item.gated:
            self._move_to_unschedulable(item, event)
        else:
            self._put_active(item)
            self._metrics.pod_queued("active", event)

    def _put_active(self, item: QueuedPodInfo) -> None:
        if item.first_queued is None:
            item.first_queued = self._clock.monotonic()
        self._active.put(item)
        self._wake.set()

    def _move_to_backoff(self, item: QueuedPodInfo, event: str) -> None:
        self._backoff.put(item, self._backoff_time(item))
        self._metrics.pod_queued("backoff", event)

    def _move_to_unschedulable(self, item: QueuedPodInfo, event: str) -> None:
        self._metrics.pod_queued("unschedulable", event)
        self._unschedulable[item.pod_info.key] = item
        if item.pod_info.shape.terms.affinity:
            self._with_affinity[item.pod_info.key] = item

    def _backoff_time(self, item: QueuedPodInfo) -> float:
        """When the back-off of the pod ends."""
        duration = self._initial
        for _ in range(1, item.attempts):
            duration *= 2
            if duration > self._max:
                duration = self._max
                break
        return item.timestamp + duration

    # ---- move ----

    def move_all_to_active_or_backoff(self, event: str = UNKNOWN_EVENT) -> None:
        """An event that may make any pod schedulable."""
        self._move([*self._unschedulable.values()], event)

    def move_if(self, concerns: Callable[[PodInfo], bool], event: str = UNKNOWN_EVENT) -> None:
        """An event that may make only some pods schedulable. Releases without queueing hints try
        all of them again.
        """
        if not self._hints:
            self.move_all_to_active_or_backoff(event)
            return
        items = [item for item in self._unschedulable.values() if concerns(item.pod_info)]
        before = self._move_request_cycle
        self._move(items, event)
        if self._in_flight is None or not concerns(self._in_flight):
            self._move_request_cycle = before

    @property
    def uses_hints(self) -> bool:
        return self._hints

    def assigned_pod_added(self, pod: PodInfo, event: str = UNKNOWN_EVENT) -> None:
        """A pod was bound or changed: pods with affinity to it may now be schedulable."""
        items = [
            item
            for item in self._with_affinity.values()
            if any(
                term.pod_selector.matches(pod.identity)
                for term in item.pod_info.shape.terms.affinity
            )
        ]
        if items or not self._hints:
            self._move(items, event)

    def _move(self, items: list[QueuedPodInfo], event: str) -> None:
        now = self._clock.monotonic()
        for item in items:
            key = item.pod_info.key
            self._unschedulable.pop(key, None)
            self._with_affinity.pop(key, None)
            if not item.gated and self._backoff_time(item) > now:
                self._move_to_backoff(item, event)
            else:
                self._move_to_active(item, event)
        self._move_request_cycle = self.scheduling_cycle

    # ---- timers ----

    def start(self) -> None:
        self._every("backoff", _FLUSH_BACKOFF, self.flush_backoff)
        self._every("unschedulable", _FLUSH_UNSCHEDULABLE, self.flush_unschedulable)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _every(self, name: str, seconds: float, work: Callable[[], None]) -> None:
        def again() -> None:
            work()
            self._timers[name] = self._clock.call_later(seconds, again)

        self._timers[name] = self._clock.call_later(seconds, again)

    def flush_backoff(self) -> None:
        now = self._clock.monotonic()
        while (first := self._backoff.peek()) is not None and first.backoff_ends <= now:
            item = self._backoff.pop()
            assert item is not None
            self._move_to_active(item, "BackoffComplete")

    def flush_unschedulable(self) -> None:
        now = self._clock.monotonic()
        expired = [
            item
            for item in self._unschedulable.values()
            if now - item.timestamp > _UNSCHEDULABLE_SECONDS
        ]
        if expired:
            self._move(expired, "UnschedulableTimeout")


def _is_pod_updated(old: Object, new: Object) -> bool:
    """Whether more than the status and the resourceVersion has changed."""
    if old.get("spec") != new.get("spec"):
        return True
    before, after = dict(old["metadata"]), dict(new["metadata"])
    for meta in (before, after):
        meta.pop("resourceVersion", None)
        meta.pop("generation", None)
    return before != after
