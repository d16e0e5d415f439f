"""The store on an etcd cluster that other servers use too.

Reads are served from a copy in memory, the same `MvccState` as that of the other engines, which
follows etcd by a watch of the whole prefix. A write is a transaction that compares the revision of
the key; its future resolves when the copy shows it. `sync` waits until the copy has everything that
was committed before, for reads that must not be stale.

Knows nothing of Kubernetes: an `EtcdLayout` maps keys and values.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from transom.kit.clock import Clock, RealClock
from transom.kit.rpc import RpcError
from transom.kit.task_set import TaskSet
from transom.store.api import (
    AlsoPut,
    KeyQuarantined,
    PreconditionFailed,
    RecordPage,
    RevisionCompacted,
    StoreError,
    StoreEvent,
    StoreHealth,
    StoreRecord,
    StoreUnavailable,
)
from transom.store.core import CoreSnapshot
from transom.store.etcd import wire
from transom.store.etcd.client import EtcdClient, has_reliable_progress
from transom.store.etcd.compaction import EtcdCompactor
from transom.store.etcd.health import EtcdHealthProbe
from transom.store.etcd.history import (
    CopyHistory,
    find_create,
    find_deleted,
    find_written,
    make_written,
)
from transom.store.etcd.layout import (
    FENCES,
    LOCKS,
    MARKER,
    OWN,
    QUARANTINE,
    EtcdLayout,
    PlainLayout,
)
from transom.store.etcd.leases import EtcdLeases, is_lost_lease
from transom.store.etcd.quarantine import QuarantinedKeys
from transom.store.etcd.resealing import StaleValues
from transom.store.etcd.submit import EtcdSubmitter
from transom.store.etcd.waiters import RevisionWaiters, etcd_error_text, fail_waiters, wait_bounded
from transom.store.mvcc import MvccState, Row
from transom.store.sealing import NOTHING, Sealing

_log = logging.getLogger(__name__)

_BACK_OFF = (0.05, 1.0)  # seconds before the watch is opened again: the first time, at most
_MARK_AFTER = 0.02  # seconds that a reader waits for events before the marker is written
_START_SECONDS = 10.0  # how long `start` waits for a cluster that is not reachable


class EtcdStore:
    follows = True

    def __init__(
        self,
        client: EtcdClient,
        prefix: str = "/registry",
        layout: EtcdLayout | None = None,
        sealing: Sealing = NOTHING,
        clock: Clock | None = None,
        *,
        history_seconds: float = 300.0,
        history_events: int = 100_000,
        history_bytes: int = 128 << 20,
        compact_interval: float = 60.0,
    ) -> None:
        """History is kept in memory for `history_seconds`, unless one of the bounds is reached
        first. etcd itself is compacted every five minutes.
        """
        self._client = client
        self._prefix = prefix.rstrip("/") + "/"
        self._layout = layout or PlainLayout()
        self._sealing = sealing
        self._clock = clock or RealClock()
        self._state = MvccState(max_events=history_events, max_bytes=history_bytes)
        self._leases = EtcdLeases(client, self._clock)
        self._compactor = EtcdCompactor(client, self._clock)
        self._history = CopyHistory(self._state, self._clock, history_seconds, compact_interval)
        self._nudge_timer: asyncio.TimerHandle | None = None
        self._tasks = TaskSet()
        self._writing: dict[str, asyncio.Future[Any]] = {}  # the newest write of a key
        self._locks: dict[str, int] = {}  # mod revisions
        self._waiting = RevisionWaiters()
        self._submitter = EtcdSubmitter(
            client, self._leases, self._etcd_key(FENCES), self._wait_for_revision
        )
        self._syncing: list[asyncio.Future[None]] = []
        self._sync_task: asyncio.Task[None] | None = None
        self._stale = False  # the copy is of another history: etcd was restored from a backup
        self._newest = (b"", 0)  # the key of the newest write, and its mod revision
        self._stream_ended: asyncio.Event | None = None
        self._progress_is_reliable = False
        self._request_progress: Callable[[], None] | None = None
        self._quarantine = QuarantinedKeys()
        self._reset_listeners: list[Callable[[], None]] = []
        self._stale_values = StaleValues(client, sealing, self._path_of)
        self._health = EtcdHealthProbe(client, self._etcd_key(MARKER))
        self._last_commit = 0.0
        self._opened = False
        self._followers: list[asyncio.Task[None]] = []
        self.get = self._state.get
        self.latest: Callable[[str], StoreRecord | None] = self._state.get
        self.list = self._state.list
        self.count = self._state.count
        self.records = self._state.records
        self.events = self._state.events
        self.watch = self._state.watch

    # Lifecycle

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _START_SECONDS
        while True:
            try:
                await self._load()
                break
            except StoreError:
                await self._client.close()
                raise
            except RpcError as problem:
                if problem.code not in ("Unavailable", "DeadlineExceeded") or (
                    loop.time() > deadline
                ):
                    await self._client.close()
                    raise StoreUnavailable(f"etcd: {etcd_error_text(problem)}") from problem
                _log.warning("etcd is not available, trying again: %s", problem)
                await asyncio.sleep(1.0)
        self._opened = True
        ready = asyncio.Event()
        self._followers = [
            asyncio.create_task(self._follow(ready), name="etcd-watch"),
            asyncio.create_task(self._health.run(), name="etcd-health"),
            asyncio.create_task(self._compactor.run(), name="etcd-compaction"),
        ]
        await ready.wait()
        self._history.start()
        if self._stale_values:
            await self._stale_values.write_all()
            await self.sync()

    async def close(self) -> None:
        if not self._opened:
            return
        self._opened = False
        self._submitter.close()
        self._history.stop()
        if self._nudge_timer is not None:
            self._nudge_timer.cancel()
        await self._tasks.wait()
        if self._sync_task is not None:
            self._sync_task.cancel()
        for task in self._followers:
            task.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)
        closed = StoreUnavailable("the store is closed")
        for future in (*self._waiting.take_all(), *self._syncing):
            if not future.done():
                future.set_exception(closed)
                future.exception()
        await self._client.close()

    # Reading (the state implements get, list, count, records, events and watch)

    @property
    def revision(self) -> int:
        return self._state.revision

    @property
    def compacted(self) -> int:
        return self._state.compacted

    async def list_past(
        self, prefix: str, *, after: str = "", limit: int = 0, revision: int
    ) -> RecordPage:
        """Read from etcd: another server may have a longer history, and may have listed there."""
        end = wire.prefix_end(self._etcd_key(self._layout.to_path(prefix)))
        start = self._etcd_key(self._layout.to_path(after or prefix)) + (b"\0" if after else b"")
        try:
            found = await self._client.range(
                wire.range_request(start, end, limit=limit, revision=revision)
            )
        except RpcError as problem:
            if "compacted" in problem.description:
                raise RevisionCompacted(self._state.compacted) from problem
            raise StoreUnavailable(etcd_error_text(problem)) from problem
        records = []
        for kv in found.kvs:
            key = self._key_of(kv, False)
            record = None if key is None else self._record(key, kv)
            if record is not None:
                records.append(record)
        return RecordPage(records, revision, found.more, found.total - len(found.kvs))

    async def sync(self) -> None:
        """Callers that come while a request to etcd is under way share the next one: it must be
        sent after they asked.
        """
        if not self._opened:
            raise StoreUnavailable("the store is closed")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._syncing.append(waiter)
        if self._sync_task is None:
            self._sync_task = asyncio.create_task(self._run_syncs(), name="etcd-sync")
        await wait_bounded(waiter)

    async def _run_syncs(self) -> None:
        try:
            # Let the other ready callbacks run first: their readers share this request.
            await asyncio.sleep(0)
            while self._syncing:
                waiters, self._syncing = self._syncing, []
                try:
                    revision = await self._current_revision()
                except RpcError as problem:
                    fail_waiters(waiters, problem)
                    continue
                if revision <= self._state.revision and not self._stale:
                    for waiter in waiters:
                        if not waiter.done():
                            waiter.set_result(None)
                    continue
                self._waiting.add(revision, *waiters)
                self._nudge_later()
        finally:
            self._sync_task = None

    async def _wait_for_revision(self, revision: int) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(revision, waiter)
        self._waiting.reached(self._state.revision)
        self._nudge_later()
        await wait_bounded(waiter)

    async def _current_revision(self) -> int:
        known = self._state.revision
        found = await self._client.range(
            wire.range_request(self._etcd_key(MARKER), count_only=True)
        )
        if found.revision < known:
            self._start_over()
        return found.revision

    def _start_over(self) -> None:
        """etcd's newest revision is older than ours: it was restored from a backup."""
        self._stale = True
        if self._stream_ended is not None:
            self._stream_ended.set()

    def _nudge_later(self) -> None:
        """Keys outside of the prefix advance etcd's revision too, without an event for us."""
        if self._nudge_timer is None:
            loop = asyncio.get_running_loop()
            self._nudge_timer = loop.call_later(_MARK_AFTER, self._nudge)

    def _nudge(self) -> None:
        self._nudge_timer = None
        if not self._waiting or not self._opened:
            return
        if self._progress_is_reliable and self._request_progress is not None:
            self._request_progress()
        else:
            self._tasks.start(self._write_marker())
        self._nudge_later()

    async def _write_marker(self) -> None:
        put = wire.op_put(wire.put_request(self._etcd_key(MARKER), b"{}"))
        with contextlib.suppress(RpcError):  # tried again while there are waiters
            await self._client.txn(wire.txn_request((), (put,)))

    # Writing

    def put(
        self,
        key: str,
        encode: Callable[[int], bytes],
        *,
        expected: int | None = None,
        ttl: float | None = None,
        cache: Any = None,
        stamp: Callable[[int], None] | None = None,
        lock: str = "",
        also: Sequence[AlsoPut] = (),
    ) -> asyncio.Future[StoreRecord]:
        path = self._check(key)
        stored = self._sealing.to_disk(key, self._layout.to_etcd(key, encode(0)))
        locked = self._locks.get(lock, 0)
        others = [self._with(one) for one in also]
        future: asyncio.Future[StoreRecord] = asyncio.get_running_loop().create_future()

        async def write(*, again: bool = False) -> StoreRecord:
            lease = 0 if ttl is None else await self._leases.find(ttl)
            compare = [] if expected is None else [wire.compare_mod_revision(path, expected)]
            success = [wire.op_put(wire.put_request(path, stored, lease))]
            if lock:
                guard = self._etcd_key(LOCKS + lock)
                compare.append(wire.compare_mod_revision(guard, locked))
                success.append(wire.op_put(wire.put_request(guard, b"{}")))
            for others_compare, others_put in others:
                compare.append(others_compare)
                success.append(others_put)
            previous = self._state.get(key)
            try:
                revision = await self._commit(key, path, compare, success, expected, stored)
            except RpcError as problem:
                if ttl is None or again or not is_lost_lease(problem):
                    raise
                self._leases.forget(ttl)
                return await write(again=True)
            record = find_written(self._state, key, revision)
            if record is None:
                value = self._layout.from_etcd(key, self._sealing.from_disk(key, stored), revision)
                record = make_written(key, value, expected, previous, revision)
            if stamp is not None:
                stamp(revision)
            if record.cache is None:
                record.cache = cache
            return record

        self._accept(key, future, write())
        return future

    def _with(self, other: AlsoPut) -> tuple[bytes, bytes]:
        """Comparison and operation of another key in the same transaction."""
        path = self._check(other.key)
        stored = self._sealing.to_disk(other.key, self._layout.to_etcd(other.key, other.encode(0)))
        put = wire.op_put(wire.put_request(path, stored))
        return wire.compare_mod_revision(path, other.expected), put

    def delete(
        self, key: str, *, expected: int | None = None
    ) -> asyncio.Future[tuple[StoreRecord, int]]:
        path = self._check(key)
        future: asyncio.Future[tuple[StoreRecord, int]] = asyncio.get_running_loop().create_future()

        async def write() -> tuple[StoreRecord, int]:
            found = self._state.get(key)
            if expected is None and found is None:
                raise PreconditionFailed(None)
            wanted = expected if expected is not None or found is None else found.mod_revision
            compare = [wire.compare_mod_revision(path, wanted or 0)]
            success = [wire.op_delete(wire.delete_request(path))]
            revision = await self._commit(key, path, compare, success)
            if found is None or found.mod_revision != wanted:  # the copy was behind
                found = find_deleted(self._state, key, revision)
            return found, revision

        self._accept(key, future, write())
        return future

    def _check(self, key: str) -> bytes:
        if key.find("/") < 1:
            raise ValueError(f"a key has the form bucket/rest: {key!r}")
        path = self._path_of(key)
        if not self._opened:
            raise StoreUnavailable("the store is closed")
        return path

    def _accept(
        self, key: str, future: asyncio.Future[Any], work: Coroutine[Any, Any, Any]
    ) -> None:
        """Writes of one key are committed in the order in which they were accepted. Cancelling the
        future does not cancel the work.
        """
        before = self._writing.get(key)
        self._writing[key] = future
        self._tasks.start(self._complete(key, before, future, work))

    async def _complete(
        self,
        key: str,
        before: asyncio.Future[Any] | None,
        future: asyncio.Future[Any],
        work: Coroutine[Any, Any, Any],
    ) -> None:
        try:
            if before is not None and not before.done():
                await asyncio.wait((before,))
            result = await work
        except RpcError as problem:
            fail_waiters((future,), problem)
        except Exception as problem:
            if not future.done():
                future.set_exception(problem)
        else:
            if not future.done():
                future.set_result(result)
        finally:
            if self._writing.get(key) is future:
                del self._writing[key]

    async def _commit(
        self,
        key: str,
        path: bytes,
        compare: Sequence[bytes],
        success: Sequence[bytes],
        expected: int | None = None,
        stored: bytes = b"",
    ) -> int:
        """The revision of the transaction, once the copy has reached it. A put that expects a
        revision (0: that there is no such key) may be sent again when the answer is lost.
        """
        current = wire.op_range(wire.range_request(path))
        request = wire.txn_request(compare, success, (current,))
        if expected is None or not self._client.has_several_endpoints:
            done = await self._client.txn(request)
        elif expected:
            done = await self._submitter.update(request, stored)
        else:
            since = self._state.revision
            value = partial(self._layout.from_etcd, key, self._sealing.from_disk(key, stored))
            done = await self._submitter.create(
                path, compare, success, lambda: find_create(self._state, key, value, since)
            )
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if done.revision <= self._state.revision and not self._stale:
            waiter.set_result(None)
        else:
            self._waiting.add(done.revision, waiter)
            if not done.succeeded:
                self._nudge_later()  # nothing was written: there may be no event
        await wait_bounded(waiter)
        if not done.succeeded:
            raise PreconditionFailed(self._state.get(key))
        self._last_commit = time.time()
        return done.revision

    # Following etcd

    async def _follow(self, ready: asyncio.Event) -> None:
        pause = _BACK_OFF[0]
        while True:
            try:
                if self._stale:
                    await self._load_again()
                elif ready.is_set():
                    await self._check_history()
                    if self._stale:
                        continue
                began = asyncio.get_running_loop().time()
                await self._watch_until_end(ready)
                if asyncio.get_running_loop().time() - began > _BACK_OFF[1]:
                    pause = _BACK_OFF[0]
            except RpcError as problem:
                _log.warning("the watch of etcd ended: %s", problem)
            except wire.MalformedMessage as problem:
                _log.error("etcd sent a message that cannot be read: %s", problem)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _BACK_OFF[1])

    async def _check_history(self) -> None:
        """Whether etcd still has the history that the copy follows: a restored backup does not, even
        if newer writes have brought it to the same revision again.
        """
        key, revision = self._newest
        if not key:
            await self._current_revision()
            return
        try:
            found = await self._client.range(wire.range_request(key, revision=self._state.revision))
        except RpcError as problem:
            if problem.code != "OutOfRange":  # compacted, or of the future
                raise
            self._stale = True
            return
        actual = found.kvs[0].mod_revision if found.kvs else 0
        self._stale = self._stale or actual != revision

    async def _watch_until_end(self, ready: asyncio.Event) -> None:
        ended = self._stream_ended = asyncio.Event()
        outcome: list[RpcError] = []

        def on_end(problem: RpcError) -> None:
            outcome.append(problem)
            ended.set()

        def on_batch(batch: wire.EtcdWatchBatch) -> None:
            if batch.canceled:
                self._stale = self._stale or bool(batch.compact_revision)
                on_end(RpcError("Unavailable", batch.reason or "the watch was compacted"))
            elif batch.created:
                ready.set()
            elif not ended.is_set():
                self._received(batch)

        start = self._etcd_key("")
        request = wire.watch_create_request(start, wire.prefix_end(start), self._state.revision + 1)
        stream = await self._client.watch(request, on_batch, on_end)
        self._request_progress = lambda: stream.send(wire.watch_progress_request())
        try:
            await ended.wait()
        finally:
            self._request_progress = None
            stream.cancel()
        if outcome:
            raise outcome[0]

    def _received(self, batch: wire.EtcdWatchBatch) -> None:
        if not batch.events:
            if self._progress_is_reliable:
                self._state.advance(batch.revision)
                self._waiting.reached(self._state.revision)
            return
        events: list[StoreEvent] = []
        changed: dict[str, StoreRecord | None] = {}
        for event in batch.events:
            kv = event.kv
            key = self._key_of(kv, event.deleted)
            if key is None or kv.mod_revision <= self._state.revision:
                continue
            previous = changed[key] if key in changed else self._state.get(key)
            record = None if event.deleted else self._record(key, kv)
            if record is not None or previous is not None:
                events.append(StoreEvent(kv.mod_revision, key, record, previous))
                changed[key] = record
        last = batch.events[-1]
        self._newest = (last.kv.key, 0 if last.deleted else last.kv.mod_revision)
        if events:
            self._state.apply(events)
        self._state.advance(last.kv.mod_revision)
        self._waiting.reached(self._state.revision)

    def _key_of(self, kv: wire.EtcdKeyValue, deleted: bool, former: bool = False) -> str | None:
        """The key of the store; takes note of own keys."""
        path = kv.key[len(self._prefix.encode()) :].decode("utf-8", "replace")
        if not path.startswith(OWN):
            return self._layout.from_path(path, former)
        if path.startswith(LOCKS):
            name = path[len(LOCKS) :]
            self._locks[name] = 0 if deleted else kv.mod_revision
        elif path.startswith(QUARANTINE):
            name = path[len(QUARANTINE) :]
            self._quarantine.stored(name, 0 if deleted else kv.mod_revision)
        return None

    def _record(self, key: str, kv: wire.EtcdKeyValue) -> StoreRecord | None:
        try:
            value = self._layout.from_etcd(
                key, self._sealing.from_disk(key, kv.value), kv.mod_revision
            )
        except (ValueError, StoreError) as problem:
            self._quarantine.add(KeyQuarantined(key, kv.mod_revision, str(problem), time.time()))
            return None
        return StoreRecord(key, value, kv.create_revision, kv.mod_revision)

    async def _read_all(self, former: bool = False) -> tuple[int, dict[str, wire.EtcdKeyValue]]:
        """All keys of the store at one revision; `former`: also those at former paths."""
        found: dict[str, wire.EtcdKeyValue] = {}
        self._newest = (b"", 0)
        revision, kvs = await self._client.range_all(self._etcd_key(""))
        for kv in kvs:
            key = self._key_of(kv, False, former)
            if key is not None and (key not in found or kv.key == self._path_of(key)):
                found[key] = kv
            if kv.mod_revision > self._newest[1]:
                self._newest = (kv.key, kv.mod_revision)
        return revision, found

    async def _load(self) -> None:
        self._stale_values.clear()
        self._progress_is_reliable = has_reliable_progress(await self._client.version())
        revision, found = await self._read_all(former=True)
        # The state has no readers yet, and filling it takes long.
        await asyncio.to_thread(self._fill, revision, found)

    def _fill(self, revision: int, found: dict[str, wire.EtcdKeyValue]) -> None:
        rows: list[Row] = []
        for key, kv in found.items():
            # A value that cannot be decrypted is not corrupt: the key is missing.
            self._stale_values.check(key, kv)
            record = self._record(key, kv)
            if record is not None:
                rows.append((kv.mod_revision, key, record.value, kv.create_revision, None))
        rows.sort()
        self._state.load(rows, revision)

    async def _load_again(self) -> None:
        """After a compaction or a restored backup: watches of clients end, so that they list again;
        the watchers inside of the server see what has changed.
        """
        self._locks.clear()
        revision, found = await self._read_all()
        _log.warning("read all of etcd again, at revision %d", revision)
        events: list[StoreEvent] = []
        for old in list(self._state.all_records()):
            if old.key not in found:
                events.append(StoreEvent(revision, old.key, None, old))
        for key, kv in found.items():
            previous = self._state.get(key)
            if previous is None or previous.mod_revision != kv.mod_revision:
                record = self._record(key, kv)
                if record is not None or previous is not None:
                    events.append(StoreEvent(revision, key, record, previous))
        for listener in self._reset_listeners:
            listener()
        restored = revision < self._state.revision
        self._history.clear()
        self._state.rewind(revision)
        if events:
            self._state.apply(events)
        self._stale = False
        if restored:  # whatever callers wait for was of the other history
            restored_error = RpcError("Unavailable", "etcd was restored")
            fail_waiters(self._waiting.take_all(), restored_error)
        self._waiting.reached(self._state.revision)

    def on_reset(self, notify: Callable[[], None]) -> None:
        self._reset_listeners.append(notify)

    def _path_of(self, key: str) -> bytes:
        return self._etcd_key(self._layout.to_path(key))

    def _etcd_key(self, path: str) -> bytes:
        return (self._prefix + path).encode()

    # Health

    def health(self) -> StoreHealth:
        return StoreHealth(problem=self._health.problem, last_commit=self._last_commit)

    def snapshot(self) -> CoreSnapshot:
        return CoreSnapshot(self._state.revision, list(self._state.all_records()))

    # Corrupt records

    def quarantine(
        self, key: str, reason: str, placeholder: bytes
    ) -> asyncio.Future[tuple[StoreRecord, int]]:
        """The value moves to another key of etcd. Watchers see the deletion of the record itself:
        they have already seen its value.
        """
        path = self._check(key)
        current = self._state.get(key)
        if current is None:
            raise PreconditionFailed(None)
        aside = self._etcd_key(QUARANTINE + key)
        value = self._sealing.to_disk(key, current.value)
        future: asyncio.Future[tuple[StoreRecord, int]] = asyncio.get_running_loop().create_future()

        async def write() -> tuple[StoreRecord, int]:
            compare = [wire.compare_mod_revision(path, current.mod_revision)]
            success = [
                wire.op_delete(wire.delete_request(path)),
                wire.op_put(wire.put_request(aside, value)),
            ]
            revision = await self._commit(key, path, compare, success)
            self._quarantine.add(
                KeyQuarantined(key, current.mod_revision, reason, self._clock.time())
            )
            return current, revision

        self._accept(key, future, write())
        return future

    def quarantined(self) -> Sequence[KeyQuarantined]:
        return self._quarantine.all()

    def on_quarantine(self, notify: Callable[[KeyQuarantined], None]) -> None:
        self._quarantine.on_added(notify)

    def clear_quarantine(self) -> None:
        self._quarantine.clear()
        start = self._etcd_key(QUARANTINE)
        delete = wire.op_delete(wire.delete_request(start, wire.prefix_end(start)))

        async def clear() -> None:
            try:
                await self._client.txn(wire.txn_request((), (delete,)))
            except RpcError as problem:
                _log.error("the quarantine could not be cleared: %s", problem)

        self._tasks.start(clear())

    # History

    def compact(self, revision: int) -> None:
        """Only of the copy: other servers still use the history in etcd."""
        self._history.compact(revision)
