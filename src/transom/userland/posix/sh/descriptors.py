"""The streams of a shell by descriptor number."""

from __future__ import annotations

from transom.kit.named_tuple import NamedTuple
from transom.userland.process import Process
from transom.userland.streams import ByteSink, ByteSource, BytesSource, CallSink

_OWN_STREAMS = {
    "/dev/stdin": 0,
    "/dev/stdout": 1,
    "/dev/stderr": 2,
    "/dev/fd/0": 0,
    "/dev/fd/1": 1,
    "/dev/fd/2": 2,
    "/proc/self/fd/0": 0,
    "/proc/self/fd/1": 1,
    "/proc/self/fd/2": 2,
    "/dev/tty": 1,
}


class SavedDescriptors(NamedTuple):
    sources: dict[int, ByteSource]
    sinks: dict[int, ByteSink]


class Descriptors:
    """The streams of a shell by number; the first three are the process's own."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._sources: dict[int, ByteSource] = {0: process.stdin}
        self._sinks: dict[int, ByteSink] = {1: process.stdout, 2: process.stderr}

    def copy(self, process: Process) -> Descriptors:
        new = Descriptors(process)
        new.restore(self.save())
        return new

    def set_source(self, number: int, stream: ByteSource) -> None:
        self._sinks.pop(number, None)
        self._sources[number] = stream

    def set_sink(self, number: int, stream: ByteSink) -> None:
        self._sources.pop(number, None)
        self._sinks[number] = stream

    def close(self, number: int) -> None:
        self._sources.pop(number, None)
        self._sinks.pop(number, None)

    def duplicate(self, number: int, other: int) -> bool:
        """False when `other` is not open."""
        source, sink = self._sources.get(other), self._sinks.get(other)
        if source is not None:
            self.set_source(number, source)
        elif sink is not None:
            self.set_sink(number, sink)
        return source is not None or sink is not None

    def take_from(self, process: Process) -> None:
        self.set_source(0, process.stdin)
        self.set_sink(1, process.stdout)
        self.set_sink(2, process.stderr)

    def give_to(self, process: Process) -> None:
        process.stdin = self._sources.get(0) or BytesSource()
        process.stdout = self._sinks.get(1) or CallSink(_closed)
        process.stderr = self._sinks.get(2) or CallSink(_closed)

    def save(self) -> SavedDescriptors:
        return SavedDescriptors(dict(self._sources), dict(self._sinks))

    def restore(self, saved: SavedDescriptors) -> None:
        self._sources, self._sinks = saved
        self.give_to(self._process)

    def open_source(self, path: str) -> ByteSource:
        """A file for reading; `/dev/stdin` and similar names are the shell's own streams."""
        own = self._sources.get(_OWN_STREAMS.get(path, -1))
        return own if own is not None else self._process.files.source(path)

    def open_sink(self, path: str, append: bool) -> ByteSink:
        own = self._sinks.get(_OWN_STREAMS.get(path, -1))
        return own if own is not None else self._process.files.sink(path, append)


def _closed(data: bytes) -> None:
    return
