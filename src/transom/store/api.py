"""The interface of the revisioned key-value store.

Keys are text of the form `bucket/rest`, values are bytes. Each write increments one counter, the
revision. Visible writes are durable: `get`, `list` and `watch` show a write when it is on disk, and
its future resolves then. Only `latest`, the base of optimistic checks, also shows accepted writes
that are not durable yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from transom.kit.named_tuple import NamedTuple
from transom.store.record import StoreRecord as StoreRecord
from transom.store.recordset import RecordSet


class StoreEvent:
    """One change. `record` is None when the key was deleted, `previous` is None when it did not
    exist. `cache` is for readers: bytes encoded once for all watchers.
    """

    __slots__ = ("cache", "key", "previous", "record", "revision")

    def __init__(
        self, revision: int, key: str, record: StoreRecord | None, previous: StoreRecord | None
    ) -> None:
        self.revision = revision
        self.key = key
        self.record = record
        self.previous = previous
        self.cache: dict[Any, Any] | None = None

    def __repr__(self) -> str:
        return f"Event({self.revision}, {self.key!r}, {self.record!r}, {self.previous!r})"


class StoreError(Exception):
    """The operation failed: the file is damaged or in use, the disk fails, or the store is closed."""


class OutOfSpace(StoreError):
    """The disk is full."""


class ReadOnlyDisk(StoreError):
    """The disk, the folder or the file cannot be written to."""


class StoreUnavailable(StoreError):
    """A store that is a separate server does not answer, or refuses. The message is its own. A write
    may have been committed nevertheless.
    """


class DamagedStore(StoreError):
    """The data is damaged and cannot be recovered. Restore a snapshot."""


class AlsoPut(NamedTuple):
    """Another key that is written in the transaction of a write, if it still has this revision."""

    key: str
    encode: Callable[[int], bytes]
    expected: int


class KeyQuarantined(NamedTuple):
    """A corrupt record in quarantine. `key` is empty if it is unknown."""

    key: str
    revision: int
    reason: str
    found: float  # Unix time


class StoreHealth(NamedTuple):
    problem: str = ""  # why writes fail or hang; empty while they work
    damage: str = (
        ""  # what is wrong with the data on disk as a whole; a restart recovers what is recoverable
    )
    last_commit: float = 0.0  # Unix time of the last write that became durable, 0 if there was none


class PreconditionFailed(Exception):
    """`current` is the actual record."""

    def __init__(self, current: StoreRecord | None) -> None:
        super().__init__(f"expected another revision than {current.mod_revision if current else 0}")
        self.current = current


class RevisionCompacted(Exception):
    """The requested history is compacted; `revision` is the oldest one available."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"compacted up to revision {revision}")
        self.revision = revision


class FutureRevision(Exception):
    """The requested revision does not exist yet; `current` is the newest."""

    def __init__(self, current: int) -> None:
        super().__init__(f"the newest revision is {current}")
        self.current = current


class RecordPage(NamedTuple):
    """`remaining` is the number of records after this page."""

    records: list[StoreRecord]
    revision: int
    more: bool
    remaining: int


class StoreSnapshot(Protocol):
    """The state of a store at one revision. It is immutable."""

    @property
    def revision(self) -> int: ...

    @property
    def count(self) -> int: ...

    def records(self, start: int, limit: int) -> Sequence[StoreRecord]:
        """Records in the order of the snapshot, starting with number `start`."""


class Subscription(Protocol):
    def cancel(self) -> None:
        """No event is delivered after this returns."""


class Store(Protocol):
    @property
    def follows(self) -> bool:
        """Whether other processes write to the same data. Then what is read here may be behind what
        they wrote (`sync`), the revision of a write is not known before it is committed, and its
        check may fail only then: the future raises PreconditionFailed.
        """

    async def sync(self) -> None:
        """Waits until reads show everything that was committed before this call. Only needed if the
        store follows others; raises StoreUnavailable.
        """

    def on_reset(self, notify: Callable[[], None]) -> None:
        """Calls `notify` before the store jumps to another state, because the history between was
        lost. Watchers get the changes in one batch; `compacted` is the new revision.
        """

    @property
    def revision(self) -> int:
        """The newest visible revision. An empty store is at 1."""

    @property
    def compacted(self) -> int:
        """Events up to and including this revision are gone; it is the oldest one that can still be
        read or watched from.
        """

    def get(self, key: str, revision: int = 0) -> StoreRecord | None:
        """The current record of the key, or the one at a past revision (RevisionCompacted,
        FutureRevision).
        """

    def latest(self, key: str) -> StoreRecord | None:
        """The record including accepted writes that are not durable yet; the base of a
        read-modify-write.
        """

    def list(
        self, prefix: str, *, after: str = "", limit: int = 0, revision: int = 0
    ) -> RecordPage:
        """Records by key. `after` is an exclusive start; `revision` 0 means the current state, any
        other the state at that past revision (RevisionCompacted, FutureRevision).
        """

    async def list_past(
        self, prefix: str, *, after: str = "", limit: int = 0, revision: int
    ) -> RecordPage:
        """Like `list`, at a revision that is no longer in memory but may still be elsewhere
        (RevisionCompacted).
        """

    def count(self, prefix: str) -> int: ...

    def records(self, prefix: str) -> RecordSet:
        """All current records of a prefix that starts with a bucket name: like `list`, in an
        immutable form that readers share.
        """

    def events(self, prefix: str, since: int, limit: int) -> tuple[Sequence[StoreEvent], int]:
        """The events after revision `since` among the next `limit` events of the bucket, and the
        revision up to which they go (RevisionCompacted). For readers that follow the history at
        their own pace.
        """

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
        """Writes a key. The check of `expected` (0: must not exist, N: its `mod_revision`, None: no
        check) and the choice of the revision are atomic; the future resolves when the write is
        durable and visible. The write happens even if the future is cancelled. `ttl` is in seconds;
        without it the key does not expire, even if it did before. `cache` is the initial cache of
        the record, for watchers.

        A store of one process checks against `latest`, raises PreconditionFailed before this
        returns, and passes the revision to `encode`. A store that follows others checks when it
        commits, passes 0 to `encode`, which then leaves the revision out, and calls `stamp` with
        the revision before the future resolves and readers see `cache`. Writes with the same `lock` exclude each other
        there: the write fails if another one was committed that is not visible here yet. `also` is
        for a store that follows others: the same transaction writes these keys, or fails.
        """

    def delete(
        self, key: str, *, expected: int | None = None
    ) -> asyncio.Future[tuple[StoreRecord, int]]:
        """Deletes a key; returns the deleted record and the revision of the deletion.
        PreconditionFailed(None) if it does not exist.
        """

    def watch(
        self, prefix: str, since: int, on_events: Callable[[Sequence[StoreEvent]], None]
    ) -> Subscription:
        """Delivers every change of keys with this prefix after revision `since`: past events inside
        this call, later ones in batches as they are committed, without a gap or a duplicate
        (RevisionCompacted).
        """

    def compact(self, revision: int) -> None:
        """Removes the history up to this revision."""

    def snapshot(self) -> StoreSnapshot:
        """The state at the newest visible revision."""

    def quarantine(
        self, key: str, reason: str, placeholder: bytes
    ) -> asyncio.Future[tuple[StoreRecord, int]]:
        """Deletes a key whose value is invalid, and keeps the value in quarantine. Watchers see the
        deletion of a record with the value `placeholder`.
        """

    def quarantined(self) -> Sequence[KeyQuarantined]:
        """The records in quarantine."""

    def on_quarantine(self, notify: Callable[[KeyQuarantined], None]) -> None:
        """Calls `notify` for each record that is quarantined from now on."""

    def clear_quarantine(self) -> None:
        """Removes all records from quarantine."""

    def health(self) -> StoreHealth: ...

    async def start(self) -> None: ...

    async def close(self) -> None:
        """Finishes accepted writes, then stops."""
