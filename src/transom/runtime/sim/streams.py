"""Standard input of simulated programs, and the two kinds of clients: one that runs a command, one that is attached."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Literal

from transom.runtime.api import Output
from transom.runtime.sim.terminal import Terminal

Stream = Literal["stdout", "stderr"]


class Input:
    """What was written and not yet read. b"" among the chunks is an end that somebody typed: it is read once."""

    __slots__ = ("_chunks", "_ended", "_waiter")

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def feed(self, data: bytes) -> None:
        if not self._ended:
            self._chunks.append(data)
            self._wake()

    def end(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self, size: int = 65536) -> bytes:
        await self._ready()
        if not self._chunks:
            return b""
        chunk = self._chunks.popleft()
        if len(chunk) > size:
            self._chunks.appendleft(chunk[size:])
            chunk = chunk[:size]
        return chunk

    async def readline(self) -> bytes:
        line = b""
        while True:
            await self._ready()
            if not self._chunks:
                return line
            chunk = self._chunks.popleft()
            if not chunk:
                return line
            head, end, rest = chunk.partition(b"\n")
            line += head + end
            if rest:
                self._chunks.appendleft(rest)
            if end:
                return line

    async def _ready(self) -> None:
        while not self._chunks and not self._ended:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None


class NoInput:
    """Nobody keeps it open."""

    async def read(self, size: int = 65536) -> bytes:
        return b""

    async def readline(self) -> bytes:
        return b""


NO_INPUT = NoInput()


class Client:
    """`runtime.api.Process`: the side of whoever asked for an exec or an attach. Output waits here while it is held."""

    __slots__ = ("_code", "_held", "_output", "_pending", "_waiters", "input", "on_close", "on_input_end", "on_resize",
                 "terminal")  # fmt: skip

    def __init__(self, output: Output, given: Input | None, terminal: Terminal | None) -> None:
        self._output = output
        self._pending: list[tuple[Stream, bytes]] = []
        self._held = False
        self._code: int | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self.input = given
        self.terminal = terminal
        self.on_close: Callable[[], None] | None = None
        self.on_input_end: Callable[[], None] | None = None  # instead of the end of the program's input
        self.on_resize: Callable[[], None] | None = None

    # The client's side

    def write(self, data: bytes) -> None:
        if self.input is None or not data:
            return
        if self.terminal is not None:
            self.terminal.typed(data)
        else:
            self.input.feed(data)

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
        if not held:
            pending, self._pending = self._pending, []
            for stream, data in pending:
                self._output(stream, data)
            self._wake()

    async def wait(self) -> int:
        while self._code is None or self._held:
            await self._woken()
        return self._code

    def close(self) -> None:
        if self.on_close is not None:
            on_close, self.on_close = self.on_close, None
            on_close()

    # The program's side

    def said(self, stream: Stream, data: bytes) -> None:
        if self._held:
            self._pending.append((stream, data))
        else:
            self._output(stream, data)

    async def caught_up(self) -> None:
        while self._held:
            await self._woken()

    def finish(self, code: int) -> None:
        if self._code is None:
            self._code = code
            self._wake()

    async def _woken(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Speaker:
    """What every program's context has to say and show: its output, through the terminal where there is one."""

    __slots__ = ()

    done: bool
    terminal: Terminal | None
    _sink: Callable[[Stream, bytes], None]

    @property
    def tty(self) -> bool:
        return self.terminal is not None

    @property
    def tty_size(self) -> tuple[int, int]:
        return self.terminal.size if self.terminal is not None else (80, 24)

    def out(self, data: bytes) -> None:
        self._say("stdout", data)

    def err(self, data: bytes) -> None:
        self._say("stderr", data)

    def _say(self, stream: Stream, data: bytes) -> None:
        if self.done or not data:
            return
        if self.terminal is not None:
            self._sink("stdout", self.terminal.printed(data))
        else:
            self._sink(stream, data)


def begin(
    output: Output, *, stdin: bool, tty: bool, windows: bool, signal: Callable[[str], None]
) -> tuple[Client, Input | NoInput]:
    """A client of a command and what the command reads. `signal` is what keys of a terminal send to it."""
    given = Input() if stdin else None
    client = Client(output, given, None)
    if tty:
        client.terminal = Terminal(
            windows=windows, lines=given.feed if given is not None else _nowhere,
            echo=lambda data: client.said("stdout", data), signal=signal,
        )  # fmt: skip
    return client, given if given is not None else NO_INPUT


def _nowhere(data: bytes) -> None:
    """Nobody reads what is typed."""
