"""Runs pure functions of one object in a thread if the object is large, so that the event loop stays
free. For controllers; the API server has its own worker with turns and time limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import orjson

T = TypeVar("T")

_LARGE = 64 * 1024  # bytes of JSON


async def compute_for_object(obj: Any, work: Callable[[], T]) -> T:
    """The result of `work`, whose cost grows with the size of `obj`."""
    if len(orjson.dumps(obj)) <= _LARGE:
        return work()
    return await asyncio.to_thread(work)
