"""A store for tests: it loses everything on close, and a write becomes visible in the next loop
iteration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from transom.kit.clock import Clock, RealClock
from transom.store.api import KeyQuarantined, StoreHealth, StoreRecord
from transom.store.core import CoreStore, StoreWrite
from transom.store.mvcc import MvccState
from transom.store.recover import QuarantineRow
from transom.store.rows import StoredRow


class _MemoryLog:
    def __init__(self) -> None:
        self._pending: list[StoreWrite] = []

    async def open(
        self,
        state: MvccState,
        committed: Callable[[Sequence[StoreWrite]], None],
        failed: Callable[[Sequence[StoreWrite], Exception], None],
        corrupt: Callable[[StoredRow], None],
    ) -> tuple[Sequence[KeyQuarantined], Sequence[KeyQuarantined]]:
        self._loop = asyncio.get_running_loop()
        self._committed = committed
        return (), ()

    def append(self, write: StoreWrite) -> None:
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(write)

    def _flush(self) -> None:
        if self._pending:
            batch, self._pending = self._pending, []
            self._committed(batch)

    def discard(self, revisions: Sequence[int], compacted: int) -> None:
        """Nothing is stored elsewhere."""

    def repair(self, row: StoredRow, record: StoreRecord, note: QuarantineRow) -> None:
        """Nothing is stored elsewhere."""

    def clear_quarantine(self) -> None:
        """The core removes it."""

    def health(self) -> StoreHealth:
        return StoreHealth()

    async def close(self) -> None:
        self._flush()


class MemoryStore(CoreStore):
    def __init__(self, clock: Clock | None = None, **bounds: Any) -> None:
        super().__init__(_MemoryLog(), clock or RealClock(), **bounds)
