"""The default store: readers use the state in memory; each write is in SQLite's write-ahead log
before it is acknowledged.

Group commit: while one transaction is being synced to disk, the loop collects the next. A single
thread owns the connection and commits everything that is pending, so a hundred writers wait for one
sync, just like a single one. The thread is woken after the loop has run all ready callbacks, so
that their writes go to disk together. While idle it verifies the checksums of old rows, a few at a
time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.kit.clock import Clock, RealClock
from transom.kit.lazy import lazy_import
from transom.store import disk
from transom.store.api import KeyQuarantined, StoreHealth, StoreRecord
from transom.store.core import CoreStore, StoreWrite
from transom.store.mvcc import MvccState
from transom.store.opening import BeforeUpgrade, CheckValue, check_structure, open_store_file
from transom.store.rows import Ledger, LedgerWriter, StoredRow, is_intact
from transom.store.sealing import NOTHING, Sealing

if TYPE_CHECKING:
    from transom.store import recover
    from transom.store.recover import QuarantineRow
else:
    recover = lazy_import("transom.store.recover")

_log = logging.getLogger(__name__)

# Limits the work that the loop does in one go.
_BATCH = 512
_GARBAGE = 128
_CHECKPOINT_BYTES = 4 << 20
# A commit writes at least the page it appends to and its parent.
_COMMIT_BYTES = 16384
# A write that takes longer than this is reported as stuck.
STUCK_SECONDS = 10.0
# How often a failed disk is retried while there is nothing to write.
_PROBE_SECONDS = 2.0
# Rows that are verified at a time, the pause between two such slices, and that between two rounds
# through the file.
_SCRUB_ROWS = 128
_SCRUB_SECONDS = 1.0
_SCRUB_ROUND_SECONDS = 3600.0

Job = Callable[[sqlite3.Connection], None]


class _SqliteLog:
    """`_lock` guards the state that both threads use: `_pending`, `_garbage` and the flags. Only
    the loop uses `_fresh`: the writes since its last handover.
    """

    def __init__(
        self,
        path: Path,
        sealing: Sealing,
        check: CheckValue | None,
        before_upgrade: BeforeUpgrade | None,
    ) -> None:
        self._path = path
        self._sealing = sealing
        self._check = check
        self._before_upgrade = before_upgrade
        self._ledger = Ledger()
        self._written: Ledger | None = None  # the one on disk
        self._jobs: list[Job] = []
        self._problem = ""  # of the last commit
        self._damage = ""
        self._last_commit = 0.0
        self._busy_since = 0.0
        self._waiting_since = 0.0
        self._scrubbed = 0  # rows up to this revision were verified in this round
        self._scrub_at = time.monotonic() + _SCRUB_SECONDS
        self._lock = threading.Lock()
        self._signal = threading.Lock()  # held while idle; released to wake the thread
        self._signal.acquire()
        self._idle = False
        self._fresh: list[StoreWrite] = []
        self._pending: list[StoreWrite] = []
        self._garbage: deque[int] = deque()
        self._garbage_held = False  # after a failure, until the loop discards more
        self._compacted = 0
        self._broken = False  # a batch failed and the loop does not know it yet
        self._closing = False

    # On the loop

    async def open(
        self,
        state: MvccState,
        committed: Callable[[Sequence[StoreWrite]], None],
        failed: Callable[[Sequence[StoreWrite], Exception], None],
        corrupt: Callable[[StoredRow], None],
    ) -> tuple[list[KeyQuarantined], list[KeyQuarantined]]:
        self._loop = asyncio.get_running_loop()
        self._committed = committed
        self._failed = failed
        self._corrupt = corrupt
        self._closed: asyncio.Future[None] = self._loop.create_future()
        opened: asyncio.Future[tuple[list[KeyQuarantined], list[KeyQuarantined]]] = (
            self._loop.create_future()
        )
        threading.Thread(target=self._run, args=(state, opened), name="store", daemon=True).start()
        return await opened

    def append(self, write: StoreWrite) -> None:
        if not self._fresh:
            self._loop.call_soon(self._hand_over)
        self._fresh.append(write)

    def _hand_over(self) -> None:
        fresh, self._fresh = self._fresh, []
        if fresh:
            with self._lock:
                self._pending += fresh
                self._waiting_since = self._waiting_since or time.monotonic()
                self._wake()

    def discard(self, revisions: Sequence[int], compacted: int) -> None:
        with self._lock:
            self._garbage.extend(revisions)
            self._compacted = compacted
            self._garbage_held = False
            self._wake()

    def run_job(self, job: Job) -> None:
        """Runs a job on the file in the thread, between two batches."""
        with self._lock:
            self._jobs.append(job)
            self._wake()

    def repair(self, row: StoredRow, record: StoreRecord, note: QuarantineRow) -> None:
        """Rewrites a row that is corrupt on disk and intact in memory."""
        value = self._sealing.to_disk(record.key, record.value)
        right = StoredRow(
            record.mod_revision, 0, b"", record.key, record.create_revision, record.expires, value
        )

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN")
            disk.replace_row(connection, self._ledger, right)
            disk.add_quarantine(connection, [note])
            ledger = disk.recount_rows(connection, self._ledger)
            disk.write_ledger(connection, ledger)
            connection.execute("COMMIT")
            self._ledger = self._written = ledger

        self.run_job(write)

    def clear_quarantine(self) -> None:
        self.run_job(disk.clear_quarantine)

    def health(self) -> StoreHealth:
        problem = self._problem
        since = self._busy_since or self._waiting_since
        if not problem and since and time.monotonic() - since > STUCK_SECONDS:
            problem = f"a write has been waiting for the disk for {time.monotonic() - since:.0f} s"
        return StoreHealth(problem, self._damage, self._last_commit)

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

    def _report_failure(self, batch: list[StoreWrite], error: Exception) -> None:
        with self._lock:
            batch += self._pending
            batch += self._fresh
            self._pending, self._fresh = [], []
            self._broken = False
            self._wake()
        self._failed(batch, error)

    # In the thread

    def _run(
        self,
        state: MvccState,
        opened: asyncio.Future[tuple[list[KeyQuarantined], list[KeyQuarantined]]],
    ) -> None:
        problem = None
        with ExitStack() as stack:
            try:
                lock = disk.lock_database(self._path)
                stack.callback(os.close, lock)
                found = open_store_file(
                    self._path, lock, state, self._sealing, self._check, self._before_upgrade
                )
                self._ledger = found.ledger
            except Exception as error:
                problem = error
            else:
                # Reads may begin; the first write waits for this.
                self._post(_set_result, opened, (found.quarantined, found.found_now))
                connection = self._checked(found.connection)
                if connection is not None:
                    stack.enter_context(closing(connection))
                    self._work(connection, lock)
                    self._write_ledger(connection)
        # Waiters may reopen the file immediately.
        if problem is not None:
            self._post(_set_exception, opened, problem)
        self._post(_set_result, self._closed, None)

    def _checked(self, connection: sqlite3.Connection) -> sqlite3.Connection | None:
        """The connection for writes; None if there is none, after all writes were rejected."""
        try:
            connection = check_structure(self._path, connection, self._ledger)
            self._written = self._ledger if disk.read_ledger(connection) == self._ledger else None
            return connection
        except Exception as error:
            self._damage = f"{self._path} is damaged: {error}"
            _log.error("%s", self._damage)
            while (taken := self._take()) is not None:
                if taken[0]:
                    self._on_failure(taken[0], taken[1], error)
                elif self._idle:
                    self._signal.acquire()
            return None

    def _work(self, connection: sqlite3.Connection, lock: int) -> None:
        # A server in a crash loop must not let the log grow either.
        since_checkpoint = disk.wal_size(self._path)
        while True:
            taken = self._take()
            self._run_jobs(connection)
            if taken is None:
                return
            batch, garbage, compacted = taken
            if not batch and not garbage:
                self._idle_work(connection)
                continue
            self._busy_since = time.monotonic()
            try:
                self._commit(connection, batch, garbage, compacted)
            except Exception as error:
                self._on_failure(batch, garbage, error)
                continue
            finally:
                self._busy_since = 0.0
            self._problem = ""
            self._last_commit = time.time()
            if batch:
                self._note_acknowledged(lock, batch[-1].event.revision)
                if not self._post(self._committed, batch):
                    return
            since_checkpoint += _COMMIT_BYTES + sum(map(_size, batch)) + len(garbage) * 4096
            if since_checkpoint > _CHECKPOINT_BYTES:
                since_checkpoint = 0
                if self._write_ledger(connection):
                    self._checkpoint(connection)

    def _commit(
        self,
        connection: sqlite3.Connection,
        batch: list[StoreWrite],
        garbage: list[int],
        compacted: int,
    ) -> None:
        writer = LedgerWriter(self._ledger)
        rows = [_row(write, self._sealing, writer) for write in batch]
        aside = [
            recover.QuarantineRow(
                write.quarantined, self._sealing.to_disk(write.event.key, write.raw)
            )
            for write in batch
            if write.quarantined is not None
        ]
        ledger = writer.ledger
        if garbage:
            ledger = ledger.without(0, 0, compacted)
        self._ledger = disk.commit_rows(connection, rows, garbage, ledger, aside)
        if garbage or aside:
            self._written = self._ledger

    def _note_acknowledged(self, lock: int, revision: int) -> None:
        """Without the note a log that is cut at its end cannot be detected; nothing else needs it."""
        try:
            disk.note_acknowledged(lock, revision)
        except OSError as error:
            _log.warning("the lock file of %s cannot be written: %s", self._path, error)

    def _write_ledger(self, connection: sqlite3.Connection, *, always: bool = False) -> bool:
        if self._ledger is self._written and not always:
            return True
        try:
            disk.write_ledger(connection, self._ledger)
            self._written = self._ledger
        except sqlite3.Error as error:
            self._problem = self._explained(error)
            _log.warning("%s cannot be written: %s", self._path, error)
            return False
        return True

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        try:
            disk.checkpoint_database(connection)
        except sqlite3.Error as error:
            _log.warning(
                "the write-ahead log of %s could not be checkpointed: %s", self._path, error
            )

    def _explained(self, error: Exception) -> str:
        if disk.is_damage_error(error) and isinstance(error, sqlite3.DatabaseError):
            self._damage = f"{self._path} is damaged: {error}"
        return str(disk.disk_failure(f"cannot write {self._path}", error, self._path))

    # While idle

    def _run_jobs(self, connection: sqlite3.Connection) -> None:
        if not self._jobs:
            return
        with self._lock:
            jobs, self._jobs = self._jobs, []
        for job in jobs:
            try:
                job(connection)
            except Exception as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                _log.warning("%s: %s", self._path, self._explained(error))

    def _idle_work(self, connection: sqlite3.Connection) -> None:
        if not self._idle:
            return
        now = time.monotonic()
        due = now + _PROBE_SECONDS if self._problem else self._scrub_at
        if due > now and self._signal.acquire(timeout=due - now):
            return
        with self._lock:
            # The thread was not woken, so the signal is still held; it is not needed from here on.
            if not self._idle:
                self._signal.acquire()
                return
            self._idle = False
        if self._problem:
            if self._write_ledger(connection, always=True):
                self._problem = ""
                _log.info("%s can be written to again", self._path)
        else:
            self._scrub(connection)

    def _scrub(self, connection: sqlite3.Connection) -> None:
        self._scrub_at = time.monotonic() + _SCRUB_SECONDS
        try:
            if not self._scrubbed:
                disk.forget_pages(connection)
            rows = disk.scan_rows(connection, self._scrubbed, _SCRUB_ROWS)
        except sqlite3.Error as error:
            self._scrubbed = 0
            self._scrub_at += _SCRUB_ROUND_SECONDS
            if disk.is_damage_error(error):
                self._damage = f"{self._path} is damaged: {error}"
            _log.error("%s cannot be verified: %s", self._path, error)
            return
        for row in rows:
            if not is_intact(row):
                self._post(self._corrupt, row)
        if len(rows) < _SCRUB_ROWS:
            self._scrubbed = 0
            self._scrub_at += _SCRUB_ROUND_SECONDS
        else:
            self._scrubbed = rows[-1].revision

    def _take(self) -> tuple[list[StoreWrite], list[int], int] | None:
        """The next work; None at the end. Each batch includes some garbage, a little more than the
        batch can create, so that neither waits for the other and the file does not grow.
        """
        with self._lock:
            batch: list[StoreWrite] = []
            if not self._broken:
                batch, self._pending = self._pending[:_BATCH], self._pending[_BATCH:]
                if not self._pending:
                    self._waiting_since = 0.0
                if not batch and self._closing:
                    return None
            garbage: list[int] = []
            if self._garbage and not self._garbage_held and not self._closing:
                garbage = [
                    self._garbage.popleft()
                    for _ in range(min(len(self._garbage), len(batch) + _GARBAGE))
                ]
            self._idle = not batch and not garbage and not self._jobs
            return batch, garbage, self._compacted

    def _on_failure(self, batch: list[StoreWrite], garbage: list[int], error: Exception) -> None:
        self._problem = self._explained(error)
        with self._lock:
            self._garbage.extendleft(reversed(garbage))
            self._garbage_held = bool(self._garbage)
            self._broken = bool(batch)
        if batch:
            self._post(
                self._report_failure,
                batch,
                disk.disk_failure(f"cannot write {self._path}", error, self._path),
            )
        else:
            _log.warning("old rows of %s could not be removed: %s", self._path, error)

    def _post(self, function: Callable[..., object], *args: Any) -> bool:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            return False  # the loop is closed, with all tasks that could wait for a result
        return True


def _row(write: StoreWrite, sealing: Sealing, writer: LedgerWriter) -> StoredRow:
    event = write.event
    record = event.record
    if record is None:
        return writer.add(event.revision, event.key, 0, None, None)
    value = sealing.to_disk(event.key, record.value)
    return writer.add(event.revision, event.key, record.create_revision, record.expires, value)


def _size(write: StoreWrite) -> int:
    return 0 if write.event.record is None else len(write.event.record.value)


def _set_result(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class SqliteStore(CoreStore):
    def __init__(
        self,
        path: Path,
        clock: Clock | None = None,
        *,
        sealing: Sealing = NOTHING,
        check: CheckValue | None = None,
        before_upgrade: BeforeUpgrade | None = None,
        **bounds: Any,
    ) -> None:
        """`sealing`: which values are encrypted on disk; `check`: which values are valid;
        `before_upgrade` receives the contents of a file of an older format before it is changed;
        `bounds`: how much history is kept, as in `CoreStore`.
        """
        super().__init__(
            _SqliteLog(path, sealing, check, before_upgrade), clock or RealClock(), **bounds
        )
