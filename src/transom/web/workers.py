"""Threads for work that takes longer than the event loop may be held: lint, doctor, explanations.

Two at a time; more wait, up to a limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from transom.http.memory import trim_memory_later
from transom.kit.user_errors import UserError
from transom.machinery.errors import ApiError

_T = TypeVar("_T")
_THREADS: Final = ThreadPoolExecutor(2, "console-work")
_MOST_WAITING: Final = 16
_SENT_SECONDS: Final = 0.5
_waiting: Final[set[object]] = set()


def free_memory_soon() -> None:
    """Large work leaves several times its result in the heap; the system gets that back after the
    result was sent.
    """
    asyncio.get_running_loop().call_later(_SENT_SECONDS, trim_memory_later)


async def run_in_worker(function: Callable[..., _T], *arguments: object) -> _T:
    """Calls the function in a thread. Errors for users become ApiError 400."""
    if len(_waiting) >= _MOST_WAITING:
        raise ApiError(503, "ServiceUnavailable", "the console is busy: try again")
    ticket = object()
    _waiting.add(ticket)
    try:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_THREADS, lambda: function(*arguments))
    except UserError as problem:
        hint = f" ({problem.hint})" if problem.hint else ""
        raise ApiError(400, "BadRequest", problem.message + hint) from problem
    finally:
        _waiting.discard(ticket)
        free_memory_soon()
