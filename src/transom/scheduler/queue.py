"""Pods that wait for a node: those to be looked at, those that must wait a little, those that no node would take.

A pod that fits nowhere is left alone until something happens that may change that, or a minute has passed. After each
failure it waits longer, 1 s to 10 s, before it is looked at again. Order: highest priority first, then first come.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from transom.kit.clock import Clock, Timer
from transom.machinery.objects import Object
from transom.scheduler.nominator import Nominator
from transom.scheduler.pods import PodInfo

INITIAL_BACKOFF, MAX_BACKOFF = 1.0, 10.0
_UNSCHEDULABLE_SECONDS = 60.0
_FLUSH_BACKOFF, _FLUSH_UNSCHEDULABLE = 1.0, 30.0


class Waiting:
    """A pod in the queue. `since` is when it came into the queue it is in."""

    __slots__ = ("attempts", "entry", "info", "since")

    def __init__(self, info: PodInfo, since: float) -> None:
        self.info = info
        self.since = since
        self.attempts = 0
        self.entry = 0  # which entry of the heap is this one; others are left-overs


class _Entry(NamedTuple):
    first: float
    second: float
    number: int
    key: str


class _Heap:
    """A heap by key. Removal only forgets; the entry is dropped when it comes up."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._items: dict[str, Waiting] = {}
        self._count = count(1)

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: str) -> Waiting | None:
        return self._items.get(key)

    def put(self, item: Waiting, first: float, second: float) -> None:
        item.entry = next(self._count)
        self._items[item.info.key] = item
        heapq.heappush(self._entries, _Entry(first, second, item.entry, item.info.key))

    def remove(self, key: str) -> Waiting | None:
        return self._items.pop(key, None)

    def peek(self) -> tuple[Waiting, float] | None:
        while self._entries:
            entry = self._entries[0]
            item = self._items.get(entry.key)
            if item is not None and item.entry == entry.number:
                return item, entry.first
            heapq.heappop(self._entries)
        return None

    def pop(self) -> Waiting | None:
        top = self.peek()
        if top is None:
            return None
        heapq.heappop(self._entries)
        del self._items[top[0].info.key]
        return top[0]


class SchedulingQueue:
    def __init__(
        self, clock: Clock, nominator: Nominator, *, initial_backoff: float = INITIAL_BACKOFF,
        max_backoff: float = MAX_BACKOFF,
    ) -> None:
        self._clock = clock
        self.nominator = nominator
        self._initial, self._max = initial_backoff, max_backoff
        self._active, self._backoff = _Heap(), _Heap()
        self._unschedulable: dict[str, Waiting] = {}
        self._with_affinity: dict[str, Waiting] = {}  # those of the unschedulable that want to be near other pods
        self._wake = asyncio.Event()
        self._timers: dict[str, Timer] = {}
        self.cycle = 0
        self._moved_at = -1  # the cycle in which pods were last moved

    # ---- taking out ----------------------------------------------------------------------------------------------

    async def pop(self) -> Waiting:
        while True:
            item = self.try_pop()
            if item is not None:
                return item
            self._wake.clear()
            await self._wake.wait()

    def try_pop(self) -> Waiting | None:
        item = self._active.pop()
        if item is not None:
            item.attempts += 1
            self.cycle += 1
        return item

    @property
    def active(self) -> int:
        return len(self._active)

    @property
    def unschedulable(self) -> int:
        return len(self._unschedulable)

    @property
    def backing_off(self) -> int:
        return len(self._backoff)

    # ---- putting in ----------------------------------------------------------------------------------------------

    def add(self, info: PodInfo) -> None:
        self._forget(info.key)
        self._activate(Waiting(info, self._clock.monotonic()))
        self.nominator.add(info)

    def put_back(self, item: Waiting, cycle: int) -> None:
        """After an attempt that failed in this cycle. When pods were moved since, the reason may be gone already."""
        key = item.info.key
        if key in self._unschedulable or self._active.get(key) or self._backoff.get(key):
            return
        item.since = self._clock.monotonic()
        if self._moved_at >= cycle:
            self._back_off(item)
        else:
            self._set_aside(item)
        self.nominator.add(item.info)

    def update(self, old: PodInfo, new: PodInfo) -> None:
        key = new.key
        item = self._active.get(key)
        if item is not None:
            self.nominator.update(old, new)
            item.info = new
            self._activate(item)
            return
        item = self._backoff.remove(key)
        if item is not None:
            self.nominator.update(old, new)
            item.info = new
            self._activate(item)
            return
        item = self._unschedulable.get(key)
        if item is not None:
            self.nominator.update(old, new)
            if _changed(old.pod, new.pod):
                self._forget(key)
                item.info = new
                self._activate(item)
            else:
                item.info = new
            return
        self._activate(Waiting(new, self._clock.monotonic()))
        self.nominator.add(new)

    def delete(self, key: str, uid: str) -> None:
        self.nominator.delete(uid)
        self._forget(key)

    def _forget(self, key: str) -> None:
        self._active.remove(key)
        self._backoff.remove(key)
        self._unschedulable.pop(key, None)
        self._with_affinity.pop(key, None)

    def _activate(self, item: Waiting) -> None:
        self._active.put(item, -item.info.priority, item.since)
        self._wake.set()

    def _back_off(self, item: Waiting) -> None:
        self._backoff.put(item, self._backoff_ends(item), 0.0)

    def _set_aside(self, item: Waiting) -> None:
        self._unschedulable[item.info.key] = item
        if item.info.shape.terms.affinity:
            self._with_affinity[item.info.key] = item

    def _backoff_ends(self, item: Waiting) -> float:
        wait = self._initial
        for _ in range(1, item.attempts):
            wait *= 2
            if wait > self._max:
                wait = self._max
                break
        return item.since + wait

    # ---- moves ---------------------------------------------------------------------------------------------------

    def move_all(self) -> None:
        """Something happened that may help any pod."""
        self._move([*self._unschedulable.values()])

    def assigned(self, info: PodInfo) -> None:
        """A pod runs now (or has changed): those that want to be near it may fit."""
        self._move([
            item for item in self._with_affinity.values()
            if any(term.predicate.holds(info.identity) for term in item.info.shape.terms.affinity)
        ])

    def _move(self, items: list[Waiting]) -> None:
        now = self._clock.monotonic()
        for item in items:
            key = item.info.key
            self._unschedulable.pop(key, None)
            self._with_affinity.pop(key, None)
            if self._backoff_ends(item) > now:
                self._back_off(item)
            else:
                self._activate(item)
        self._moved_at = self.cycle

    # ---- time ----------------------------------------------------------------------------------------------------

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
        while (top := self._backoff.peek()) is not None and top[1] <= now:
            item = self._backoff.pop()
            assert item is not None
            self._activate(item)

    def flush_unschedulable(self) -> None:
        now = self._clock.monotonic()
        old = [item for item in self._unschedulable.values() if now - item.since > _UNSCHEDULABLE_SECONDS]
        if old:
            self._move(old)


def _changed(old: Object, new: Object) -> bool:
    """Whether more than the status and its version has."""
    if old.get("spec") != new.get("spec"):
        return True
    before, after = dict(old["metadata"]), dict(new["metadata"])
    for meta in (before, after):
        meta.pop("resourceVersion", None)
        meta.pop("generation", None)
    return before != after
