"""The listening side: sockets, all connections, their deadlines, and the graceful stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, cast

from transom.http.budget import BudgetLimits, ByteBudget
from transom.http.connection import HttpConnection
from transom.http.encode import Date
from transom.http.interfaces import ServerConnection
from transom.http.limits import HttpLimits
from transom.http.memory import MemoryTrimmer
from transom.http.messages import BodyPolicy, Handler
from transom.http.raw import Flushable
from transom.http.tls import tls_layer

log = logging.getLogger("transom.http")

if sys.platform == "darwin":
    _KEEP_IDLE = socket.TCP_KEEPALIVE
else:
    _KEEP_IDLE = socket.TCP_KEEPIDLE
_TLS_SHUTDOWN = 0.5  # uvloop's TLS close waits for the peer, for thirty seconds by default


class HttpServer:
    def __init__(
        self,
        handler: Handler,
        ssl_context: ssl.SSLContext | None,
        *,
        limits: HttpLimits | None = None,
        budget: ByteBudget | None = None,
        uploads: ByteBudget | None = None,
        bodies: BodyPolicy | None = None,
    ) -> None:
        """`bodies`: how the handler wants large request bodies; they are collected by default."""
        self.handler = handler
        self.bodies = bodies
        self.limits = limits or HttpLimits()
        self.budget = budget or ByteBudget()
        self.uploads = uploads or ByteBudget(
            BudgetLimits(server=256 * 1024 * 1024, user=64 * 1024 * 1024)
        )
        self._memory = MemoryTrimmer()
        self.date = Date()
        self.stopping = False
        self.port = 0
        self.loop: asyncio.AbstractEventLoop
        self._ssl = ssl_context
        self._listeners: list[asyncio.Server] = []
        self._connections: set[ServerConnection] = set()
        self._dirty: list[Flushable] = []
        self._flushed = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event | None = None

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self, host: str | Sequence[str], port: int = 0) -> int:
        """Listens on every host, all on one port; 0 picks a free one. Returns the port."""
        hosts = [host] if isinstance(host, str) else list(host)
        return await self.serve(listen_sockets(hosts, port))

    async def serve(self, sockets: Sequence[socket.socket]) -> int:
        """Serves on sockets that are already bound. Returns the port of the first."""
        self.loop = asyncio.get_running_loop()
        self.port = sockets[0].getsockname()[1]
        for sock in sockets:
            limit_unsent_bytes(sock, self.limits.unsent)  # inherited by accepted sockets
            factory, options = self._protocol()
            listener = await self.loop.create_server(factory, sock=sock, backlog=1024, **options)
            self._listeners.append(listener)
        if self._timer is None:
            self._tick()
        return self.port

    async def adopt(self, sock: socket.socket) -> None:
        """Serves a connection that was accepted elsewhere; returns after the TLS handshake."""
        self.loop = asyncio.get_running_loop()
        if self._timer is None:
            self._tick()
        limit_unsent_bytes(sock, self.limits.unsent)
        await self.loop.connect_accepted_socket(lambda: HttpConnection(self), sock, **self._tls())

    def _protocol(self) -> tuple[Callable[[], asyncio.BaseProtocol], dict[str, Any]]:
        """The protocol of accepted connections, and the options of the listener."""
        if self._ssl is not None:
            layer = tls_layer(
                self.loop,
                self._ssl,
                self.limits.handshake_timeout,
                _TLS_SHUTDOWN,
                self.limits.handshakes,
            )
            if layer is not None:
                return (lambda: layer(HttpConnection(self))), {}
        return (lambda: HttpConnection(self)), self._tls()

    def _tls(self) -> dict[str, Any]:
        if self._ssl is None:
            return {}
        return {
            "ssl": self._ssl,
            "ssl_handshake_timeout": self.limits.handshake_timeout,
            "ssl_shutdown_timeout": _TLS_SHUTDOWN,
        }

    async def stop(self, grace: float = 10.0) -> None:
        """Stops accepting, ends streams with their last chunk, lets running requests finish, then
        closes.
        """
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

    def admit(self, connection: ServerConnection) -> bool:
        self._connections.add(connection)
        return len(self._connections) <= self.limits.connections and not self.stopping

    def forget(self, connection: ServerConnection) -> None:
        self._connections.discard(connection)
        if self._empty is not None and not self._connections:
            self._empty.set()

    def mark_dirty(self, stream: Flushable) -> None:
        """The stream has pending output; all such streams are flushed together.

        Flushes in the next loop iteration, or slightly later if the last flush was very recent: in
        a burst each watcher then gets many events with one system call, which costs more than the
        rest of a delivery.
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
        """One timer for all connections: ten thousand idle connections cost a comparison each per
        tick.
        """
        self._timer = self.loop.call_later(self.limits.tick, self._tick)
        self.date.renew()
        now = monotonic()
        for connection in [c for c in self._connections if c.deadline < now]:
            connection.expire()
        for victim in self.budget.victims(now):
            cast(ServerConnection, victim).drop()
        self._memory.tick(len(self._connections), self.budget.total)


def limit_unsent_bytes(sock: socket.socket, limit: int) -> None:
    """Limits what the kernel buffers of a connection, where it can."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # it may not be TCP
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, limit)


def listen_sockets(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Bound, listening sockets on one port for all hosts."""
    sockets: list[socket.socket] = []
    try:
        for host in hosts:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Inherited by accepted sockets: a watcher whose machine vanished is detected after
            # three minutes.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, _KEEP_IDLE, 90)
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
