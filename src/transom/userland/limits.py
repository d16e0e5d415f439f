"""Limits for what a simulated program holds at once and does in one step: it shares the server's
memory and event loop.

A program that exceeds them ends with "out of memory" (MemoryError until `Process.run` reports it).
"""

from __future__ import annotations

from collections.abc import Sized
from typing import TypeVar

MAX_TEXT = 640 << 10  # characters of one value
MAX_ARGUMENTS = 1 << 17  # fields of one command, entries of one array
MAX_ITEMS = 1 << 20  # of one list
MAX_SORTED = 10_000  # objects compared at once
MAX_LINES = 100_000  # lines sorted or counted at once
MAX_INPUT = 4 << 20  # bytes of input that a command buffers
MAX_FILE = 256 << 20  # bytes of an archive, such as `kubectl cp` writes
MAX_PIPE = 16 << 20  # bytes waiting for a reader
MAX_TASKS = 2048  # processes of one program that run at the same time
SLICE = 0.005  # seconds after which other programs get a turn

_S = TypeVar("_S", bound=Sized)


def bounded(value: _S, limit: int = MAX_TEXT) -> _S:
    """Returns the value; raises MemoryError if it is too large."""
    if len(value) > limit:
        raise MemoryError
    return value


def check_size(size: float, limit: int = MAX_TEXT) -> None:
    """Raises MemoryError for a size that is too large, before anything is allocated."""
    if size > limit:
        raise MemoryError
