"""A container's log: lines in CRI's format, appended to a file of the host.

`2020-01-02T03:04:05.000000000Z stdout F text`; `P` marks a line that continues in the next record.
"""

from __future__ import annotations

from collections.abc import Callable

from transom.kit.clock import Clock, rfc3339
from transom.machines.api import Files

_LONGEST_LINE = 16 * 1024
_LARGEST = 24 << 20  # a kubelet rotates long before


def stamp(t: float) -> str:
    """With nanoseconds."""
    return f"{rfc3339(t)[:-1]}.{int((t % 1) * 1e9):09d}Z"


class ContainerLog:
    __slots__ = ("_append", "_clock", "_files", "_rest", "_size", "_watchers", "path")

    def __init__(self, files: Files, path: str, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self.path = path
        self._rest: dict[str, bytes] = {}
        self._watchers: tuple[Callable[[], None], ...] = ()
        self._append: Callable[[bytes], None] | None = None
        self._size = 0

    def open(self) -> None:
        """Also reopens it after the file was renamed. Raises OSError on failure."""
        self._append = self._files.appender(self.path)
        self._size = 0
        self._notify()

    def write(self, stream: str, data: bytes) -> None:
        rest = self._rest.pop(stream, b"") if self._rest else b""
        lines = (rest + data).split(b"\n")
        last = lines.pop()
        head = f"{stamp(self._clock.time())} {stream} ".encode()
        records = [
            head + (b"F " + line + b"\n" if len(line) <= _LONGEST_LINE else _split(head, line))
            for line in lines
        ]
        while len(last) > _LONGEST_LINE:
            records.append(head + b"P " + last[:_LONGEST_LINE] + b"\n")
            last = last[_LONGEST_LINE:]
        if last:
            self._rest[stream] = last
        if records:
            self._put(b"".join(records))

    def close(self) -> None:
        """A last line without a newline stays incomplete."""
        for stream, rest in self._rest.items():
            self._put(f"{stamp(self._clock.time())} {stream} P ".encode() + rest + b"\n")
        self._rest.clear()
        self._append = None

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        self._watchers += (watcher,)

        def end() -> None:
            self._watchers = tuple(w for w in self._watchers if w is not watcher)

        return end

    def _put(self, records: bytes) -> None:
        if self._append is None:
            return
        if self._size + len(records) > _LARGEST:
            self._cut()
        try:
            self._append(records)
        except OSError:
            return  # the disk is full: the lines are lost, as with real runtimes
        self._size += len(records)
        self._notify()

    def _cut(self) -> None:
        """Drops the older half when the log is not rotated."""
        kept = (
            self._files.read(self.path)[-_LARGEST // 2 :] if self._files.exists(self.path) else b""
        )
        self._files.write(self.path, kept[kept.find(b"\n") + 1 :])
        self._append = self._files.appender(self.path)
        self._size = len(kept)

    def _notify(self) -> None:
        for watcher in self._watchers:
            watcher()


def _split(head: bytes, line: bytes) -> bytes:
    """Splits a long line into several records; the first header is already written."""
    parts = [line[i : i + _LONGEST_LINE] for i in range(0, len(line), _LONGEST_LINE)]
    return b"".join(b"P " + part + b"\n" + head for part in parts[:-1]) + b"F " + parts[-1] + b"\n"
