"""Waits for a file to be written, or for the process that would write it to end, without polling.

The kernel reports both (inotify, pidfd). Where it does not, because the number of watches per user
is limited, there is a timer.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

_CLOSE_ON_EXEC, _NON_BLOCKING = os.O_CLOEXEC, os.O_NONBLOCK
_MODIFIED, _NO_LINK = 0x2, 0x02000000
_MAX_EVENT_BYTES: Final = 65536
_LOOK_AGAIN: Final = 0.01  # where the kernel reports nothing
_AT_LEAST: Final = 1.0  # where it does: events may be lost when there are too many
_libc = ctypes.CDLL(None, use_errno=True)


class JobWatch:
    """Create it before the first check, so that no event is missed between the check and the
    wait.
    """

    def __init__(self) -> None:
        self._wake_event = asyncio.Event()
        self._patience = _AT_LEAST

    async def wait(self) -> None:
        """Waits until something may have happened since the last call."""
        try:
            await asyncio.wait_for(self._wake_event.wait(), self._patience)
        except TimeoutError:
            return
        self._wake_event.clear()

    def changed(self, fd: int) -> None:
        os.read(fd, _MAX_EVENT_BYTES)
        self._wake_event.set()

    def ended(self, fd: int) -> None:
        """The descriptor becomes readable; until the process has been waited for, it is still
        visible.
        """
        asyncio.get_running_loop().remove_reader(fd)
        self.look_again()
        self._wake_event.set()

    def look_again(self) -> None:
        self._patience = _LOOK_AGAIN


@contextmanager
def watch_job(folder: Path, pid: int) -> Iterator[JobWatch]:
    """Watches files of an existing directory, and a process, which may have ended."""
    loop, made = asyncio.get_running_loop(), JobWatch()
    sources: tuple[tuple[Callable[[], int], Callable[[int], None]], ...]
    sources = (
        (partial(_notifier, folder), made.changed),
        (partial(os.pidfd_open, pid), made.ended),
    )
    with ExitStack() as kept:
        for opened, react in sources:
            try:
                fd = opened()
            except OSError:
                made.look_again()
                continue
            kept.callback(os.close, fd)
            loop.add_reader(fd, react, fd)
            kept.callback(loop.remove_reader, fd)
        yield made


def _notifier(folder: Path) -> int:
    fd = _libc.inotify_init1(_CLOSE_ON_EXEC | _NON_BLOCKING)
    if fd < 0 or _libc.inotify_add_watch(fd, os.fsencode(folder), _MODIFIED | _NO_LINK) < 0:
        code = ctypes.get_errno()
        if fd >= 0:
            os.close(fd)
        raise OSError(code, os.strerror(code), str(folder))
    return int(fd)
