"""`runtime.api.Process` for real processes: one that was started for a client, and a client of a
container's own.

Output is read only while the client keeps up; otherwise the pipe fills, and the program blocks.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import struct
import termios
from collections import deque
from collections.abc import Callable
from typing import Literal

from transom.runtime.api import Output, RuntimeFailure
from transom.runtime.native.client import FRAME

Stream = Literal["stdout", "stderr"]
_CHUNK = 64 << 10
_INPUT_WAITS = 256 << 10  # bytes of input that the program has not read yet
_LAST_OUTPUT = 2.0  # seconds to wait for pipes that another process keeps open after the exit
_INPUT, _STDOUT, _STDERR, _END, _INPUT_END, _RESIZE = 0, 1, 2, 3, 4, 5
_NAMES: dict[int, Stream] = {_STDOUT: "stdout", _STDERR: "stderr"}
_LOST = 255


class NativeExec:
    """A command in a container. Its pipes belong to this process; the monitor reports only its
    exit.
    """

    def __init__(self, output: Output, kill: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._output = output
        self._kill = kill
        self._outputs: dict[int, Stream] = {}
        self._input = -1
        self._terminal = -1
        self._size: tuple[int, int] | None = None
        self._typed: deque[bytes] = deque()
        self._typed_size = 0
        self._drained = asyncio.Event()
        self._input_ends = False
        self._held = False
        self._status: int | None = None
        self._done: asyncio.Future[int] = self._loop.create_future()
        self._done.add_done_callback(lambda future: future.cancelled() or future.exception())

    # Set up

    def use_pipes(self, stdin: int, stdout: int, stderr: int) -> None:
        """Our ends; stdin is -1 when there is none."""
        self._input = stdin
        for fd in (stdin, stdout, stderr):
            if fd >= 0:
                os.set_blocking(fd, False)
        self._outputs = {stdout: "stdout", stderr: "stderr"}
        self._read_on()

    def use_terminal(self, fd: int, stdin: bool) -> None:
        os.set_blocking(fd, False)
        self._terminal = fd
        self._input = fd if stdin else -1
        self._outputs = {fd: "stdout"}
        if self._size is not None:
            self.resize(*self._size)
        self._feed()
        self._read_on()

    # Client side

    def write(self, data: bytes) -> None:
        if data and not self._input_ends and not self._done.done():
            self._typed.append(data)
            self._typed_size += len(data)
            self._feed()

    @property
    def input_full(self) -> bool:
        return self._typed_size > _INPUT_WAITS

    async def input_drained(self) -> None:
        while self.input_full:
            self._drained.clear()
            await self._drained.wait()

    def end_input(self) -> None:
        self._input_ends = True
        if self._terminal >= 0:
            return  # a terminal has no EOF; the user types it
        self._feed()

    def resize(self, width: int, height: int) -> None:
        self._size = (width, height)
        if self._terminal >= 0:
            fcntl.ioctl(
                self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0)
            )

    def hold(self, held: bool) -> None:
        self._held = held
        if held:
            for fd in self._outputs:
                self._loop.remove_reader(fd)
        else:
            self._read_on()

    async def wait(self) -> int:
        return await asyncio.shield(self._done)

    def close(self) -> None:
        if self._status is None:
            self._kill()

    # Program side

    def ended(self, status: int) -> None:
        self._status = status
        if self._outputs:
            self._loop.call_later(_LAST_OUTPUT, self._finish)
        else:
            self._finish()

    def fail(self, problem: BaseException) -> None:
        """It was never started."""
        self._release()
        if not self._done.done():
            self._done.set_exception(problem)

    def _read_on(self) -> None:
        if not self._held:
            for fd in self._outputs:
                self._loop.add_reader(fd, self._read, fd)

    def _read(self, fd: int) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # a terminal whose other side is closed
            data = b""
        if data:
            self._output(self._outputs[fd], data)
            return
        self._loop.remove_reader(fd)
        del self._outputs[fd]
        if fd != self._terminal:
            os.close(fd)
        if self._status is not None and not self._outputs:
            self._finish()

    def _feed(self) -> None:
        fd = self._input
        if fd < 0:
            return
        while self._typed:
            data = self._typed.popleft()
            try:
                written = os.write(fd, data)
            except BlockingIOError:
                written = 0
            except OSError:  # the program no longer reads it
                self._typed.clear()
                self._typed_size = 0
                self._drained.set()
                break
            self._typed_size -= written
            if not self.input_full:
                self._drained.set()
            if written < len(data):
                self._typed.appendleft(data[written:])
                self._loop.add_writer(fd, self._feed)
                return
        self._loop.remove_writer(fd)
        if self._input_ends and fd != self._terminal:
            self._input = -1
            os.close(fd)

    def _finish(self) -> None:
        if self._held and self._outputs:
            self._loop.call_later(_LAST_OUTPUT, self._finish)  # remaining data can still be read
            return
        self._release()
        if not self._done.done():
            self._done.set_result(_LOST if self._status is None else self._status)

    def _release(self) -> None:
        for fd in {*self._outputs, self._input, self._terminal} - {-1}:
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)
            os.close(fd)
        self._outputs = {}
        self._input = self._terminal = -1


class NativeAttach:
    """A client of a container's own process, through the monitor."""

    def __init__(
        self, connection: socket.socket, output: Output, code: Callable[[int], int]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = connection
        self._output = output
        self._code = code
        self._in = bytearray()
        self._out = bytearray()
        self._drained = asyncio.Event()
        self._held = False
        self._done: asyncio.Future[int] = self._loop.create_future()

    async def begin(self, identity: str, stdin: bool) -> None:
        """Raises RuntimeFailure."""
        self._socket.setblocking(False)
        request = {"n": 1, "do": "attach", "id": identity, "stdin": stdin}
        await self._loop.sock_sendall(self._socket, json.dumps(request).encode() + b"\n")
        while b"\n" not in self._in:
            data = await self._loop.sock_recv(self._socket, _CHUNK)
            if not data:
                raise RuntimeFailure("Unavailable", "the monitor of the containers is gone")
            self._in += data
        line, _, rest = bytes(self._in).partition(b"\n")
        self._in = bytearray(rest)
        problem = json.loads(line).get("error")
        if problem:
            self._socket.close()
            raise RuntimeFailure("Unknown", f"failed to attach to container: {problem}")
        self._loop.add_reader(self._socket.fileno(), self._readable)
        self._take()

    # Client side

    def write(self, data: bytes) -> None:
        if data:
            self._frame(_INPUT, data)

    @property
    def input_full(self) -> bool:
        return len(self._out) > _INPUT_WAITS

    async def input_drained(self) -> None:
        while self.input_full:
            self._drained.clear()
            await self._drained.wait()

    def end_input(self) -> None:
        self._frame(_INPUT_END)

    def resize(self, width: int, height: int) -> None:
        self._frame(_RESIZE, struct.pack(">HH", width & 0xFFFF, height & 0xFFFF))

    def hold(self, held: bool) -> None:
        self._held = held
        if self._socket.fileno() < 0:
            return
        if held:
            self._loop.remove_reader(self._socket.fileno())
        else:
            self._loop.add_reader(self._socket.fileno(), self._readable)
            self._take()

    async def wait(self) -> int:
        return await asyncio.shield(self._done)

    def close(self) -> None:
        self._end(0)

    # Monitor side

    def _frame(self, kind: int, data: bytes = b"") -> None:
        if self._socket.fileno() >= 0:
            self._out += FRAME.pack(kind, len(data)) + data
            self._flush()

    def _flush(self) -> None:
        fd = self._socket.fileno()
        while self._out and fd >= 0:
            try:
                sent = self._socket.send(self._out)
            except BlockingIOError:
                self._loop.add_writer(fd, self._flush)
                return
            except OSError:
                break  # the reader will notice, too
            del self._out[:sent]
            if not self.input_full:
                self._drained.set()
        if fd >= 0:
            self._loop.remove_writer(fd)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end(_LOST)
            return
        self._in += data
        self._take()

    def _take(self) -> None:
        while len(self._in) >= FRAME.size and not self._held:
            kind, length = FRAME.unpack_from(self._in)
            if len(self._in) < FRAME.size + length:
                return
            data = bytes(self._in[FRAME.size : FRAME.size + length])
            del self._in[: FRAME.size + length]
            if kind == _END:
                self._end(self._code(struct.unpack(">i", data)[0]))
                return
            self._output(_NAMES[kind], data)

    def _end(self, code: int) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
        if not self._done.done():
            self._done.set_result(code)
