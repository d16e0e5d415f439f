"""The connection between the two halves of a stand-in: frames as `native/standin.c` describes them.

Most frames are dispatched to handlers by their letter. `ask` waits for its response without letting
other tasks run, for synchronous callers, such as a list of processes.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Final

_LENGTH: Final = struct.Struct("<I")
_AT_ONCE: Final = 1 << 16
_ENOUGH: Final = 1 << 18  # unsent bytes before `drain` waits

Handler = Callable[[bytes], None]


class StandInChannel:
    def __init__(self, connection: socket.socket, gone: Callable[[], None]) -> None:
        """`gone` is called when the other half has ended."""
        connection.setblocking(False)
        self.handlers: dict[str, Handler] = {}
        self._socket = connection
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._unread = bytearray()
        self._unsent = bytearray()
        self._waiting: list[asyncio.Future[None]] = []
        self._ended = False
        self._loop.add_reader(connection, self._readable)

    def send(self, letter: str, content: bytes = b"") -> None:
        self._unsent += _LENGTH.pack(1 + len(content)) + letter.encode("ascii") + content
        self._writable()

    async def drain(self) -> None:
        if len(self._unsent) > _ENOUGH and not self._ended:
            waiting: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(waiting)
            await waiting

    def ask(self, letter: str, answer: str, content: bytes = b"") -> bytes:
        """The response with the letter `answer`; empty when the other half has ended."""
        found: list[bytes] = []
        self.handlers[answer] = found.append
        self.send(letter, content)
        while not found and not self._ended:
            readable, writable, _ = select.select(
                [self._socket], [self._socket] if self._unsent else [], []
            )
            if writable:
                self._writable()
            if readable:
                self._readable()
        return found[0] if found else b""

    def flush(self) -> None:
        """Returns when everything is sent."""
        while self._unsent and not self._ended:
            select.select([], [self._socket], [])
            self._writable()

    def close(self) -> None:
        if not self._ended:
            self._ended = True
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._wake()

    def _writable(self) -> None:
        try:
            while self._unsent and not self._ended:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._writable)
        except OSError:
            self._lost()
        else:
            if not self._ended:
                self._loop.remove_writer(self._socket)
        if len(self._unsent) <= _ENOUGH:
            self._wake()

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self._unread += data
        while len(self._unread) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._unread)[0]
            if len(self._unread) < end:
                break
            letter, content = (
                chr(self._unread[_LENGTH.size]),
                bytes(self._unread[_LENGTH.size + 1 : end]),
            )
            del self._unread[:end]
            handler = self.handlers.get(letter)
            if handler is not None:
                handler(content)

    def _lost(self) -> None:
        if not self._ended:
            self.close()
            self._gone()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)


def encode_texts(*values: str) -> bytes:
    return "".join(value.replace("\0", "") + "\0" for value in values).encode(
        "utf-16-le", "surrogatepass"
    )


def encode_numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *(value & 0xFFFFFFFF for value in values))


def encode_variables(env: Iterable[tuple[str, str]]) -> bytes:
    """With the terminating empty text."""
    return encode_texts(*(f"{name}={value}" for name, value in env if name), "")


class FrameReader:
    """Parses a frame's content."""

    __slots__ = ("_at", "_content")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._content)

    def number(self, size: int = 4) -> int:
        self._at += size
        return int.from_bytes(self._content[self._at - size : self._at], "little")

    def text(self) -> str:
        begin = self._at
        while self._content[self._at : self._at + 2] not in (b"\0\0", b""):
            self._at += 2
        self._at += 2
        return self._content[begin : self._at - 2].decode("utf-16-le", "replace")

    def rest(self) -> bytes:
        begin, self._at = self._at, len(self._content)
        return self._content[begin:]
