"""Locks between processes, and between tasks of one: a file with an exclusive or shared lock that
the kernel frees at a crash.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

_POLL_SECONDS = 0.05


def _take(path: Path, operation: int) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, operation)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def hold_lock(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Waits. For short work only: it blocks the thread."""
    descriptor = _take(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Does not wait; returns whether it holds the lock exclusively."""
    try:
        descriptor = _take(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        os.close(descriptor)


@asynccontextmanager
async def wait_for_lock(path: Path, *, shared: bool = False) -> AsyncIterator[None]:
    """Waits without blocking the event loop, for long operations. `path` may be deleted during the
    wait: a process that removes such a file holds its lock, so a process that gets the lock of a
    removed file tries again.
    """
    operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    while True:
        try:
            descriptor = _take(path, operation)
        except BlockingIOError:
            await asyncio.sleep(_POLL_SECONDS)
            continue
        if _is(descriptor, path):
            break
        os.close(descriptor)
    try:
        yield
    finally:
        os.close(descriptor)


def _is(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
