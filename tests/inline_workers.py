"""CPU-bound work in the caller's own thread."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

T = TypeVar("T")


class InlineWorkers:
    """Runs each function immediately in the caller: for virtual time, where a thread would make the
    order of events random.
    """

    async def run(
        self, work: Callable[[], T], *, group: Hashable = None, seconds: float | None = None
    ) -> T:
        return work()

    def close(self) -> None:
        """Nothing to close."""
