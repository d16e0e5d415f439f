"""The monitor's event loop: descriptors, timers, and the children it has or inherits.

A container's first process is started by runc, which leaves at once; the kernel then makes it a child of this process.
It may have ended before runc has said its number: what ends unknown while something is being started is kept until then.
"""

from __future__ import annotations

import heapq
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
RESET = (signal.SIGPIPE, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)


class Later:
    __slots__ = ("function",)

    def __init__(self, function: Callable[[], None]) -> None:
        self.function: Callable[[], None] | None = function

    def cancel(self) -> None:
        self.function = None


class Loop:
    def __init__(self) -> None:
        self.ended = False
        self._selector = selectors.EpollSelector()
        self._timers: list[tuple[float, int, Later]] = []
        self._order = count()
        self._children: dict[int, Callable[[int], None]] = {}
        self._early: dict[int, int] = {}
        self._starting = 0
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self.watch(reader, READ, lambda _: self._reap(reader))

    # Descriptors and timers

    def watch(self, fd: int, events: int, function: Callable[[int], None]) -> None:
        """From now on for these events and no others; 0 for none."""
        known = self._selector.get_map().get(fd)
        if not events:
            if known is not None:
                self._selector.unregister(fd)
        elif known is None:
            self._selector.register(fd, events, function)
        else:
            self._selector.modify(fd, events, function)

    def forget(self, fd: int) -> None:
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def later(self, seconds: float, function: Callable[[], None]) -> Later:
        timer = Later(function)
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), timer))
        return timer

    def run(self) -> None:
        while not self.ended:
            for key, events in self._selector.select(self._patience()):
                # Whoever came before in this round may have closed it.
                if self._selector.get_map().get(key.fd) is not None:
                    self._do(key.data, events)
            self._run_timers()

    @staticmethod
    def _do(function: Callable[..., None], *arguments: object) -> None:
        """Whatever goes wrong with one container, the others need this process."""
        try:
            function(*arguments)
        except Exception:
            sys.excepthook(*sys.exc_info())

    def _patience(self) -> float | None:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _run_timers(self) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            function = heapq.heappop(self._timers)[2].function
            if function is not None:
                self._do(function)

    # Children

    def spawn(self, argv: Sequence[str], stdio: Sequence[int], done: Callable[[int], None]) -> int:
        """`done` gets its status: an exit code, or 128 and the signal. Raises OSError."""
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(stdio)]
        pid = os.posix_spawnp(argv[0], list(argv), os.environ, file_actions=actions, setsigdef=RESET, setsigmask=())
        self._children[pid] = done
        return pid

    def start_begins(self) -> None:
        """Somebody else is starting a process that will be ours; until `start_ends` no end of a child is forgotten."""
        self._starting += 1

    def start_ends(self) -> None:
        self._starting -= 1
        if not self._starting:
            self._early.clear()

    def adopt(self, pid: int, done: Callable[[int], None]) -> None:
        if pid in self._early:
            status = self._early.pop(pid)
            self.later(0, lambda: done(status))
        else:
            self._children[pid] = done

    def _reap(self, reader: int) -> None:
        os.read(reader, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            code = os.waitstatus_to_exitcode(status)
            code = code if code >= 0 else 128 - code
            done = self._children.pop(pid, None)
            if done is not None:
                self._do(done, code)
            elif self._starting:
                self._early[pid] = code
