"""Lets a simulated program give up the event loop in the middle of synchronous code.

Programs share the event loop with the whole server. Whatever loops over a program's input or files
calls `check_slice`, which suspends a program that has kept the loop for too long, without every
function in between being a coroutine (`greenlets.py`). Everything else runs in the meantime, so it
must not be called while shared data is being changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from heapq import merge
from operator import itemgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from transom.kit.lazy import lazy_import
from transom.kit.task_set import TaskSet
from transom.userland.limits import SLICE
from transom.userland.running_step import RunningStep

if TYPE_CHECKING:
    from transom.userland import greenlets
else:
    greenlets = lazy_import("transom.userland.greenlets")

T = TypeVar("T")
_SORTED_AT_ONCE = 1000
_FIRST = itemgetter(0)


_running = RunningStep()


def check_slice() -> None:
    """Let others run when the calling program has kept the event loop for too long. Does nothing
    outside of programs.
    """
    if _running.suspend is not None and perf_counter() - _running.resumed > SLICE:
        _running.suspend()


def sort_in_slices(
    items: Iterable[T], key: Callable[[T], Any], *, reverse: bool = False
) -> list[T]:
    """Like `sorted`, which would keep the event loop for all of its comparisons: sorts parts and
    merges them.
    """
    parts: list[list[tuple[Any, T]]] = [[]]
    for item in items:
        check_slice()
        if len(parts[-1]) == _SORTED_AT_ONCE:
            parts.append([])
        parts[-1].append((key(item), item))
    for part in parts:
        part.sort(key=_FIRST, reverse=reverse)
        check_slice()
    if len(parts) == 1:
        return [item for _, item in parts[0]]
    out: list[T] = []
    for _, item in merge(*parts, key=_FIRST, reverse=reverse):
        check_slice()
        out.append(item)
    return out


async def preemptible(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of the coroutine, whose synchronous parts may call `check_slice`."""
    try:
        steps = greenlets.Steps(coroutine, _running)
    except ModuleNotFoundError:
        # Stand-ins of Wine containers have only the standard library, and an event loop of
        # their own.
        return await coroutine
    result: T = await steps
    return result


def start_preemptible(tasks: TaskSet, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    task = tasks.start(preemptible(coroutine))
    task.add_done_callback(lambda _: coroutine.close())  # it never got to run
    return task
