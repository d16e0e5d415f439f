"""A person at a terminal: types when something is to be read, and changes the size of the
window.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Sequence

Size = tuple[int, int]  # rows, columns


def session(
    argv: Sequence[str],
    env: dict[str, str],
    steps: Sequence[tuple[str, str | Size | None]],
    size: Size = (24, 80),
    seconds: float = 20.0,
) -> tuple[str, int]:
    """Runs a command in a terminal. Each step waits for a text, then types another, resizes the
    window or (None) closes it; what the terminal has shown, and the exit code.
    """
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(argv[0], list(argv), env)
    _resize(fd, size)
    shown, looked, waiting = b"", 0, list(steps)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            if not select.select([fd], [], [], 0.05)[0]:
                continue
            try:
                data = os.read(fd, 65536)
            except OSError:  # the other side is closed
                break
            shown += data
            while waiting and (at := shown.find(waiting[0][0].encode(), looked)) >= 0:
                awaited, then = waiting.pop(0)
                looked = at + len(awaited)
                if then is None:
                    os.kill(pid, signal.SIGKILL)
                elif isinstance(then, str):
                    os.write(fd, then.encode())
                else:
                    _resize(fd, then)
        else:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"after {seconds} s the terminal shows {shown!r}")
    finally:
        status = os.waitpid(pid, 0)[1]
        os.close(fd)
    return shown.decode(), os.waitstatus_to_exitcode(status)


def _resize(fd: int, size: Size) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
