"""The listening side: sockets, all connections, their deadlines, and the graceful stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from transom.http.connection import Connection
from transom.http.encode import Date
from transom.http.messages import Handler
from transom.http.stream import Stream

log = logging.getLogger("transom.http")


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds."""

    head: int = 64 * 1024
    body: int = 3 * 1024 * 1024
    discard: int = 64 * 1024 * 1024  # how much of a refused body is read and thrown away
    stream_buffer: int = 8 * 1024 * 1024
    stream_pause: float = 0.005  # between two flushes of all streams
    pipelined: int = 64
    connections: int = 20_000
    handshake_timeout: float = 10.0
    head_timeout: float = 30.0
    body_timeout: float = 60.0
    idle_timeout: float = 180.0
    write_timeout: float = 60.0  # a reader that takes nothing for so long is gone
    linger: float = 5.0
    tick: float = 1.0  # how exact the times are


class HttpServer:
    def __init__(
        self, handler: Handler, ssl_context: ssl.SSLContext | None, *, limits: Limits | None = None
    ) -> None:
        self.handler = handler
        # A handler may take large bodies as they come: for the paths it says so.
        self.streams_body: Callable[[str], bool] | None = getattr(handler, "streams_body", None)
        self.limits = limits or Limits()
        self.date = Date()
        self.stopping = False
        self.port = 0
        self.loop: asyncio.AbstractEventLoop
        self._ssl = ssl_context
        self._listeners: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._dirty: list[Stream] = []
        self._flushed = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event | None = None

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self, host: str | Sequence[str], port: int = 0) -> int:
        """Listens on every host, all on one port; 0 picks a free one. Returns the port."""
        hosts = [host] if isinstance(host, str) else list(host)
        return await self.serve(listen(hosts, port))

    async def serve(self, sockets: Sequence[socket.socket]) -> int:
        """Serves on sockets that are bound already. Returns the port of the first."""
        self.loop = asyncio.get_running_loop()
        self.port = sockets[0].getsockname()[1]
        for sock in sockets:
            listener = await self.loop.create_server(lambda: Connection(self), sock=sock, backlog=1024, **self._tls())
            self._listeners.append(listener)
        if self._timer is None:
            self._tick()
        return self.port

    async def adopt(self, sock: socket.socket) -> None:
        """Serves a connection that somebody else has accepted; returns when TLS is agreed upon."""
        self.loop = asyncio.get_running_loop()
        if self._timer is None:
            self._tick()
        await self.loop.connect_accepted_socket(lambda: Connection(self), sock, **self._tls())

    def _tls(self) -> dict[str, Any]:
        if self._ssl is None:
            return {}
        return {
            "ssl": self._ssl,
            "ssl_handshake_timeout": self.limits.handshake_timeout,
            # uvloop's TLS close waits for the peer, for thirty seconds unless told otherwise.
            "ssl_shutdown_timeout": 0.5,
        }

    async def stop(self, grace: float = 10.0) -> None:
        """Stops accepting, ends streams with their last chunk, lets running requests finish, then closes."""
        self.stopping = True
        for listener in self._listeners:
            listener.close()
        for connection in list(self._connections):
            connection.shut_down()
        if self._connections:
            self._empty = asyncio.Event()
            try:
                await asyncio.wait_for(self._empty.wait(), grace)
            except TimeoutError:
                log.warning("%d connections outlived the grace period", len(self._connections))
                for connection in list(self._connections):
                    connection.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._listeners.clear()

    # -- for the connections

    def admit(self, connection: Connection) -> bool:
        self._connections.add(connection)
        return len(self._connections) <= self.limits.connections and not self.stopping

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if self._empty is not None and not self._connections:
            self._empty.set()

    def mark_dirty(self, stream: Stream) -> None:
        """The stream has something to send; all such streams are flushed together.

        That happens in the next turn of the loop, or a moment later when the last flush was just now: in a burst each
        watcher then gets many events by one system call, which costs more than all the rest of a delivery.
        """
        if not self._dirty:
            wait = self._flushed + self.limits.stream_pause - monotonic()
            if wait > 0:
                self.loop.call_later(wait, self._flush_streams)
            else:
                self.loop.call_soon(self._flush_streams)
        self._dirty.append(stream)

    def _flush_streams(self) -> None:
        dirty, self._dirty = self._dirty, []
        for stream in dirty:
            stream.flush()
        self._flushed = monotonic()

    def _tick(self) -> None:
        """One timer for everybody: ten thousand idle connections cost a comparison each per tick."""
        self._timer = self.loop.call_later(self.limits.tick, self._tick)
        self.date.renew()
        now = monotonic()
        for connection in [c for c in self._connections if c.deadline < now]:
            connection.expire()


def listen(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Bound, listening sockets on one port for all hosts."""
    sockets: list[socket.socket] = []
    try:
        for host in hosts:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Inherited by the accepted sockets: a watcher whose machine vanished is noticed after three minutes.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 90)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 30)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((host, port))
            sock.listen(1024)
            sock.setblocking(False)
            port = sock.getsockname()[1]
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets
