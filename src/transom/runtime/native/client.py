"""The client of the monitor: starts it if necessary, sends requests, and delivers its events to the
waiting tasks.

One `Monitor` per cluster, shared by the runtimes of its nodes. It belongs to the event loop in
which it was opened.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import transom
from transom.kit.programs import run_program
from transom.kit.trust import clean_environment
from transom.runtime.native.monitor.__main__ import SOCKET

_STARTS = 3
_AT_ONCE = 2 * (os.cpu_count() or 1) + 2  # runs of runc: more would only wait for each other
_LONGEST_TURN = 5.0
MonitorListener = Callable[[dict[str, Any]], None]


class MonitorGone(OSError):
    """The monitor is gone and cannot respond."""


class MonitorFailure(Exception):
    """The monitor returned an error; the text is its own, or runc's."""

    def __init__(self, text: str, number: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.errno = number


_AS_ROOT_OF_ITS_OWN = ("unshare", "--user", "--map-root-user", "--mount", "--")


class Monitor:
    def __init__(self, folder: Path) -> None:
        """`folder` contains the socket. A user who is not root gets a monitor in namespaces where
        it is: it mounts, and runs runc.
        """
        self.folder = folder
        # those that existed when the connection was made, and still do
        self.tasks: dict[str, int] = {}
        self.pid = 0
        self._prefix = () if os.geteuid() == 0 else _AS_ROOT_OF_ITS_OWN
        self._socket: socket.socket | None = None
        self._in = bytearray()
        self._out: list[tuple[bytes, Sequence[int]]] = []
        self._number = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listeners: dict[str, MonitorListener] = {}
        self._opening = asyncio.Lock()
        self._working = asyncio.Semaphore(_AT_ONCE)
        self.lost: list[Callable[[], None]] = []  # called when it ends unexpectedly

    # The connection

    async def open(self) -> None:
        """Connects, and starts the monitor if there is none. Raises OSError."""
        async with self._opening:
            if self._socket is not None:
                return
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for attempt in range(_STARTS):
                try:
                    connection = connect_monitor(self.folder)
                    break
                except OSError:
                    if attempt == _STARTS - 1:
                        raise
                    await asyncio.to_thread(self._start)
            connection.setblocking(False)
            self._socket = connection
            asyncio.get_running_loop().add_reader(connection.fileno(), self._readable)
            answer = await self.ask("hello")
            self.pid = answer["pid"]
            self.tasks = answer["tasks"]

    def _start(self) -> None:
        root = str(Path(transom.__file__).parents[1])
        environment = clean_environment(
            PYTHONPATH=root,
            PYTHONDONTWRITEBYTECODE="1",
            # for runc: one run does not benefit from more threads, and others wait for the
            # processors
            GOMAXPROCS="1",
        )
        command = [
            *self._prefix,
            sys.executable,
            "-P",  # nothing is imported from the current directory
            "-S",
            "-s",
            "-m",
            "transom.runtime.native.monitor",
            str(self.folder),
        ]
        done = run_program(command, env=environment)
        if done.returncode:
            raise MonitorGone(
                0,
                (
                    "the monitor did not start: "
                    f"{done.stderr.decode(errors='replace').strip()[-2000:]}"
                ),
            )

    def close(self) -> None:
        """The monitor and all containers keep running."""
        connection, self._socket = self._socket, None
        if connection is not None:
            asyncio.get_running_loop().remove_reader(connection.fileno())
            asyncio.get_running_loop().remove_writer(connection.fileno())
            connection.close()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(MonitorGone(0, "the monitor of the containers is gone"))

    def _readable(self) -> None:
        assert self._socket is not None, "only called while it is open"
        try:
            data = self._socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            for function in tuple(self.lost):
                function()
            return
        self._in += data
        *lines, rest = self._in.split(b"\n")
        self._in = bytearray(rest)
        for line in lines:
            self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        if "news" in message:
            # perhaps before its exit was requested: its record has the rest
            if message["news"] == "exit":
                self.tasks.pop(message["id"], None)
            listener = self._listeners.get(message.get("id") or message.get("key") or "")
            if listener is not None:
                listener(message)
            return
        future = self._waiting.pop(message["n"], None)
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(MonitorFailure(message["error"], message.get("errno", 0)))
        else:
            future.set_result(message)

    # Requests

    async def ask(
        self, do: str, *, descriptors: Sequence[int] = (), **fields: Any
    ) -> dict[str, Any]:
        """Raises MonitorFailure and MonitorGone."""
        return await self.send(do, descriptors=descriptors, **fields)

    async def work(self, do: str, **fields: Any) -> dict[str, Any]:
        """Like `ask`, for CPU-intensive requests: they wait for their turn."""
        async with self.turn():
            return await self.ask(do, **fields)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Held for CPU-intensive work: more at once would only wait for each other. Work that takes
        long waits for something else, and gives the turn back.
        """
        await self._working.acquire()
        held = [self._working]

        def give_back() -> None:
            if held:
                held.pop().release()

        timer = asyncio.get_running_loop().call_later(_LONGEST_TURN, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()

    def send(
        self, do: str, *, descriptors: Sequence[int] = (), **fields: Any
    ) -> asyncio.Future[dict[str, Any]]:
        """Like `ask`, but synchronous: the request is sent when this returns. Descriptors may be
        closed then.
        """
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self._socket is None:
            future.set_exception(MonitorGone(0, "the monitor of the containers is gone"))
            return future
        self._number += 1
        self._waiting[self._number] = future
        data = json.dumps({"n": self._number, "do": do, **fields}).encode() + b"\n"
        copies = [os.dup(fd) for fd in descriptors] if self._out else descriptors
        self._out.append((data, copies))
        if len(self._out) == 1:
            self._flush(fresh=True)
        return future

    def notify(self, do: str, **fields: Any) -> None:
        """Does not wait for the response."""
        self.send(do, **fields).add_done_callback(_seen)

    def _flush(self, *, fresh: bool = False) -> None:
        connection = self._socket
        while self._out and connection is not None:
            data, descriptors = self._out[0]
            try:
                if descriptors:
                    sent = socket.send_fds(connection, [data], list(descriptors))
                else:
                    sent = connection.send(data)
            except BlockingIOError:
                if fresh and descriptors:
                    self._out[0] = (data, [os.dup(fd) for fd in descriptors])
                break
            except OSError:
                self._out.clear()  # the reader will notice, too
                return
            if not fresh:
                for fd in descriptors:
                    os.close(fd)
            fresh = False
            if sent < len(data):
                self._out[0] = (data[sent:], ())
            else:
                self._out.pop(0)
        if connection is not None:
            loop = asyncio.get_running_loop()
            if self._out:
                loop.add_writer(connection.fileno(), self._flush)
            else:
                loop.remove_writer(connection.fileno())

    def listen(self, name: str, listener: MonitorListener) -> None:
        """Events of a task or of a command, by its id or key."""
        self._listeners[name] = listener

    def ignore(self, name: str) -> None:
        self._listeners.pop(name, None)

    async def run(self, *argv: str) -> str:
        """Runs a command to its end; returns its output. Raises MonitorFailure with the output when
        it fails.
        """
        answer = await self.work("run", argv=argv)
        if answer["status"] != 0:
            raise MonitorFailure(
                answer["output"].strip() or f"exit status {answer['status']}", answer["status"]
            )
        return str(answer["output"])

    async def shutdown(self) -> None:
        """Ends it, and every container it still has. No error when it is not running."""
        if self._socket is None:
            try:
                self._socket = connect_monitor(self.folder)
            except OSError:
                return
            self._socket.setblocking(False)
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self._readable)
        self.lost.clear()
        try:
            await self.ask("shutdown")
        except MonitorGone:
            return
        if self._socket is not None:
            gone = asyncio.Event()
            self.lost.append(gone.set)
            await gone.wait()


def connect_monitor(folder: Path) -> socket.socket:
    """Through a descriptor: a full path may be too long for a socket address."""
    at = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(f"/proc/self/fd/{at}/{SOCKET}")
        except OSError:
            connection.close()
            raise
        return connection
    finally:
        os.close(at)


FRAME = struct.Struct(">BI")


def _seen(future: asyncio.Future[dict[str, Any]]) -> None:
    if not future.cancelled():
        future.exception()
