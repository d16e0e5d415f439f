"""A container's log in CRI's format: `2020-01-02T03:04:05.000000000Z stdout F text`; `P` marks a line that goes on."""

from __future__ import annotations

import os
import time

_LONGEST_LINE = 16 * 1024


class LogFile:
    def __init__(self, path: str) -> None:
        """An empty path: nobody wants it. Raises OSError."""
        self._path = path
        self._fd = -1
        self._rest: dict[str, bytes] = {}
        self._second = (0, "")
        self.reopen()

    def reopen(self) -> None:
        """Also after somebody has moved the file away. Raises OSError; the old file is then written on."""
        if self._path:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
            self._release()
            self._fd = fd

    def write(self, stream: str, data: bytes) -> bool:
        """Whether there is something new to read."""
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
        """The stream has ended; a line without its end is the first part of one that never came."""
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
        except OSError:  # the disk is full: the lines are lost, as they are with other runtimes
            written = len(records) - len(view)
            if written:  # no half of one stays
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
            return False
        return True
