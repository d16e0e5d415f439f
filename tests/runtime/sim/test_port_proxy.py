"""Port proxies copy data between connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from transom.kit.clock import RealClock
from transom.machines.windows.port_proxy import (
    PortProxyEntry,
    delete_port_proxy,
    reset_port_proxies,
    set_port_proxy,
)
from transom.machines.windows.registry import WindowsRegistry
from transom.network.api import Accept, Dataplane
from transom.runtime.sim.port_proxy import PortProxies
from transom.runtime.sim.sockets import NetworkNamespace


class NoNetwork:
    """Connections stay inside of the namespace."""

    def listen(self, _address: str, _port: int, _accept: Accept) -> Callable[[], None]:
        return lambda: None

    async def connect(self, _address: str, _port: int, _source: str) -> socket.socket:
        raise ConnectionRefusedError


class Machine:
    def __init__(self) -> None:
        self.registry = WindowsRegistry()
        self.namespace = NetworkNamespace(
            cast(Dataplane, NoNetwork()), RealClock(), ("10.0.0.5", "fd00::5"), lambda: 1.0
        )
        self.proxies = PortProxies(self.namespace, self.registry, self.resolve)
        self.namespace.listen(9000, self._echo)
        self._tasks: set[asyncio.Task[None]] = set()

    async def resolve(self, name: str) -> list[str]:
        return {"web": ["fd00::5", "10.0.0.5"]}[name]

    def _echo(self, connection: socket.socket) -> None:
        """Answers when the client has ended its side."""

        async def answer() -> None:
            loop = asyncio.get_running_loop()
            received = b""
            with connection:
                while data := await loop.sock_recv(connection, 100):
                    received += data
                await loop.sock_sendall(connection, received.upper())

        task = asyncio.get_running_loop().create_task(answer())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def add(self, kind: str, listen: str, connect: str, port: str = "9000") -> None:
        set_port_proxy(self.registry, PortProxyEntry(kind, listen, "80", connect, port))

    async def send(self, address: str, text: bytes = b"ping") -> bytes:
        loop = asyncio.get_running_loop()
        with (
            await self.namespace.connect(address, 80) as connection,
            contextlib.suppress(OSError),  # the proxy may have closed it already
        ):
            await loop.sock_sendall(connection, text)
            connection.shutdown(socket.SHUT_WR)
            return await loop.sock_recv(connection, 100)
        return b""


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    made.namespace.close()


@pytest.mark.parametrize(
    ("kind", "listen", "connect", "client"),
    [
        ("v4tov4", "*", "127.0.0.1", "127.0.0.1"),
        ("v4tov4", "0.0.0.0", "10.0.0.5", "10.0.0.5"),
        ("v4tov4", "10.0.0.5", "web", "10.0.0.5"),
        ("v4tov6", "localhost", "fd00::5", "127.0.0.1"),
        ("v4tov6", "*", "*", "10.0.0.5"),
        ("v6tov4", "::", "localhost", "::1"),
        ("v6tov6", "fd00::5", "web", "fd00::5"),
    ],
)
async def test_connections_are_copied_both_ways(
    machine: Machine, kind: str, listen: str, connect: str, client: str
) -> None:
    machine.add(kind, listen, connect)
    machine.proxies.start(7)
    assert await machine.send(client) == b"PING"
    machine.proxies.stop()
    with pytest.raises(ConnectionRefusedError):
        await machine.send(client)


@pytest.mark.parametrize(
    ("kind", "listen", "client"),
    [
        ("v4tov4", "*", "::1"),
        ("v6tov4", "*", "127.0.0.1"),
        ("v4tov4", "127.0.0.1", "10.0.0.5"),
        ("v4tov4", "10.9.9.9", "10.0.0.5"),
        ("v4tov4", "fd00::5", "fd00::5"),
    ],
)
async def test_other_addresses_are_refused(
    machine: Machine, kind: str, listen: str, client: str
) -> None:
    machine.add(kind, listen, "127.0.0.1")
    machine.proxies.start(7)
    with pytest.raises(ConnectionRefusedError):
        await machine.send(client)


async def test_a_connection_ends_if_the_destination_refuses_or_the_proxy_is_its_own(
    machine: Machine,
) -> None:
    machine.add("v4tov4", "*", "127.0.0.1", "9999")
    machine.proxies.start(7)
    assert await machine.send("127.0.0.1") == b""
    machine.add("v4tov4", "*", "127.0.0.1", "80")
    machine.proxies.reload()
    assert await machine.send("127.0.0.1") == b""


async def test_changes_apply_when_the_service_reloads(machine: Machine) -> None:
    machine.proxies.reload()
    machine.add("v4tov4", "*", "127.0.0.1")
    machine.proxies.start(7)

    def listening() -> list[int]:
        return [one.pid for one in machine.namespace.sockets() if one.port == 80]

    assert listening() == [7]
    assert delete_port_proxy(machine.registry, "v4tov4", "*", "80")
    assert not delete_port_proxy(machine.registry, "v4tov4", "*", "80")
    assert listening() == [7]
    machine.proxies.reload()
    assert listening() == []
    machine.add("v4tov4", "*", "127.0.0.1", "30000-50000")  # netsh accepts it
    machine.proxies.reload()
    assert listening() == []
    machine.add("v4tov4", "*", "127.0.0.1")
    machine.proxies.reload()
    assert listening() == [7]
    reset_port_proxies(machine.registry)
    machine.proxies.reload()
    assert listening() == []
