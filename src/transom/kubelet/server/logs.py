"""Formats container log files for clients: tail, since, timestamps, limits, following.

Lines are CRI's (`TIME STREAM TAG CONTENT`) or docker's JSON. Pure except for `LogReader.read`,
which reads a file; callers detect new data and deliver the lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import lru_cache
from itertools import count
from typing import Final, NamedTuple

import orjson

from transom.kit.clock import parse_rfc3339
from transom.machines.api import Files

_BLOCK: Final = 128 * 1024  # bytes of a file that are read and formatted in one step
_LONGEST: Final = 256 << 20  # from the beginning of a log
_LONGEST_LINE: Final = 1 << 20  # runtimes write 16 KiB; a pod with a hostPath, any length
_TURN: Final = 32  # blocks that are searched backwards for the last lines in one step
_HEAD: Final = 64  # the first bytes that distinguish a file from the one that replaced it
_STREAMS: Final = (b"stdout", b"stderr")
_TIME: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")


class LogOptions(NamedTuple):
    """-1 means no limit."""

    tail: int = -1
    limit: int = -1
    since: int = 0  # nanoseconds since 1970
    timestamps: bool = False
    follow: bool = False


class LogEntryLine(NamedTuple):
    time: int  # nanoseconds since 1970
    stamp: bytes  # with nine fractional digits, as displayed
    content: bytes


class UnknownFormat(Exception):
    """The first line is in no known format."""


@lru_cache(maxsize=256)
def _second(text: bytes) -> int:
    return int(parse_rfc3339(text.decode()))


def _parse_time(raw: bytes) -> tuple[int, bytes] | None:
    match = _TIME.fullmatch(raw)
    if match is None:
        return None
    whole, fraction, zone = match.groups(b"")
    fraction = fraction[:9].ljust(9, b"0")
    try:
        return _second(whole + zone) * 1_000_000_000 + int(fraction), b"%b.%b%b" % (
            whole,
            fraction,
            zone,
        )
    except ValueError:
        return None


def parse_cri(line: bytes) -> LogEntryLine | None:
    parts = line.split(b" ", 3)
    if len(parts) != 4 or parts[1] not in _STREAMS:
        return None
    time = _parse_time(parts[0])
    if time is None:
        return None
    content = parts[3]
    if parts[2].split(b":", 1)[0] == b"P" and content.endswith(b"\n"):
        content = content[:-1]  # the rest of the line follows in the next entry
    return LogEntryLine(*time, content)


def parse_docker(line: bytes) -> LogEntryLine | None:
    try:
        value = orjson.loads(line)
        time = _parse_time(value.get("time", "0001-01-01T00:00:00Z").encode())
        content = value.get("log", "").encode()
    except (ValueError, AttributeError):
        return None
    return LogEntryLine(*time, content) if time is not None else None


_FORMATS: Final[tuple[Callable[[bytes], LogEntryLine | None], ...]] = (parse_cri, parse_docker)


def tail_start(files: Files, path: str, size: int, lines: int) -> Generator[bytes, None, int]:
    """The offset of the last lines in a file of this size; a line without an end counts extra.
    Yields None periodically to let other tasks run.
    """
    if lines < 0:
        return 0
    left = lines + 1  # line ends still to find
    end = size
    for number in count(1):
        if not end:
            break
        if number % _TURN == 0:
            yield b""
        start = max(0, end - _BLOCK)
        block = files.read(path, start, end - start)
        found = block.count(b"\n")
        if found < left:
            left -= found
            end = start
            continue
        at = len(block)
        for _ in range(left):
            at = block.rfind(b"\n", 0, at)
        return start + at + 1
    return 0


class LogReader:
    """Reads a log from where it stopped before. `full` is True once the byte limit is reached."""

    __slots__ = (
        "_format",
        "_head",
        "_offset",
        "_remain",
        "_skips",
        "_started",
        "full",
        "options",
        "path",
    )

    def __init__(self, path: str, options: LogOptions) -> None:
        self.path = path
        self.options = options
        self.full = False
        self._remain = options.limit
        self._format: Callable[[bytes], LogEntryLine | None] | None = None
        self._offset = 0
        self._head = b""
        self._skips = False  # the rest of a line that is too long
        self._started = False

    def read(self, files: Files) -> Iterator[bytes]:
        """New data, a moderate part of the file at a time. A chunk is empty when its part had
        nothing to show, so that other tasks can run after each one. Raises OSError when the file
        cannot be read.
        """
        path = self.path
        size = min(files.stat(path).size, _LONGEST)
        head = files.read(path, 0, _HEAD)
        if not self._started:
            self._started = True
            self._offset = yield from tail_start(files, path, size, self.options.tail)
        elif size < self._offset or not head.startswith(self._head):
            self._offset, self._skips = 0, False  # the file was replaced
        self._head = head
        length = _BLOCK
        while self._offset < size:
            block = files.read(path, self._offset, min(length, size - self._offset))
            last = self._offset + len(block) >= size or not block
            if self._skips and block:
                end = block.find(b"\n") + 1
                self._offset += end or len(block)
                self._skips = not end
                yield b""
                continue
            if not last or self.options.follow:
                # An incomplete line is read again with the next part of the file, or once it is
                # complete.
                block = block[: block.rfind(b"\n") + 1]
            if block:
                self._offset += len(block)
                length = _BLOCK
                yield b"".join(self._contents(_lines(block)))
                if self.full:
                    return
            elif last:
                return
            elif length < _LONGEST_LINE:
                length *= 2
            else:  # not a valid log line: skip it
                self._offset += length
                self._skips = True
                yield b""

    def _contents(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        since, stamps = self.options.since, self.options.timestamps
        for raw in lines:
            line = self._parse(raw)
            if line is None or line.time < since:
                continue
            content = b"%b %b" % (line.stamp, line.content) if stamps else line.content
            if self._remain >= 0:
                content = content[: self._remain]
                self._remain -= len(content)
                self.full = self._remain == 0
            yield content
            if self.full:
                return

    def _parse(self, raw: bytes) -> LogEntryLine | None:
        if self._format is not None:
            return self._format(raw)
        for parse in _FORMATS:
            line = parse(raw)
            if line is not None:
                self._format = parse
                return line
        raise UnknownFormat(raw)


def _lines(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        end = data.find(b"\n", at) + 1 or len(data)
        yield data[at:end]
        at = end
