"""The transport of the DNS server: sockets for incoming queries, and exchanges for its own queries
to other servers.

Over TCP, messages are prefixed with their length (RFC 1035, 4.2.2).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from transom.dns.settings import DnsServerAddress
from transom.kit.clock import Clock
from transom.kit.task_set import TaskSet
from transom.network.api import Dataplane

log = logging.getLogger("transom.dns")

MAX_CONNECTIONS: Final = 1000
MAX_PENDING: Final = 1000  # queries over UDP that wait for other servers
IDLE: Final = 10.0  # idle timeout of a connection in seconds
_AT_ONCE = 64  # datagrams to read before yielding to other tasks
_LARGEST = 65535
_BUFFER = 1 << 21

Answer = bytes | None | Coroutine[Any, Any, bytes | None]
Take = Callable[[bytes, str, bool], Answer]
"""Takes a message, its sender and whether it came over TCP; returns the answer, None, or an
awaitable answer.
"""


class DnsConnections:
    """The server side of connections; each has a task that reads queries and answers them in
    order.
    """

    def __init__(self, take: Take, clock: Clock) -> None:
        self._take = take
        self._clock = clock
        self._tasks = TaskSet()

    def accept(self, connection: socket.socket, source: str = "") -> None:
        """`network.api.Accept`."""
        if len(self._tasks) >= MAX_CONNECTIONS:
            connection.close()
            return
        connection.setblocking(False)
        self._tasks.start(self._serve(connection, source or _peer(connection)))

    async def close(self) -> None:
        await self._tasks.close()

    async def _serve(self, connection: socket.socket, source: str) -> None:
        idle = _Idle(self._clock)
        try:
            while True:
                idle.begin()
                question = await read_framed(connection)
                idle.end()
                answer = self._take(question, source, True)
                if isinstance(answer, Coroutine):
                    answer = await answer
                if answer is not None:
                    idle.begin()  # a client that does not read counts as idle too
                    await send_framed(connection, answer)
                    idle.end()
        except OSError as problem:
            log.debug("connection from %s: %s", source, problem)
        except asyncio.CancelledError:
            if not idle.expired:
                raise
        finally:
            idle.end()
            connection.close()


class _Idle:
    """Cancels a task that waits for too long."""

    __slots__ = ("_clock", "_task", "_timer", "expired")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._task = asyncio.current_task()
        self._timer: Any = None
        self.expired = False

    def begin(self) -> None:
        self._timer = self._clock.call_later(IDLE, self._expire)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self.expired = True
        if self._task is not None:
            self._task.cancel()


class DnsDatagrams:
    """A UDP socket of this machine, read in bursts: at tens of thousands of queries per second
    every call counts.
    """

    def __init__(self, take: Take, address: str, port: int) -> None:
        self._take = take
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._tasks = TaskSet()
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            self._socket.setblocking(False)
            self._socket.bind((address, port))
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._readable)

    def _readable(self) -> None:
        receive, send, take = self._socket.recvfrom, self._socket.sendto, self._take
        for _ in range(_AT_ONCE):
            try:
                data, peer = receive(_LARGEST)
            except BlockingIOError:
                return
            except OSError as problem:  # ICMP error: the client did not receive an answer
                log.debug("datagram: %s", problem)
                continue
            answer = take(data, peer[0], False)
            if isinstance(answer, bytes):
                try:
                    send(answer, peer)
                except OSError as problem:  # the client retries
                    log.debug("answer to %s: %s", peer[0], problem)
            elif answer is not None and len(self._tasks) >= MAX_PENDING:
                answer.close()  # the client retries
            elif answer is not None:
                self._tasks.start(self._later(answer, peer))

    async def _later(self, coming: Coroutine[Any, Any, bytes | None], peer: Any) -> None:
        answer = await coming
        if answer is not None:
            try:
                self._socket.sendto(answer, peer)
            except OSError as problem:
                log.debug("answer to %s: %s", peer[0], problem)

    async def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        await self._tasks.close()
        self._socket.close()


class TcpListener:
    """A listening TCP socket of this machine."""

    def __init__(self, connections: DnsConnections, address: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._connections = connections
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setblocking(False)
            self._socket.bind((address, port))
            self._socket.listen(128)
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            connection, peer = self._socket.accept()
        except OSError as problem:
            log.debug("accept: %s", problem)
            return
        self._connections.accept(connection, str(peer[0]))

    async def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()


# ---- to other servers ----


class HostExchange:
    """Over this machine's own network."""

    async def datagram(self, server: DnsServerAddress, payload: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in server.address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as near:
            near.setblocking(False)
            near.connect(tuple(server))
            near.send(payload)
            while True:
                answer = await loop.sock_recv(near, _LARGEST)
                if answer[:2] == payload[:2]:
                    return answer

    async def stream(self, server: DnsServerAddress, payload: bytes) -> bytes:
        family = socket.AF_INET6 if ":" in server.address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as near:
            near.setblocking(False)
            await asyncio.get_running_loop().sock_connect(near, tuple(server))
            return await exchange_framed(near, payload)


class NoUpstream:
    """Never queries another server."""

    async def datagram(self, server: DnsServerAddress, payload: bytes) -> bytes:
        raise ConnectionRefusedError(f"no way to {server.address}")

    async def stream(self, server: DnsServerAddress, payload: bytes) -> bytes:
        raise ConnectionRefusedError(f"no way to {server.address}")


class DataplaneExchange:
    """Over the cluster's network, from `source`."""

    def __init__(self, dataplane: Dataplane, source: str = "") -> None:
        self._dataplane = dataplane
        self._source = source

    async def datagram(self, server: DnsServerAddress, payload: bytes) -> bytes:
        return await self._dataplane.ask(server.address, server.port, payload, self._source)

    async def stream(self, server: DnsServerAddress, payload: bytes) -> bytes:
        with await self._dataplane.connect(server.address, server.port, self._source) as near:
            return await exchange_framed(near, payload)


# ---- framing ----


async def exchange_framed(connection: socket.socket, payload: bytes) -> bytes:
    await send_framed(connection, payload)
    return await read_framed(connection)


def send_framed(connection: socket.socket, payload: bytes) -> Awaitable[None]:
    return asyncio.get_running_loop().sock_sendall(connection, len(payload).to_bytes(2) + payload)


async def read_framed(connection: socket.socket) -> bytes:
    """Raises ConnectionResetError if it ends before a whole message."""
    size = int.from_bytes(await _exactly(connection, 2))
    return await _exactly(connection, size)


async def _exactly(connection: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < size:
        piece = await loop.sock_recv(connection, size - len(data))
        if not piece:
            raise ConnectionResetError("the connection has ended")
        data += piece
    return data


def _peer(connection: socket.socket) -> str:
    try:
        peer = connection.getpeername()
    except OSError:
        return ""
    if isinstance(peer, tuple):
        return str(peer[0])
    # The model names the near end of its socket pairs `.../ADDRESS:PORT`.
    shown = peer.decode("utf-8", "replace") if isinstance(peer, bytes) else str(peer)
    return shown.rpartition("/")[2].rpartition(":")[0]
