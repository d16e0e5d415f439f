"""Container logs as files hold them, turned into what a client asked for: tail, since, timestamps, a limit, following.

Lines are CRI's (`TIME STREAM TAG CONTENT`) or docker's JSON. Pure but for `LogReader.read`, which looks at a file; who
says that there is something new, and where the lines go, is the business of others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

import orjson

from transom.hosts.api import Files
from transom.kit.clock import parse_rfc3339

PIECE: Final = 64 * 1024
_HEAD: Final = 64  # by so many first bytes a file is told from the one that took its place
_STREAMS: Final = (b"stdout", b"stderr")
_TIME: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")


class LogOptions(NamedTuple):
    """-1 means no limit."""

    tail: int = -1
    limit: int = -1
    since: int = 0  # nanoseconds since 1970
    timestamps: bool = False
    follow: bool = False


class Line(NamedTuple):
    time: int  # nanoseconds since 1970
    stamp: bytes  # the same with nine digits of fraction, as it is shown
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
        return _second(whole + zone) * 1_000_000_000 + int(fraction), b"%b.%b%b" % (whole, fraction, zone)
    except ValueError:
        return None


def parse_cri(line: bytes) -> Line | None:
    parts = line.split(b" ", 3)
    if len(parts) != 4 or parts[1] not in _STREAMS:
        return None
    time = _parse_time(parts[0])
    if time is None:
        return None
    content = parts[3]
    if parts[2].split(b":", 1)[0] == b"P" and content.endswith(b"\n"):
        content = content[:-1]  # the rest of the line comes with the next
    return Line(*time, content)


def parse_docker(line: bytes) -> Line | None:
    try:
        value = orjson.loads(line)
        time = _parse_time(value.get("time", "0001-01-01T00:00:00Z").encode())
        content = value.get("log", "").encode()
    except (ValueError, AttributeError):
        return None
    return Line(*time, content) if time is not None else None


_FORMATS: Final[tuple[Callable[[bytes], Line | None], ...]] = (parse_cri, parse_docker)


def tail_start(data: bytes, lines: int) -> int:
    """Where the last so many lines begin; a line without an end comes on top of them."""
    if lines < 0:
        return 0
    at = len(data)
    for _ in range(lines + 1):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return 0
    return at + 1


class LogReader:
    """Reads a log from where it stopped before. `full` says that the limit of bytes is reached."""

    __slots__ = ("_format", "_head", "_offset", "_remain", "_started", "full", "options", "path")

    def __init__(self, path: str, options: LogOptions) -> None:
        self.path = path
        self.options = options
        self.full = False
        self._remain = options.limit
        self._format: Callable[[bytes], Line | None] | None = None
        self._offset = 0
        self._head = b""
        self._started = False

    def read(self, files: Files) -> Iterator[bytes]:
        """What is new, in pieces of a moderate size. OSError when the file cannot be read."""
        return self._pieces(self._new(files.read(self.path)))

    def _new(self, data: bytes) -> bytes:
        if not self._started:
            self._started = True
            self._offset = tail_start(data, self.options.tail)
        elif len(data) < self._offset or not data.startswith(self._head):
            self._offset = 0  # another file has taken its place
        self._head = data[:_HEAD]
        new = data[self._offset :]
        if self.options.follow and not new.endswith(b"\n"):
            new = new[: new.rfind(b"\n") + 1]  # an incomplete line is read again when it is whole
        self._offset += len(new)
        return new

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        out: list[bytes] = []
        size = 0
        for content in self._contents(_lines(data)):
            out.append(content)
            size += len(content)
            if size >= PIECE:
                yield b"".join(out)
                out, size = [], 0
        if out:
            yield b"".join(out)

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

    def _parse(self, raw: bytes) -> Line | None:
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
