"""A TCP load balancer in front of the API servers of a cluster.

It forwards connections as they are: TLS is between the client and the server. A server takes
connections while its /readyz answers 200. If none is ready, one that answers at all is used, because
reads from its cache may still work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Final, cast

from transom.kit.task_set import TaskSet

log = logging.getLogger("transom.cluster")

_CHECK_SECONDS: Final = 1.0
_CHECK_AGAIN_SECONDS: Final = 0.2  # while a server is not ready
_CHECK_TIMEOUT: Final = 1.5
_MOST_FAILURES: Final = 2
_HALF_CLOSED_SECONDS: Final = 10.0
_DIAL_SECONDS: Final = 2.0
_WAIT_SECONDS: Final = 10.0  # how long a connection waits for a server that takes it
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)", re.I)


class ServerBackend:
    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.alive = False  # it answers
        self.ready = False
        self.draining = False  # it gets no new connections
        self.failures = 0
        self.connections: set[_ClientSide] = set()

    def status(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "address": f"{self.host}:{self.port}",
            "ready": self.ready,
            "connections": len(self.connections),
        }


class TcpBalancer:
    def __init__(self, backends: Sequence[ServerBackend], tls: ssl.SSLContext) -> None:
        """`tls` verifies the certificates of the servers when their health is checked."""
        self.backends = list(backends)
        self._tls = tls
        self._listeners: list[asyncio.Server] = []
        self._tasks = TaskSet()
        self._changed = asyncio.Condition()

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        for backend in self.backends:
            self._tasks.start(self._check_forever(backend))
        for sock in sockets:
            self._listeners.append(
                await loop.create_server(lambda: _ClientSide(self), sock=sock, backlog=1024)
            )

    async def stop(self) -> None:
        for listener in self._listeners:
            listener.close()
        for backend in self.backends:
            for connection in list(backend.connections):
                connection.close()
        await self._tasks.close()

    # ---- health ----

    async def wait_ready(self, name: str, seconds: float) -> bool:
        """Whether a server became ready in time."""
        backend = self.find(name)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: backend.ready)
        return backend.ready

    def find(self, name: str) -> ServerBackend:
        return next(backend for backend in self.backends if backend.name == name)

    async def drain(self, name: str) -> None:
        """The server gets no new connections until it has restarted (`restarted`)."""
        self.find(name).draining = True

    async def restarted(self, name: str) -> None:
        """The server has a new process: what was known of the old one counts no longer."""
        backend = self.find(name)
        backend.draining = False
        await self._set(backend, alive=False, ready=False)

    async def _check_forever(self, backend: ServerBackend) -> None:
        probe = _Probe(backend, self._tls)
        try:
            while True:
                try:
                    async with asyncio.timeout(_CHECK_TIMEOUT):
                        status = await probe.readyz()
                    backend.failures = 0
                    await self._set(backend, alive=True, ready=status == 200)
                except (OSError, asyncio.IncompleteReadError, ValueError) as problem:
                    probe.close()
                    await self._failed(backend, problem)
                await asyncio.sleep(_CHECK_SECONDS if backend.ready else _CHECK_AGAIN_SECONDS)
        finally:
            probe.close()

    async def _failed(self, backend: ServerBackend, problem: Exception) -> None:
        backend.failures += 1
        # A process that is gone refuses connections; one that hangs may only be slow.
        if isinstance(problem, TimeoutError) and backend.failures < _MOST_FAILURES:
            return
        await self._set(backend, alive=False, ready=False)
        for connection in list(backend.connections):
            connection.abort()

    async def _set(self, backend: ServerBackend, *, alive: bool, ready: bool) -> None:
        if (backend.alive, backend.ready) == (alive, ready):
            return
        log.info("%s is %s", backend.name, "ready" if ready else "not ready")
        backend.alive, backend.ready = alive, ready
        async with self._changed:
            self._changed.notify_all()

    # ---- connections ----

    def accept(self, client: _ClientSide) -> None:
        self._tasks.start(self._join(client))

    async def _join(self, client: _ClientSide) -> None:
        deadline = asyncio.get_running_loop().time() + _WAIT_SECONDS
        while not client.closed:
            backend = self._choose()
            if backend is None:
                left = deadline - asyncio.get_running_loop().time()
                try:
                    async with asyncio.timeout(left), self._changed:
                        await self._changed.wait_for(lambda: self._choose() is not None)
                except TimeoutError:
                    client.abort()
                    return
                continue
            backend.connections.add(client)
            try:
                async with asyncio.timeout(_DIAL_SECONDS):
                    await asyncio.get_running_loop().create_connection(
                        lambda: client.far, backend.host, backend.port
                    )
            except OSError:
                backend.connections.discard(client)
                await self._set(backend, alive=False, ready=False)
                continue
            client.joined(backend)
            return

    def _choose(self) -> ServerBackend | None:
        found = [one for one in self.backends if one.ready and not one.draining]
        found = found or [one for one in self.backends if one.alive and not one.draining]
        return min(found, key=lambda one: len(one.connections), default=None)


class _Side(asyncio.Protocol):
    """One side of a forwarded connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        other = self.other.transport if self.other is not None else None
        if other is not None and not other.is_closing() and other.can_write_eof():
            other.write_eof()
            asyncio.get_running_loop().call_later(_HALF_CLOSED_SECONDS, other.abort)
            return True
        return False

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        other = self.other.transport if self.other is not None else None
        if other is not None:
            if exc is None:
                other.close()
            else:
                other.abort()
        self.transport = None


class _ClientSide(_Side):
    def __init__(self, balancer: TcpBalancer) -> None:
        super().__init__()
        self._balancer = balancer
        self._backend: ServerBackend | None = None
        self._early: list[bytes] = []  # what came before there was a server
        self.far = _Side()
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._balancer.accept(self)

    def data_received(self, data: bytes) -> None:
        if self.other is None and self.transport is not None:
            self._early.append(data)
            self.transport.pause_reading()  # until there is a server
            return
        super().data_received(data)

    def joined(self, backend: ServerBackend) -> None:
        self._backend = backend
        if self.transport is None or self.far.transport is None:
            self.abort()
            backend.connections.discard(self)
            return
        self.other, self.far.other = self.far, self
        if self._early:
            self.far.transport.write(b"".join(self._early))
            self._early.clear()
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        super().connection_lost(exc)
        if self._backend is not None:
            self._backend.connections.discard(self)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        for side in (self, self.far):
            if side.transport is not None:
                side.transport.abort()


class _Probe:
    """Asks one server for its health, on a connection that is kept."""

    def __init__(self, backend: ServerBackend, tls: ssl.SSLContext) -> None:
        self._backend = backend
        self._tls = tls
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def readyz(self) -> int:
        backend = self._backend
        if self._streams is None:
            self._streams = await asyncio.open_connection(
                backend.host, backend.port, ssl=self._tls, server_hostname=backend.host
            )
        reader, writer = self._streams
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: %b\r\n\r\n" % backend.host.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        found = _LENGTH.search(head)
        if found is not None:
            await reader.readexactly(int(found[1]))
        return int(head.split(b" ", 2)[1])

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None
