"""Sockets inside namespaces: created by a visitor's thread, used by the event loop like any others.

A socket stays in the namespace in which it was created, so only its creation must happen there.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Literal

from transom.kit.clock import Clock
from transom.kit.task_set import TaskSet
from transom.network.api import Accept, Respond

_IP_FREEBIND, _IPV6_FREEBIND, _IP_BIND_ADDRESS_NO_PORT = 15, 78, 24
_BACKLOG = 512
_ECHO = {
    socket.AF_INET: (socket.IPPROTO_ICMP, 8, 0),
    socket.AF_INET6: (socket.IPPROTO_ICMPV6, 128, 129),
}
_AT_ONCE = 64  # connections to accept before yielding to other tasks
_LARGEST = 65535


Kind = Literal["stream", "datagram", "ping"]
STREAM: Kind = "stream"
DATAGRAM: Kind = "datagram"
PING: Kind = "ping"


def _make(kind: Kind, address: str) -> socket.socket:
    mine = socket_family(address)
    form = socket.SOCK_STREAM if kind == STREAM else socket.SOCK_DGRAM
    protocol = _ECHO[mine][0] if kind == PING else 0
    return socket.socket(mine, form | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)


def socket_family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def make_client(kind: Kind, destination: str, source: str) -> socket.socket:
    made = _make(kind, destination)
    try:
        if source:
            # The kernel then looks for a port that is free for this destination only.
            made.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            made.bind((source, 0))
    except OSError:
        made.close()
        raise
    return made


def make_server(kind: Kind, address: str, port: int) -> socket.socket:
    """The address may appear later: its configuration may still be on its way to the kernel."""
    made = _make(kind, address)
    try:
        if ":" in address:
            made.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
        else:
            made.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        if kind == STREAM:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        if kind == STREAM:
            made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made


@contextlib.asynccontextmanager
async def time_limit(clock: Clock, seconds: float) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as scope:
        timer = clock.call_later(seconds, lambda: scope.reschedule(loop.time()))
        try:
            yield
        finally:
            timer.cancel()


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Converts errors to those of the Dataplane interface."""
    try:
        yield
    except PermissionError as error:  # a rule dropped it on its own host
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from error
    except OSError as error:
        if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH)) from error
        raise


async def connect_in_namespace(
    client: socket.socket, address: str, port: int, clock: Clock, patience: float
) -> socket.socket:
    try:
        with translated_errors():
            async with time_limit(clock, patience):
                await asyncio.get_running_loop().sock_connect(client, (address, port))
    except BaseException:
        client.close()
        raise
    return client


async def ask_in_namespace(
    client: socket.socket, address: str, port: int, payload: bytes, clock: Clock, patience: float
) -> bytes:
    loop = asyncio.get_running_loop()
    with client, translated_errors():
        async with time_limit(clock, patience):
            client.connect((address, port))
            try:
                await loop.sock_sendall(client, payload)
            except PermissionError:
                # A rule on this host: a rejecting rule has left the reason on the socket.
                if client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED:
                    raise ConnectionRefusedError(
                        errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)
                    ) from None
                raise
            return await loop.sock_recv(client, _LARGEST)


async def ping_in_namespace(
    client: socket.socket, address: str, clock: Clock, patience: float
) -> bool:
    loop = asyncio.get_running_loop()
    _, request, reply = _ECHO[socket_family(address)]
    try:
        with client:
            async with time_limit(clock, patience):
                client.connect((address, 0))
                await loop.sock_sendall(
                    client, struct.pack("!BBHHH", request, 0, 0, 0, 1) + b"transom"
                )
                return (await loop.sock_recv(client, _LARGEST))[0] == reply
    except OSError:
        return False


def take_connections(
    loop: asyncio.AbstractEventLoop, server: socket.socket, accept: Accept
) -> Callable[[], None]:
    def ready() -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _address = server.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            connection.setblocking(False)
            accept(connection)

    return _reading(loop, server, ready)


def take_datagrams(
    loop: asyncio.AbstractEventLoop, server: socket.socket, respond: Respond
) -> Callable[[], None]:
    tasks = TaskSet()

    async def reply(payload: bytes, sender: tuple[str, int]) -> None:
        answer = await respond(payload, sender[0])
        if answer is not None:
            with contextlib.suppress(OSError):  # the client may be gone
                # uvloop has no sock_sendto; if the buffer is full, the datagram is lost
                server.sendto(answer, sender)

    def ready() -> None:
        for _ in range(_AT_ONCE):
            try:
                payload, sender = server.recvfrom(_LARGEST)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # an earlier reply could not be delivered
                continue
            tasks.start(reply(payload, sender))

    return _reading(loop, server, ready)


def _reading(
    loop: asyncio.AbstractEventLoop, server: socket.socket, ready: Callable[[], None]
) -> Callable[[], None]:
    loop.add_reader(server, ready)

    def close() -> None:
        if server.fileno() >= 0:
            loop.remove_reader(server)
            server.close()

    return close
