"""A container's log in CRI's format: `2020-01-02T03:04:05.000000000Z stdout F text`; `P` marks a
partial line.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from transom.machines import pinning

_LONGEST_LINE = 16 * 1024


class LogFile:
    def __init__(self, path: str) -> None:
        """An empty path: no log. Raises OSError."""
        self._path = path
        self._fd = -1
        self._rest: dict[str, bytes] = {}
        self._second = (0, "")
        self.reopen()

    def reopen(self) -> None:
        """Also after the file was renamed. Raises OSError, and then keeps writing to the old
        file.
        """
        if self._path:
            fd = _open(self._path)
            self._release()
            self._fd = fd

    def write(self, stream: str, data: bytes) -> bool:
        """Returns whether there is something new to read."""
        if self._fd < 0:
            return False
        lines = (self._rest.pop(stream, b"") + data).split(b"\n")
        last = lines.pop()
        head = self._head(stream)
        records: list[bytes] = []
        for line in lines:
            line = line.removesuffix(b"\r")
            while len(line) > _LONGEST_LINE:
                records += (head, b"P ", line[:_LONGEST_LINE], b"\n")
                line = line[_LONGEST_LINE:]
            records += (head, b"F ", line, b"\n")
        while len(last) > _LONGEST_LINE:
            records += (head, b"P ", last[:_LONGEST_LINE], b"\n")
            last = last[_LONGEST_LINE:]
        if last:
            self._rest[stream] = last
        return bool(records) and self._put(b"".join(records))

    def end(self, stream: str) -> bool:
        """The stream has ended; an unterminated line is written as a partial one."""
        rest = self._rest.pop(stream, b"")
        return bool(rest) and self._fd >= 0 and self._put(self._head(stream) + b"P " + rest + b"\n")

    def close(self) -> None:
        for stream in tuple(self._rest):
            self.end(stream)
        self._release()

    def _release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _head(self, stream: str) -> bytes:
        second, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        if second != self._second[0]:
            self._second = (second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)))
        return f"{self._second[1]}.{nanoseconds:09d}Z {stream} ".encode()

    def _put(self, records: bytes) -> bool:
        view = memoryview(records)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:  # the disk is full: the lines are lost, as with other runtimes
            written = len(records) - len(view)
            if written:  # remove a partial record
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
            return False
        return True


def _open(path: str) -> int:
    """Pods may mount the log directory as a volume: opens only ordinary files, and follows no link
    in it.
    """
    folder, _, name = path.rpartition("/")
    directory = pinning.open_without_links(folder or "/", os.O_PATH | os.O_DIRECTORY)
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o640, dir_fd=directory)
        except FileExistsError:
            with pinning.looked_at(directory, name) as fd:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise OSError(errno.ELOOP, "not a regular file", path) from None
                return pinning.reopen_descriptor(fd, flags)
    finally:
        os.close(directory)
