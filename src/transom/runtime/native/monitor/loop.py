"""The monitor's event loop: descriptors, timers, and the children it has or inherits.

runc starts a container's first process and exits; the kernel then makes that process a child of
this one. It may exit before runc has reported its pid: unknown exits during a start are kept until
then.
"""

from __future__ import annotations

import contextlib
import ctypes
import heapq
import io
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count

from transom.kit.escaping import escape_lines
from transom.kit.trust import spawn_program

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_CLOSE_RANGE, _MARK_ONLY, _LAST = 436, 4, 0xFFFFFFFF
RESET = (
    signal.SIGPIPE,
    signal.SIGCHLD,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGTERM,
)


_libc = ctypes.CDLL(None, use_errno=True)


def close_descriptors_on_exec() -> None:
    """Programs that this process starts inherit only their three standard descriptors: any other
    one in a container would be a way to escape (CVE-2024-21626). Each is already opened that way;
    this is a safeguard.
    """
    if _libc.syscall(_CLOSE_RANGE, 3, _LAST, _MARK_ONLY) == 0:
        return
    for name in os.listdir("/proc/self/fd"):  # a kernel before 5.11
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                continue  # the directory listing's own


def _report() -> None:
    """The current exception, with names that containers may have chosen. The module traceback is
    large.
    """
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        sys.excepthook(*sys.exc_info())
    sys.stderr.write(escape_lines(text.getvalue().rstrip("\n")) + "\n")
    sys.stderr.flush()


class DelayedCall:
    __slots__ = ("function",)

    def __init__(self, function: Callable[[], None]) -> None:
        self.function: Callable[[], None] | None = function

    def cancel(self) -> None:
        self.function = None


class MonitorLoop:
    def __init__(self) -> None:
        self.ended = False
        self._selector = selectors.EpollSelector()
        self._timers: list[tuple[float, int, DelayedCall]] = []
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
        """Replaces the set of watched events; 0 for none."""
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

    def later(self, seconds: float, function: Callable[[], None]) -> DelayedCall:
        timer = DelayedCall(function)
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), timer))
        return timer

    def run(self) -> None:
        while not self.ended:
            for key, events in self._selector.select(self._patience()):
                # An earlier callback in this round may have closed it.
                if self._selector.get_map().get(key.fd) is not None:
                    self._do(key.data, events)
            self._run_timers()

    @staticmethod
    def _do(function: Callable[..., None], *arguments: object) -> None:
        """Errors of one container must not affect the others."""
        try:
            function(*arguments)
        except Exception:
            _report()

    def _patience(self) -> float | None:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _run_timers(self) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            function = heapq.heappop(self._timers)[2].function
            if function is not None:
                self._do(function)

    # Children

    def spawn(self, argv: Sequence[str], stdio: Sequence[int], done: Callable[[int], None]) -> int:
        """`done` receives its status: an exit code, or 128 plus the signal. Raises OSError."""
        close_descriptors_on_exec()
        pid = spawn_program(argv, stdio, RESET)
        self._children[pid] = done
        return pid

    def start_begins(self) -> None:
        """Another process is starting one that will be our child; until `start_ends`, all child
        exits are kept.
        """
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
