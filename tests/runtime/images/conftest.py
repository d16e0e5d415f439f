"""A store in its own folder, and a clock that never waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from transom.kit.clock import RealClock
from transom.runtime.images.layers import LayerLimits
from transom.runtime.images.store import LocalImageStore


class Hasty(RealClock):
    """Real time, but sleep is short."""

    __slots__ = ("slept",)

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> Hasty:
    return Hasty()


@pytest.fixture
def store(tmp_path: Path, clock: Hasty) -> LocalImageStore:
    return LocalImageStore(
        tmp_path / "images",
        clock=clock,
        limits=LayerLimits(floor=8 << 20, most=16 << 20, entries=1000),
    )
