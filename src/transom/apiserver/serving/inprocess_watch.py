"""Watches of clients in the same process as the API server."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from transom.apiserver.core.resources import Resource
from transom.apiserver.core.watch_types import EventCursor
from transom.client.api import (
    BOOKMARK,
    BatchedWatch,
    WatchEvent,
)
from transom.machinery import errors
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.store.api import RevisionCompacted, StoreRecord

BATCH = 256  # objects decoded before other tasks run
BATCH_BYTES = 512 * 1024  # or bytes of them
_DECODED_IN_THREAD = 128 * 1024  # bytes of an object that takes long to decode
_QUEUED = 2048  # events queued for a watcher; later ones stay in the history of the store


class RecordEvents:
    """The form of events for in-process watchers: the record itself, decoded on first access."""

    __slots__ = ("_res", "key")
    headed = False
    batch = _QUEUED
    slow_from: int | None = None  # clients decode the records

    def __init__(self, res: Resource) -> None:
        self._res = res
        self.key: object = ("record", res.api_version)

    def event(
        self, kind: str, record: StoreRecord, first: bool = False
    ) -> tuple[str, StoreRecord | Object]:
        return kind, record

    def large(self, kind: str, record: StoreRecord) -> None:
        return None

    def bookmark(self, revision: int, initial: bool) -> list[tuple[str, StoreRecord | Object]]:
        res = self._res
        obj = {
            "kind": res.kind.kind,
            "apiVersion": res.api_version,
            "metadata": {"resourceVersion": str(revision)},
        }
        return [(BOOKMARK, obj)]

    def error(self, status: Object) -> list[tuple[str, StoreRecord | Object]]:
        return [("ERROR", status)]

    def join(
        self, parts: list[tuple[str, StoreRecord | Object]]
    ) -> list[tuple[str, StoreRecord | Object]]:
        return parts


def is_decoded_in_thread(record: StoreRecord) -> bool:
    return len(record.value) > _DECODED_IN_THREAD


def _fitting_events(batch: list[tuple[str, StoreRecord | Object]]) -> int:
    """How many events are decoded, and passed to handlers, before other tasks run. One with a large
    object is alone.
    """
    size = sum([len(record.value) for _, record in batch if isinstance(record, StoreRecord)])
    if size <= _DECODED_IN_THREAD and len(batch) <= BATCH:  # almost always
        return len(batch)
    size = 0
    for count, (_, record) in enumerate(batch[:BATCH], 1):
        if isinstance(record, StoreRecord):
            if is_decoded_in_thread(record):
                return max(count - 1, 1)
            size += len(record.value)
            if size >= BATCH_BYTES:
                return count
    return min(len(batch), BATCH)


class InProcessWatch(BatchedWatch):
    """A sink of the hub on one side, a client's watch on the other."""

    def __init__(
        self,
        decode: Callable[[Resource, StoreRecord], Object],
        decode_large: Callable[[Resource, StoreRecord], Awaitable[Object]],
        res: Resource,
        on_end: Callable[[], None],
    ) -> None:
        """`on_end` is called once, when the watch ends."""
        self._decode, self._decode_large = decode, decode_large
        self._res = res
        self._batches: deque[list[tuple[str, StoreRecord | Object]]] = deque()
        self._size = 0
        self._cursor: EventCursor | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._ended = False
        self._cancel: Callable[[], None] | None = None
        self._problem: ApiError | None = None
        self._on_end: Callable[[], None] | None = on_end

    def attach(self, cancel: Callable[[], None]) -> None:
        """`cancel` stops the source of this watch."""
        self._cancel = cancel

    def expire(self, problem: ApiError) -> None:
        """The history that the watch needs is compacted; the client must list again."""
        self._problem = problem

    async def next(self) -> list[WatchEvent]:
        while not self._batches:
            if self._problem is not None:
                raise self._problem
            if self._ended:
                return []
            if self._cursor is not None:
                self._take(self._cursor)
                if not self._batches:
                    await asyncio.sleep(0)
                continue
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        batch = self._batches.popleft()
        if len(batch) == 1:
            return [await self._next_one(*batch[0])]
        fitting = _fitting_events(batch)
        if fitting < len(batch):  # a long history is delivered in pieces
            self._batches.appendleft(batch[fitting:])
            batch = batch[:fitting]
            await asyncio.sleep(0)
        self._size -= len(batch)
        if self._size < _QUEUED:
            self._make_room()
        decode, res = self._decode, self._res
        kind, first = batch[0]
        if isinstance(first, StoreRecord) and is_decoded_in_thread(first):
            return [WatchEvent(kind, await self._decode_large(res, first))]
        return [
            WatchEvent(kind, decode(res, record) if isinstance(record, StoreRecord) else record)
            for kind, record in batch
        ]

    async def _next_one(self, kind: str, record: StoreRecord | Object) -> WatchEvent:
        """The usual batch: one event."""
        self._size -= 1
        if self._room is not None and self._size < _QUEUED:
            self._make_room()
        if not isinstance(record, StoreRecord):
            return WatchEvent(kind, record)
        if is_decoded_in_thread(record):
            return WatchEvent(kind, await self._decode_large(self._res, record))
        return WatchEvent(kind, self._decode(self._res, record))

    def _take(self, cursor: EventCursor) -> None:
        """Queues the next events of a watcher that has fallen behind."""
        try:
            batch = cursor.take(BATCH)
        except RevisionCompacted as gone:
            # The client recovers with a new list.
            self._problem = errors.expired(
                f"too old resource version: {cursor.revision} ({gone.revision})"
            )
            if self._cancel is not None:
                self._cancel()
            self._finish()
            return
        if batch is None:
            if self._cursor is cursor:
                self._cursor = None
        else:
            bookmark = self._bookmark
            self._push(
                [
                    (step.kind, bookmark(*step.item) if step.kind == BOOKMARK else step.item)
                    for step in batch
                ]
            )

    def _bookmark(self, revision: int, initial: bool) -> Object:
        ((_, obj),) = RecordEvents(self._res).bookmark(revision, initial)
        assert isinstance(obj, dict)
        return obj

    def close(self) -> None:
        self._finish()
        self._batches.clear()
        self._cursor = None
        if self._cancel is not None:
            self._cancel()
        self._wake()

    # ---- watch.Sink ----

    def send(self, payload: list[tuple[str, StoreRecord | Object]]) -> bool:
        if self._size >= _QUEUED or self._cursor is not None:
            return False
        self._push(payload)
        return True

    def follow(self, cursor: EventCursor) -> None:
        self._cursor = cursor
        self._wake()

    async def drained(self) -> None:
        """Waits until the client has consumed the pushed events."""
        while self._size >= _QUEUED and not self._ended:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def push(self, payload: list[tuple[str, StoreRecord | Object]]) -> None:
        self._push(payload)

    def end(self) -> None:
        self._finish()
        self._wake()

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _finish(self) -> None:
        self._ended = True
        self._make_room()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    def _push(self, batch: list[tuple[str, StoreRecord | Object]]) -> None:
        if batch and not self._ended:
            self._batches.append(batch)
            self._size += len(batch)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
