"""The store seam: a revisioned key-value store, in one interface.

Keys are text of the form `bucket/rest`, values are bytes. Each write takes the next number of one counter, the
revision. What is visible is durable: `get`, `list` and `watch` show a write when it is on disk, and its future resolves
then. Only `latest`, on which optimistic checks run, already shows writes that were accepted and are on their way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol


class Record:
    """One version of a key. Shared by the current state, the history and all readers: nobody changes it, except that a
    reader may keep its decoded form in `cache`."""

    __slots__ = ("cache", "create_revision", "expires", "key", "mod_revision", "value")

    def __init__(
        self, key: str, value: bytes, create_revision: int, mod_revision: int, expires: float | None = None,
        cache: Any = None,
    ) -> None:
        self.key = key
        self.value = value
        self.create_revision = create_revision
        self.mod_revision = mod_revision
        self.expires = expires
        self.cache = cache

    def __repr__(self) -> str:
        return f"Record({self.key!r}, {len(self.value)} bytes, {self.create_revision}, {self.mod_revision})"


class Event:
    """One change. `record` is None when the key was deleted, `previous` is None when it did not exist. `cache` is for
    readers: bytes framed once for all watchers."""

    __slots__ = ("cache", "key", "previous", "record", "revision")

    def __init__(self, revision: int, key: str, record: Record | None, previous: Record | None) -> None:
        self.revision = revision
        self.key = key
        self.record = record
        self.previous = previous
        self.cache: dict[Any, Any] | None = None

    def __repr__(self) -> str:
        return f"Event({self.revision}, {self.key!r}, {self.record!r}, {self.previous!r})"


class StoreError(Exception):
    """The store could not do it: the disk is full, the file is damaged or in use, the store is closed."""


class PreconditionFailed(Exception):
    """`current` is what is there instead of what the caller expected."""

    def __init__(self, current: Record | None) -> None:
        super().__init__(f"expected another revision than {current.mod_revision if current else 0}")
        self.current = current


class Compacted(Exception):
    """The history asked for is gone; `revision` is the oldest one that may still be asked for."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"compacted up to revision {revision}")
        self.revision = revision


class FutureRevision(Exception):
    """The revision asked for does not exist yet; `current` is the newest."""

    def __init__(self, current: int) -> None:
        super().__init__(f"the newest revision is {current}")
        self.current = current


class Page(NamedTuple):
    """`remaining` is how many records there are beyond this page."""

    records: list[Record]
    revision: int
    more: bool
    remaining: int


class Subscription(Protocol):
    def cancel(self) -> None:
        """No event is delivered after this returns."""


class Store(Protocol):
    @property
    def revision(self) -> int:
        """The newest visible revision. An empty store is at 1."""

    @property
    def compacted(self) -> int:
        """Events up to and including this revision are gone; this one is the oldest that may still be read or watched
        from."""

    def get(self, key: str, revision: int = 0) -> Record | None:
        """The key as it is now, or as it was at a past revision (Compacted, FutureRevision)."""

    def latest(self, key: str) -> Record | None:
        """The key including writes that were accepted but are not durable yet; the base of a read-modify-write."""

    def list(self, prefix: str, *, after: str = "", limit: int = 0, revision: int = 0) -> Page:
        """Records by key. `after` is an exclusive start; `revision` 0 means now, else the state at that past revision
        (Compacted, FutureRevision)."""

    def count(self, prefix: str) -> int: ...

    def put(
        self, key: str, encode: Callable[[int], bytes], *, expected: int | None = None, ttl: float | None = None,
        cache: Any = None,
    ) -> asyncio.Future[Record]:
        """Write a key. The check of `expected` (0: must not exist, N: its `mod_revision`, None: no check) against
        `latest` and the choice of the revision, which `encode` gets, happen at once; the future resolves when the write
        is durable. The write happens even if the future is cancelled. `ttl` is seconds to live; without it the key
        stays, also if it had one before. `cache` is the record's from the first, for those who watch."""

    def delete(self, key: str, *, expected: int | None = None) -> asyncio.Future[tuple[Record, int]]:
        """Delete a key; gives the deleted record and the revision of its deletion. PreconditionFailed(None) if it does
        not exist."""

    def watch(self, prefix: str, since: int, on_events: Callable[[Sequence[Event]], None]) -> Subscription:
        """Everything that happens to keys with this prefix after revision `since`: what already happened is delivered
        inside this call, the rest batch by batch as it is committed, without a gap or a duplicate (Compacted)."""

    def compact(self, revision: int) -> None:
        """Forget the history up to this revision."""

    async def start(self) -> None: ...

    async def close(self) -> None:
        """Finish what was accepted, then stop."""
