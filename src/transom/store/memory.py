"""A store for tests: it forgets everything at the end, and a write becomes visible at the next turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from transom.kit.clock import Clock, RealClock
from transom.store.core import CoreStore, Write
from transom.store.mvcc import State


class _MemoryLog:
    def __init__(self) -> None:
        self._pending: list[Write] = []

    async def open(
        self,
        state: State,
        committed: Callable[[Sequence[Write]], None],
        failed: Callable[[Sequence[Write], Exception], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._committed = committed

    def append(self, write: Write) -> None:
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(write)

    def _flush(self) -> None:
        if self._pending:
            batch, self._pending = self._pending, []
            self._committed(batch)

    def discard(self, revisions: Sequence[int], compacted: int) -> None:
        """Nothing lies anywhere else."""

    async def close(self) -> None:
        self._flush()


class MemoryStore(CoreStore):
    def __init__(self, clock: Clock | None = None, **bounds: Any) -> None:
        super().__init__(_MemoryLog(), clock or RealClock(), **bounds)
