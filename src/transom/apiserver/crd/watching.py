"""Watches of custom resources that a webhook converts: events wait for their conversion, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transom.apiserver.resources import Resource
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.store.api import Record

if TYPE_CHECKING:
    from transom.apiserver.watch import Form, Sink

_BATCH = 500
_BOOKMARK, _END = "BOOKMARK", "END"


class ConvertedWatch:
    """Stands between the hub and a watcher, as form and as sink: takes records, hands on what the real form makes of
    them once they are converted."""

    def __init__(self, res: Resource, form: Form, sink: Sink) -> None:
        self.key: object = self  # shares nothing with others
        self._res = res
        self._form = form
        self._sink = sink
        self._waiting: deque[tuple[str, Any]] = deque()
        self._task: asyncio.Task[None] | None = None

    # ---- the form the hub sees -----------------------------------------------------------------------------------

    def event(self, kind: str, record: Record) -> tuple[str, Any]:
        return kind, record

    def bookmark(self, revision: int, initial: bool) -> list[tuple[str, Any]]:
        return [(_BOOKMARK, (revision, initial))]

    def error(self, status: Object) -> Any:
        return self._form.error(status)

    def join(self, parts: list[Any]) -> list[Any]:
        return parts

    # ---- the sink the hub sees -----------------------------------------------------------------------------------

    def first(self, parts: list[Any]) -> None:
        self._push(parts)

    def send(self, payload: list[Any]) -> None:
        self._push(payload)

    def end(self) -> None:
        self._push([(_END, None)])

    def cancel(self) -> None:
        """Nobody listens any more."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    def _push(self, parts: Sequence[tuple[str, Any]]) -> None:
        self._waiting.extend(parts)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
                await self._deliver(batch)
        except ApiError as problem:
            self._sink.send(self._form.error(problem.status()))
            self._sink.end()
            self._waiting.clear()

    async def _deliver(self, batch: list[tuple[str, Any]]) -> None:
        records = [item for kind, item in batch if kind not in (_BOOKMARK, _END)]
        assert self._res.ops.converter is not None
        converted = iter(await self._res.ops.converter.records(records, self._res.version))
        for kind, item in batch:
            if kind == _END:
                self._sink.end()
            elif kind == _BOOKMARK:
                self._sink.send(self._form.bookmark(*item))
            else:
                self._sink.send(self._form.join([self._form.event(kind, next(converted))]))
