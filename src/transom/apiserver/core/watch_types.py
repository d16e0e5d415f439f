"""The interfaces between the watch hub and watchers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object
from transom.store.api import StoreRecord

Buffer = bytes | memoryview


class WatchStep(NamedTuple):
    """An event before its encoding."""

    kind: str
    item: Any  # a record; of a bookmark: its revision, and whether it ends the initial events
    previous: StoreRecord | None = None  # of a changed object


class EventCursor(Protocol):
    """The position of a watcher that does not get events as they happen."""

    revision: int

    def read(self, size: int) -> Sequence[Buffer] | asyncio.Future[Any] | None: ...
    def take(self, limit: int) -> list[WatchStep] | None: ...


class Sink(Protocol):
    """The destination of events: a chunked HTTP response, or an in-process client."""

    def send(
        self, payload: Any
    ) -> bool: ...  # False: the client is too slow, and has not received it
    def follow(
        self, cursor: EventCursor
    ) -> None: ...  # read everything from the cursor until it has caught up
    def push(
        self, payload: Any
    ) -> None: ...  # without a cursor: the sender waits until the client has `drained` it
    async def drained(self) -> None: ...
    def end(self) -> None: ...


class WatchEncoder(Protocol):
    """The representation of events for a watcher: JSON of a version, a Table, a dict."""

    key: object  # watchers with equal keys can share bytes
    headed: bool  # the first event of each watcher is different
    batch: int  # the number of events that may be encoded without yielding
    slow_from: int | None  # more bytes of objects take long to encode; None: they never do

    def event(self, kind: str, record: StoreRecord, first: bool = False) -> Any: ...
    def large(
        self, kind: str, record: StoreRecord
    ) -> Sequence[Buffer] | None: ...  # an encoding that avoids copying
    def bookmark(self, revision: int, initial: bool) -> Any: ...
    def error(self, status: Object) -> Any: ...
    def join(self, parts: list[Any]) -> Any: ...
