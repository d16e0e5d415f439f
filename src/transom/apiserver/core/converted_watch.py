"""Watches of custom resources with a conversion webhook: converts events in order before they are
sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from transom.apiserver.core.converted_lists import is_selected
from transom.apiserver.core.resources import Resource
from transom.apiserver.core.watch_types import (
    Buffer,
    EventCursor,
    Sink,
    WatchEncoder,
    WatchStep,
)
from transom.machinery import errors
from transom.machinery.errors import ApiError
from transom.machinery.field_selectors import FieldSelector
from transom.machinery.objects import Object
from transom.store.api import RevisionCompacted, StoreRecord

_BATCH = 100
_BOOKMARK = "BOOKMARK"


class ConvertedWatch:
    """A form and sink between the hub and a watcher. It reads records from its cursor in batches,
    converts them, and passes the events of the real form on when the client has read the previous
    ones.
    """

    headed = False
    batch = _BATCH
    slow_from: int | None = None  # records are encoded when they are converted

    def __init__(
        self, res: Resource, form: WatchEncoder, sink: Sink, fields: FieldSelector | None
    ) -> None:
        self.key: object = self  # not shared with other watchers
        self._res = res
        self._form = form
        self._sink = sink
        self._first = form.headed
        self._task: asyncio.Task[None] | None = None
        self._over = False
        content = fields.of_content() if fields is not None else None
        self._fields = None if content is None or content.empty else content

    # ---- the form the hub sees ----

    def event(self, kind: str, record: StoreRecord, first: bool = False) -> tuple[str, Any]:
        return kind, record

    def large(self, kind: str, record: StoreRecord) -> Sequence[Buffer] | None:
        return None

    def bookmark(self, revision: int, initial: bool) -> list[tuple[str, Any]]:
        return [(_BOOKMARK, (revision, initial))]

    def error(self, status: Object) -> Any:
        return self._form.error(status)

    def join(self, parts: list[Any]) -> list[Any]:
        return parts

    # ---- the sink the hub sees ----

    def send(self, payload: list[Any]) -> bool:
        """Only bookmarks need no conversion; everything else is read through the cursor."""
        if len(payload) == 1 and payload[0][0] == _BOOKMARK and not self._converting:
            self._sink.push(self._form.bookmark(*payload[0][1]))
            return True
        return False

    def follow(self, cursor: EventCursor) -> None:
        self._task = asyncio.ensure_future(self._run(cursor))

    def push(self, payload: Any) -> None:
        self._sink.push(payload)

    async def drained(self) -> None:
        await self._sink.drained()

    def end(self) -> None:
        self._over = True
        if not self._converting:
            self._sink.end()

    @property
    def _converting(self) -> bool:
        return self._task is not None and not self._task.done()

    def cancel(self) -> None:
        """The watch has ended; pending conversions are discarded."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _run(self, cursor: EventCursor) -> None:
        try:
            while (batch := cursor.take(_BATCH)) is not None:
                await self._deliver(batch)
                await self._sink.drained()
        except RevisionCompacted as gone:
            expired = errors.expired(
                f"too old resource version: {cursor.revision} ({gone.revision})"
            )
            self._fail(expired)
        except ApiError as problem:
            self._fail(problem)
        except asyncio.CancelledError:
            if self._over:
                self._sink.end()
            raise

    def _fail(self, problem: ApiError) -> None:
        self._sink.push(self._form.error(problem.status()))
        self._sink.end()

    async def _deliver(self, batch: list[WatchStep]) -> None:
        records = [step.item for step in batch if step.kind != _BOOKMARK]
        converted = iter(await self._convert(records))
        previous = iter(await self._convert_previous(batch))
        for step in batch:
            if step.kind == _BOOKMARK:
                self._sink.push(self._form.bookmark(*step.item))
                continue
            record = next(converted)
            before = next(previous) if self._fields is not None and step.previous else None
            kind = self._change(step.kind, record, before)
            if kind is not None:
                self._sink.push(self._form.join([self._form.event(kind, record, self._first)]))
                self._first = False
        await asyncio.sleep(0)

    async def _convert(self, records: list[StoreRecord]) -> list[StoreRecord]:
        assert self._res.ops.converter is not None
        return await self._res.ops.converter.records(records, self._res.version)

    async def _convert_previous(self, batch: list[WatchStep]) -> list[StoreRecord]:
        if self._fields is None:
            return []
        return await self._convert([step.previous for step in batch if step.previous is not None])

    def _change(self, kind: str, record: StoreRecord, before: StoreRecord | None) -> str | None:
        """The type of the event for the selected objects; None: the object is not one of them."""
        if self._fields is None:
            return kind
        now = is_selected(self._res, self._fields, record)
        if before is None:
            return kind if now else None
        was = is_selected(self._res, self._fields, before)
        if now:
            return kind if was else "ADDED"
        return "DELETED" if was else None
