"""The default store: all of it in memory for readers, each write in SQLite's write-ahead log before it is acknowledged.

Group commit: while one transaction is being synced to disk, the loop collects the next. A single thread owns the
connection and takes all that is pending each time; so one writer waits for one sync, and a hundred wait for one too. The
thread is woken when the loop has run all that was ready, so that what those callbacks wrote goes to disk together.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from transom.kit.clock import Clock, RealClock
from transom.store import disk
from transom.store.core import CoreStore, Write
from transom.store.mvcc import Row, State
from transom.store.sealing import NOTHING, Sealing

_log = logging.getLogger(__name__)

# What the loop has to take in at one go stays small.
_BATCH = 512
_GARBAGE = 128
_CHECKPOINT_BYTES = 4 << 20
# A commit writes at least the page it appends to and the one above.
_COMMIT_BYTES = 16384


class _SqliteLog:
    """`_lock` guards what both threads touch: `_pending`, `_garbage` and the flags. `_fresh` is the loop's own: what was
    written since it last handed over."""

    def __init__(self, path: Path, sealing: Sealing) -> None:
        self._path = path
        self._sealing = sealing
        self._lock = threading.Lock()
        self._signal = threading.Lock()  # held while there is nothing to do; released to wake the thread
        self._signal.acquire()
        self._idle = False
        self._fresh: list[Write] = []
        self._pending: list[Write] = []
        self._garbage: deque[int] = deque()
        self._garbage_held = False  # after a failure, until the loop discards more
        self._compacted = 0
        self._broken = False  # a batch failed and the loop has not heard of it yet
        self._closing = False

    # On the loop

    async def open(
        self,
        state: State,
        committed: Callable[[Sequence[Write]], None],
        failed: Callable[[Sequence[Write], Exception], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._committed = committed
        self._failed = failed
        self._closed: asyncio.Future[None] = self._loop.create_future()
        opened: asyncio.Future[None] = self._loop.create_future()
        threading.Thread(target=self._run, args=(state, opened), name="store", daemon=True).start()
        await opened

    def append(self, write: Write) -> None:
        if not self._fresh:
            self._loop.call_soon(self._hand_over)
        self._fresh.append(write)

    def _hand_over(self) -> None:
        fresh, self._fresh = self._fresh, []
        if fresh:
            with self._lock:
                self._pending += fresh
                self._wake()

    def discard(self, revisions: Sequence[int], compacted: int) -> None:
        with self._lock:
            self._garbage.extend(revisions)
            self._compacted = compacted
            self._garbage_held = False
            self._wake()

    async def close(self) -> None:
        self._hand_over()
        with self._lock:
            self._closing = True
            self._wake()
        await self._closed

    def _wake(self) -> None:
        if self._idle:
            self._idle = False
            self._signal.release()

    def _report_failure(self, batch: list[Write], error: Exception) -> None:
        with self._lock:
            batch += self._pending
            batch += self._fresh
            self._pending, self._fresh = [], []
            self._broken = False
            self._wake()
        self._failed(batch, error)

    # In the thread

    def _run(self, state: State, opened: asyncio.Future[None]) -> None:
        with ExitStack() as stack:
            stack.callback(self._post, _set_result, self._closed)
            try:
                stack.callback(os.close, disk.lock(self._path))
                connection = stack.enter_context(closing(disk.connect(self._path)))
                stale = disk.load(connection, state, self._path, self._sealing)
                disk.reseal(connection, stale, self._sealing, self._path)
            except Exception as error:
                self._post(_set_exception, opened, error)
                return
            self._post(_set_result, opened)
            self._work(connection)

    def _work(self, connection: sqlite3.Connection) -> None:
        # A server that crashes again and again must not let the log grow either.
        since_checkpoint = disk.wal_size(self._path)
        while True:
            taken = self._take()
            if taken is None:
                return
            batch, garbage, compacted = taken
            if not batch and not garbage:
                self._signal.acquire()
                continue
            try:
                disk.commit(connection, [_row(write, self._sealing) for write in batch], garbage, compacted)
            except Exception as error:
                self._on_failure(batch, garbage, error)
                continue
            if batch and not self._post(self._committed, batch):
                return
            since_checkpoint += _COMMIT_BYTES + sum(map(_size, batch)) + len(garbage) * 4096
            if since_checkpoint > _CHECKPOINT_BYTES:
                since_checkpoint = 0
                try:
                    disk.checkpoint(connection)
                except sqlite3.Error as error:
                    _log.warning("the write-ahead log of %s could not be checkpointed: %s", self._path, error)

    def _take(self) -> tuple[list[Write], list[int], int] | None:
        """What to do next; None at the end. Some garbage goes along with each batch, a little more than the batch can
        leave behind, so that neither waits for the other and the file does not grow."""
        with self._lock:
            batch: list[Write] = []
            if not self._broken:
                batch, self._pending = self._pending[:_BATCH], self._pending[_BATCH:]
                if not batch and self._closing:
                    return None
            garbage: list[int] = []
            if self._garbage and not self._garbage_held and not self._closing:
                garbage = [self._garbage.popleft() for _ in range(min(len(self._garbage), len(batch) + _GARBAGE))]
            self._idle = not batch and not garbage
            return batch, garbage, self._compacted

    def _on_failure(self, batch: list[Write], garbage: list[int], error: Exception) -> None:
        with self._lock:
            self._garbage.extendleft(reversed(garbage))
            self._garbage_held = bool(self._garbage)
            self._broken = bool(batch)
        if batch:
            self._post(self._report_failure, batch, error)
        else:
            _log.warning("old rows of %s could not be removed: %s", self._path, error)

    def _post(self, function: Callable[..., object], *args: Any) -> bool:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            return False  # the loop is closed and with it everybody who could wait for an answer
        return True


def _row(write: Write, sealing: Sealing) -> Row:
    event = write.event
    record = event.record
    if record is None:
        return (event.revision, event.key, None, 0, None)
    value = sealing.to_disk(event.key, record.value)
    return (event.revision, event.key, value, record.create_revision, record.expires)


def _size(write: Write) -> int:
    return 0 if write.event.record is None else len(write.event.record.value)


def _set_result(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _set_exception(future: asyncio.Future[None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class SqliteStore(CoreStore):
    def __init__(self, path: Path, clock: Clock | None = None, *, sealing: Sealing = NOTHING, **bounds: Any) -> None:
        """`sealing`: which values are encrypted on disk; `bounds`: how much history is kept, as in `CoreStore`."""
        super().__init__(_SqliteLog(path, sealing), clock or RealClock(), **bounds)
