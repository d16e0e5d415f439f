"""Corrupt records: finds values that do not decode, quarantines them, and reports the quarantine.

The store detects changes on disk. A value that is intact there but is not the object of its key was
written by an old release or a bug; this module finds it, in the background and when a request fails
on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import orjson

from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import Resource, ResourceRegistry
from transom.kit.clock import Clock
from transom.kit.prometheus import Family, Kind, Sample
from transom.machinery import errors
from transom.machinery.errors import ApiError
from transom.store.api import (
    KeyQuarantined,
    OutOfSpace,
    PreconditionFailed,
    StoreError,
    StoreRecord,
    StoreUnavailable,
)

log = logging.getLogger("transom.apiserver")

# The API servers' own bucket: which of them run. Its values have no name, as in Kubernetes.
MASTER_LEASES = "masterleases"
_AT_START = 500  # records of a bucket that are checked before they are first read
_SLICE, _PAUSE = 32, 0.1  # of the background check
_LARGE = 64 * 1024  # bytes of a record that other tasks do not wait for
_SCAN_PAUSE = 5.0  # between two searches caused by failed requests
_MOST_EVENTS = 100


def check_value(key: str, revision: int, value: bytes) -> str:
    """The problem with a stored object; empty if it is valid."""
    try:
        obj = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        return f"the value is not JSON: {error}"
    meta = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(meta, dict):
        return "the value is not an object with metadata"
    bucket, *middle, name = key.split("/")
    if bucket == MASTER_LEASES:
        return ""
    if meta.get("name") != name or meta.get("namespace", "") != "/".join(middle):
        return "the value is that of another object"
    if meta.get("resourceVersion") != str(revision):
        return f"the value is that of revision {meta.get('resourceVersion')}"
    return ""


def placeholder_object(record: StoreRecord) -> bytes:
    """The object that watchers see when it is quarantined."""
    _, *middle, name = record.key.split("/")
    meta = {"name": name, "resourceVersion": str(record.mod_revision)}
    if middle:
        meta["namespace"] = "/".join(middle)
    return orjson.dumps({"metadata": meta})


def store_failure(problem: StoreError) -> ApiError:
    """The error for a failed write. As with etcd, a full disk has a well-known message; the client
    may retry.
    """
    if isinstance(problem, OutOfSpace):
        text = f"etcdserver: mvcc: database space exceeded: {problem}"
        return ApiError(500, "InternalError", text, {"retryAfterSeconds": 1}, {"Retry-After": "1"})
    if isinstance(problem, StoreUnavailable):  # etcd's own message, as Kubernetes shows it
        return ApiError(500, "", str(problem))
    return errors.internal(str(problem))


class Integrity:
    def __init__(self, objects: ObjectStore, resources: ResourceRegistry, clock: Clock) -> None:
        self._objects = objects
        self._resources = resources
        self._clock = clock
        self._store = objects.store
        self._report: Callable[[KeyQuarantined], None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._next_scan = 0.0
        self.corrupt = 0  # found since start-up

    # ---- life ----

    async def check_first(self) -> None:
        """Checks the buckets that other components read first. Large ones are checked in the
        background.
        """
        self._store.on_quarantine(self._found)
        for kind in self._resources.kinds():
            if kind.stored:
                bucket = f"{kind.plural}.{kind.group}/" if kind.group else f"{kind.plural}/"
                await self._check(self._store.list(bucket, limit=_AT_START).records)

    def start(self, report: Callable[[KeyQuarantined], None]) -> None:
        """Checks the rest in the background. `report` receives the current and future quarantined
        records.
        """
        self._report = report
        self._task = asyncio.create_task(self._check_rest(), name="integrity")
        known = self._store.quarantined()
        self.corrupt = max(self.corrupt, len(known))
        for one in known[-_MOST_EVENTS:]:
            report(one)

    async def stop(self) -> None:
        self._report = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # ---- finding ----

    async def _check_rest(self) -> None:
        whole = self._store.snapshot()
        for start in range(0, whole.count, _SLICE):
            await self._check(whole.records(start, _SLICE))
            await asyncio.sleep(_PAUSE)

    async def scan_for_corruption(self, res: Resource, namespace: str) -> int:
        """Quarantines records that do not decode, after a request failed on one; returns their
        number.
        """
        now = self._clock.monotonic()
        if now < self._next_scan:
            return 0
        self._next_scan = now + _SCAN_PAUSE
        found = 0
        records = self._store.list(res.key_prefix(namespace)).records
        for start in range(0, len(records), _SLICE):
            found += await self._check(records[start : start + _SLICE], res)
            await asyncio.sleep(0)
        if found:
            self._next_scan = 0.0
        return found

    async def _check(self, records: Sequence[StoreRecord], res: Resource | None = None) -> int:
        found = 0
        for record in records:
            if len(record.value) > _LARGE:
                await asyncio.sleep(0)
            problem = check_value(
                record.key, record.mod_revision, record.value
            ) or self._undecodable(res, record)
            if not problem:
                continue
            current = self._store.latest(record.key)
            if current is None or current.mod_revision != record.mod_revision:
                continue
            try:
                await self._store.quarantine(record.key, problem, placeholder_object(record))
                found += 1
            except (PreconditionFailed, StoreError) as error:
                log.warning("%s cannot be quarantined: %s", record.key, error)
        return found

    def _undecodable(self, res: Resource | None, record: StoreRecord) -> str:
        if res is None:
            return ""
        try:
            self._objects.decode(res, record)
        except Exception as error:  # whatever error a malformed object causes in a decoder
            return f"the value cannot be decoded: {type(error).__name__}: {error}"
        return ""

    # ---- reporting ----

    def _found(self, one: KeyQuarantined) -> None:
        self.corrupt += 1
        if self._report is not None:
            self._report(one)

    def collect_metrics(self) -> list[Family]:
        health = self._store.health()
        rows: tuple[tuple[str, Kind, str, float], ...] = (
            (
                "transom_store_corrupt_records_total",
                "counter",
                "Corrupt records found since the server started, and those "
                "in quarantine at that time.",
                self.corrupt,
            ),
            (
                "transom_store_quarantined_records",
                "gauge",
                "Records in quarantine.",
                len(self._store.quarantined()),
            ),
            (
                "transom_store_healthy",
                "gauge",
                "Whether the last write became durable and the data on disk is readable.",
                0 if health.problem or health.damage else 1,
            ),
            (
                "transom_store_last_commit_timestamp_seconds",
                "gauge",
                "When a write last became durable.",
                health.last_commit,
            ),
        )
        return [
            Family(name, kind, f"[STABLE] {text}", [Sample((), value)])
            for name, kind, text, value in rows
        ]
