"""Standard input of simulated programs, and the two kinds of clients: one that runs a command, one
that is attached.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Literal

from transom.runtime.api import Output
from transom.runtime.sim.terminal import Terminal

Stream = Literal["stdout", "stderr"]
_PIECE = 32768
_FULL = 256 * 1024  # bytes of unread input
_OVERHEAD = 64  # overhead of a chunk beside its bytes
_LONGEST_LINE = 4 * 1024 * 1024


class InputBuffer:
    """Input that was written and not yet read. b"" among the chunks is an EOF typed on a terminal:
    it is read once.
    """

    __slots__ = ("_chunks", "_drained", "_ended", "_size", "_waiter")

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None
        self._drained: list[asyncio.Future[None]] = []

    def feed(self, data: bytes) -> None:
        if not self._ended:
            self._chunks.append(data)
            self._size += len(data) + _OVERHEAD
            self._wake()

    @property
    def full(self) -> bool:
        return self._size > _FULL

    async def drained(self) -> None:
        while self.full:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._drained.append(waiter)
            await waiter

    def _take(self, size: int) -> bytes:
        """At most this many bytes of the next chunk."""
        chunk = self._chunks.popleft()
        self._size -= len(chunk) + _OVERHEAD
        if len(chunk) > size:
            self._put_back(chunk[size:])
            chunk = chunk[:size]
        if self._drained and not self.full:
            waiters, self._drained = self._drained, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        return chunk

    def _put_back(self, data: bytes) -> None:
        self._chunks.appendleft(data)
        self._size += len(data) + _OVERHEAD

    def end(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self, size: int = 65536) -> bytes:
        await self._ready()
        return self._take(size) if self._chunks else b""

    async def readline(self) -> bytes:
        """Up to the end of the line, which may be long. Raises MemoryError when it is too long."""
        line = bytearray()
        while True:
            await self._ready()
            if not self._chunks:
                return bytes(line)
            chunk = self._take(_FULL)
            if not chunk:
                return bytes(line)
            head, end, rest = chunk.partition(b"\n")
            line += head + end
            if rest:
                self._put_back(rest)
            if end:
                return bytes(line)
            if len(line) > _LONGEST_LINE:
                raise MemoryError

    async def _ready(self) -> None:
        while not self._chunks and not self._ended:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None


class NoInput:
    """An input that is always at its end."""

    async def read(self, size: int = 65536) -> bytes:
        return b""

    async def readline(self) -> bytes:
        return b""


NO_INPUT = NoInput()


class ExecClient:
    """`runtime.api.Process`: the client's side of an exec or an attach. Output is buffered here
    while it is paused.
    """

    __slots__ = (
        "_code",
        "_held",
        "_output",
        "_pending",
        "_waiters",
        "input",
        "on_close",
        "on_input_end",
        "on_resize",
        "terminal",
    )

    def __init__(
        self, output: Output, given: InputBuffer | None, terminal: Terminal | None
    ) -> None:
        self._output = output
        self._pending: deque[tuple[Stream, bytes]] = deque()
        self._held = False
        self._code: int | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self.input = given
        self.terminal = terminal
        self.on_close: Callable[[], None] | None = None
        self.on_input_end: Callable[[], None] | None = (
            None  # instead of closing the program's input
        )
        self.on_resize: Callable[[], None] | None = None

    # Client side

    def write(self, data: bytes) -> None:
        if self.input is None or not data:
            return
        if self.terminal is not None:
            self.terminal.typed(data)
        else:
            self.input.feed(data)

    @property
    def input_full(self) -> bool:
        return self.input is not None and self.input.full

    async def input_drained(self) -> None:
        if self.input is not None:
            await self.input.drained()

    def end_input(self) -> None:
        if self.on_input_end is not None:
            self.on_input_end()
        elif self.input is not None:
            if self.terminal is not None:
                self.terminal.ended()
            self.input.end()

    def resize(self, width: int, height: int) -> None:
        if self.terminal is not None and self.terminal.size != (width, height):
            self.terminal.size = (width, height)
            if self.on_resize is not None:
                self.on_resize()

    def hold(self, held: bool) -> None:
        self._held = held
        while self._pending and not self._held:  # the client may fall behind again after each chunk
            self._output(*self._next_piece())
        if not self._held:
            self._wake()

    def _next_piece(self) -> tuple[Stream, bytes]:
        """Pending output of one stream, joined: a program may have written it in tiny chunks."""
        stream = self._pending[0][0]
        piece = bytearray()
        while self._pending and self._pending[0][0] == stream and len(piece) < _PIECE:
            piece += self._pending.popleft()[1]
        return stream, bytes(piece)

    async def wait(self) -> int:
        while self._code is None or self._held:
            await self._wait_for_room()
        return self._code

    def close(self) -> None:
        if self.on_close is not None:
            on_close, self.on_close = self.on_close, None
            on_close()

    # Program side

    def write_output(self, stream: Stream, data: bytes) -> None:
        if self._held or self._pending:
            self._pending.append((stream, data))
        else:
            self._output(stream, data)

    async def caught_up(self) -> None:
        while self._held:
            await self._wait_for_room()

    def finish(self, code: int) -> None:
        if self._code is None:
            self._code = code
            self._wake()

    async def _wait_for_room(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class ProgramStreams:
    """`TerminalAccess` of a program's context: its output goes through the pseudo terminal if there
    is one.
    """

    __slots__ = ()

    done: bool
    pty: Terminal | None
    _sink: Callable[[Stream, bytes], None]

    @property
    def tty(self) -> bool:
        return self.pty is not None

    @property
    def tty_size(self) -> tuple[int, int]:
        return self.pty.size if self.pty is not None else (80, 24)

    def out(self, data: bytes) -> None:
        self._write("stdout", data)

    def err(self, data: bytes) -> None:
        self._write("stderr", data)

    def _write(self, stream: Stream, data: bytes) -> None:
        if self.done or not data:
            return
        if self.pty is not None:
            self._sink("stdout", self.pty.printed(data))
        else:
            self._sink(stream, data)


def begin_program(
    output: Output, *, stdin: bool, tty: bool, windows: bool, signal: Callable[[str], None]
) -> tuple[ExecClient, InputBuffer | NoInput]:
    """The client of a command and the command's input. `signal` receives the signals of terminal
    keys.
    """
    given = InputBuffer() if stdin else None
    client = ExecClient(output, given, None)
    if tty:
        client.terminal = Terminal(
            windows=windows,
            lines=given.feed if given is not None else _discard_input,
            echo=lambda data: client.write_output("stdout", data),
            signal=signal,
        )
    return client, given if given is not None else NO_INPUT


def _discard_input(data: bytes) -> None:
    """Discards the input."""
