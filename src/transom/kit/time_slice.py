"""Lets other tasks run during work in many small steps: awaiting something that is done already does
not yield to the event loop.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

_SECONDS: Final = 0.005


class TimeSlice:
    """Call `pause` between two steps: it yields if the steps since the last pause took long."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = monotonic()

    async def pause(self) -> None:
        if monotonic() - self._began > _SECONDS:
            await asyncio.sleep(0)
            self._began = monotonic()
