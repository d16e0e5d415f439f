"""Encodes watch events for clients that do not get them as they happen: slices that several watchers
share, and large events, which a worker thread encodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from transom.apiserver.core.watch_types import Buffer, WatchEncoder
from transom.kit.clock import Clock
from transom.kit.workers import WorkRejected, WorkRunner
from transom.store.api import StoreRecord

_SLICES_KEPT = 8 * 1024 * 1024  # bytes
_SLICES_SECONDS = 2.0
_RETRY_SECONDS = 0.1
_GROUP = "watch"  # of the worker's callers


class SliceEncoder:
    """Collects events up to a size."""

    __slots__ = ("_first", "_form", "_size", "full", "parts", "shared", "weight")

    def __init__(self, form: WatchEncoder, size: int, first: bool) -> None:
        self._form = form
        self._size = size
        self._first = first
        self.parts: list[Buffer] = []
        self.weight = 0
        self.shared = True
        self.full = False

    def add(self, kind: str, record: StoreRecord) -> None:
        large = self._form.large(kind, record) if len(record.value) > self._size else None
        if large is not None:
            self.parts += large
            self.weight += sum(map(len, large))
            self.shared = False
        else:
            part = self._form.event(kind, record, self._first)
            self.parts.append(part)
            self.weight += len(part)
        self._first = False
        self.full = self.weight >= self._size


class EventSlice:
    __slots__ = ("end", "parts")

    def __init__(self, parts: Sequence[Buffer], end: int) -> None:
        self.parts = parts
        self.end = end


class SharedSlices:
    """A short-lived cache of encoded slices: watchers of one audience that started together read
    the same ones.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slices: dict[object, EventSlice] = {}
        self._size = 0

    def get(self, key: object) -> EventSlice | None:
        return self._slices.get(key)

    def put(self, key: object, encoder: SliceEncoder, end: int) -> EventSlice:
        if not encoder.shared:
            return EventSlice(encoder.parts, end)
        parts = encoder.parts if len(encoder.parts) < 2 else [b"".join(encoder.parts)]
        found = EventSlice(parts, end)
        if not self._slices:
            self._clock.call_later(_SLICES_SECONDS, self._clear)
        elif self._size + encoder.weight > _SLICES_KEPT:
            self._slices.clear()
            self._size = 0
        self._slices[key] = found
        self._size += encoder.weight
        return found

    def _clear(self) -> None:
        self._slices.clear()
        self._size = 0


def is_slow_to_encode(form: WatchEncoder, record: StoreRecord) -> bool:
    """Whether an event of this object takes long to encode."""
    return form.slow_from is not None and len(record.value) > form.slow_from


class LargeEvents:
    """Events that take long to encode, encoded in a worker thread. Watchers that wait for the same
    one share it.
    """

    def __init__(self, workers: WorkRunner) -> None:
        self._workers = workers
        self._running: dict[object, asyncio.Task[Any]] = {}

    def encode(
        self, form: WatchEncoder, kind: str, record: StoreRecord, first: bool
    ) -> asyncio.Future[Any]:
        key = (form.key, kind, record.key, record.mod_revision, first)
        task = self._running.get(key)
        if task is None:
            work = partial(form.event, kind, record, first)
            task = asyncio.get_running_loop().create_task(self._encode(work))
            self._running[key] = task
            task.add_done_callback(lambda _done: self._running.pop(key, None))
        return task

    async def _encode(self, work: partial[Any]) -> Any:
        while True:
            try:
                return await self._workers.run(work, group=_GROUP)
            except WorkRejected:  # many others wait
                await asyncio.sleep(_RETRY_SECONDS)
