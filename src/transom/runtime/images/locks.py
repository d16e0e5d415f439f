"""Locks between processes, and between tasks of one: a file, locked for one or for many, freed by the kernel at a crash."""

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
def held(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Waits. For short work only: it blocks the thread."""
    descriptor = _take(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def attempted(path: Path) -> Iterator[bool]:
    """Does not wait; says whether it holds the lock, alone."""
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
async def waited(path: Path, *, shared: bool = False) -> AsyncIterator[None]:
    """Waits without blocking the loop, for work that takes long. `path` may vanish while it waits: whoever removes such
    a file holds its lock, so the one who gets the lock of a removed file tries again."""
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
