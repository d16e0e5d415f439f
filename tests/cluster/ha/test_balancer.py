"""The load balancer in front of the API servers."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.etcd_process import eventually

from transom.cluster.ha.balancer import ServerBackend, TcpBalancer
from transom.kit import pki


class Backend:
    """A TLS server with /readyz; any other request is answered with its name."""

    def __init__(self, name: str, context: ssl.SSLContext) -> None:
        self.name = name
        self.ready = True
        self.hangs = False
        self._context = context
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self._context
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if self.hangs:
                    await reader.read()
                    return
                status = b"500 x" if b" /readyz " in head and not self.ready else b"200 OK"
                body = self.name.encode()
                writer.write(
                    b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)
                )
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    async def kill(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


class Balanced:
    def __init__(
        self, balancer: TcpBalancer, backends: list[Backend], port: int, tls: ssl.SSLContext
    ) -> None:
        self.balancer, self.backends, self.port, self._tls = balancer, backends, port, tls

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self._tls)

    async def unused(self) -> bool:
        return not any(one.connections for one in self.balancer.backends)

    async def ask(self) -> str:
        """The name of the server that answers on a new connection."""
        reader, writer = await self.open()
        try:
            return await who(reader, writer)
        finally:
            writer.close()


async def who(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    return (await reader.readexactly(int(head.split(b"Length: ")[1].split()[0]))).decode()


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    folder = tmp_path_factory.mktemp("pki")
    authority = pki.make_ca("test")
    pair = pki.issue_server(authority, "server", ["localhost"], ["127.0.0.1"])
    pki.save_key_pair(pair, folder / "s.crt", folder / "s.key")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "s.crt", folder / "s.key")
    Path(folder / "ca.crt").write_bytes(authority.certificate)
    return server, ssl.create_default_context(cafile=folder / "ca.crt")


@asynccontextmanager
async def balanced(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], count: int = 3
) -> AsyncIterator[Balanced]:
    backends = [Backend(f"b{number}", contexts[0]) for number in range(count)]
    for backend in backends:
        await backend.start()
    balancer = TcpBalancer(
        [ServerBackend(one.name, "127.0.0.1", one.port) for one in backends], contexts[1]
    )
    listening = socket.create_server(("127.0.0.1", 0))
    await balancer.start([listening])
    try:
        for one in backends:
            assert await balancer.wait_ready(one.name, 20)
        yield Balanced(balancer, backends, listening.getsockname()[1], contexts[1])
    finally:
        await balancer.stop()
        for backend in backends:
            await backend.kill()


Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


async def test_connections_are_spread_over_the_servers(contexts: Contexts) -> None:
    async with balanced(contexts) as found:
        opened = [await found.open() for _ in range(6)]
        names = [await who(*one) for one in opened]
        assert sorted(names) == ["b0", "b0", "b1", "b1", "b2", "b2"]
        for _, writer in opened:
            writer.close()
        await eventually(found.unused)


async def test_a_server_that_is_gone_gets_no_connections_and_comes_back(
    contexts: Contexts,
) -> None:
    async with balanced(contexts, 2) as found:
        reader, writer = await found.open()
        name = await who(reader, writer)
        dead = next(one for one in found.backends if one.name == name)
        await dead.kill()
        with pytest.raises((asyncio.IncompleteReadError, OSError)):
            await who(reader, writer)
        # The balancer is not notified: it finds out when it connects.
        assert {await found.ask() for _ in range(4)} == {
            one.name for one in found.backends if one is not dead
        }
        await dead.start()
        assert await found.balancer.wait_ready(name, 20)
        await eventually(found.unused)
        opened = [await found.open() for _ in range(2)]
        assert {await who(*one) for one in opened} == {"b0", "b1"}
        for _, other in opened:
            other.close()


async def test_a_server_that_is_not_ready_keeps_its_connections(contexts: Contexts) -> None:
    async with balanced(contexts, 2) as found:
        opened = [await found.open() for _ in range(2)]
        names = [await who(*one) for one in opened]
        found.backends[0].ready = False

        async def noticed() -> bool:
            return not found.balancer.find("b0").ready

        await eventually(noticed)
        assert [await who(*one) for one in opened] == names
        assert {await found.ask() for _ in range(3)} == {"b1"}
        # When none is ready, those that answer are used: their cache may still be read.
        found.backends[1].ready = False

        async def none_ready() -> bool:
            return not any(one.ready for one in found.balancer.backends)

        await eventually(none_ready)
        assert await found.ask() in ("b0", "b1")
        for _, writer in opened:
            writer.close()


async def test_connections_of_a_server_that_hangs_are_ended(contexts: Contexts) -> None:
    async with balanced(contexts, 2) as found:
        opened = [await found.open() for _ in range(2)]
        names = {await who(*one): one for one in opened}
        found.backends[0].hangs = True
        reader, writer = names["b0"]
        with pytest.raises((asyncio.IncompleteReadError, OSError)):
            await who(reader, writer)
        assert await found.ask() == "b1"
        names["b1"][1].close()


async def test_a_server_that_drains_gets_no_new_connections(contexts: Contexts) -> None:
    async with balanced(contexts, 2) as found:
        await found.balancer.drain("b0")
        assert {await found.ask() for _ in range(4)} == {"b1"}
        await found.balancer.restarted("b0")
        assert await found.balancer.wait_ready("b0", 20)
