"""The streams of a process: bytes in memory, files of its container, pipes between processes.

Writing never waits; a process that may write a lot awaits `drain` regularly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from transom.userland.limits import MAX_INPUT, MAX_PIPE, bounded

_PIPE_SIZE = 65536


class ByteSource(Protocol):
    async def read(self, size: int = 65536) -> bytes:
        """At least one byte; b"" at the end."""

    async def readline(self) -> bytes: ...


class ByteSink(Protocol):
    def write(self, data: bytes) -> None:
        """Raises BrokenPipeError when the reader has closed the pipe."""

    async def drain(self) -> None: ...
    def close(self) -> None: ...


class BytesSource:
    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes = b"") -> None:
        self._data = data
        self._position = 0

    async def read(self, size: int = 65536) -> bytes:
        chunk = self._data[self._position : self._position + size]
        self._position += len(chunk)
        return chunk

    async def readline(self) -> bytes:
        end = self._data.find(b"\n", self._position) + 1 or len(self._data)
        line = self._data[self._position : end]
        self._position = end
        return line


class PartsSource:
    """A large file, read on demand."""

    __slots__ = ("_offset", "_read")

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self._offset = 0

    async def read(self, size: int = 65536) -> bytes:
        chunk = self._read(self._offset, size)
        self._offset += len(chunk)
        return chunk

    async def readline(self) -> bytes:
        line = bytearray()
        while chunk := self._read(self._offset + len(line), 65536):
            end = chunk.find(b"\n") + 1
            line += chunk[: end or len(chunk)]
            bounded(line, MAX_INPUT)
            if end:
                break
        self._offset += len(line)
        return bytes(line)


class EndlessSource:
    """/dev/zero and similar devices."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[int], bytes]) -> None:
        self._make = make

    async def read(self, size: int = 65536) -> bytes:
        return self._make(size)

    async def readline(self) -> bytes:
        return self._make(4096)


class CallSink:
    """Passes everything to a function: the container's output, a file."""

    __slots__ = ("_drain", "_write")

    def __init__(
        self, write: Callable[[bytes], None], drain: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._write = write
        self._drain = drain

    def write(self, data: bytes) -> None:
        if data:
            self._write(data)

    async def drain(self) -> None:
        if self._drain is not None:
            await self._drain()

    def close(self) -> None:
        return


class CollectingSink:
    """Collects what is written: command substitution, captured output."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data
        bounded(self.data, MAX_INPUT)

    async def drain(self) -> None:
        return

    def close(self) -> None:
        return


class Pipe:
    """Both ends of a pipe. The writer calls `close`, the reader `hang_up`."""

    __slots__ = ("_buffer", "_closed", "_gone", "_readable", "_writable")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._closed = False
        self._gone = False
        self._readable: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None

    def write(self, data: bytes) -> None:
        if self._gone:
            raise BrokenPipeError
        self._buffer += data
        self._wake_reader()
        bounded(self._buffer, MAX_PIPE)

    async def drain(self) -> None:
        while len(self._buffer) > _PIPE_SIZE and not self._gone:
            self._writable = asyncio.get_running_loop().create_future()
            await self._writable
        if self._gone:
            raise BrokenPipeError

    def close(self) -> None:
        self._closed = True
        self._wake_reader()

    def hang_up(self) -> None:
        self._gone = True
        self._wake_writer()

    async def _more(self) -> bool:
        if self._closed:
            return False
        self._readable = asyncio.get_running_loop().create_future()
        await self._readable
        return True

    async def read(self, size: int = 65536) -> bytes:
        while not self._buffer:
            if not await self._more():
                return b""
        return self._take(min(size, len(self._buffer)))

    async def readline(self) -> bytes:
        while True:
            end = self._buffer.find(b"\n") + 1
            if end:
                return self._take(end)
            if not await self._more():
                return self._take(len(self._buffer))

    def _take(self, size: int) -> bytes:
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._wake_writer()
        return data

    def _wake_reader(self) -> None:
        if self._readable is not None and not self._readable.done():
            self._readable.set_result(None)

    def _wake_writer(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
