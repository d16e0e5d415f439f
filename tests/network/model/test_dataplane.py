"""The model as a data plane: sockets between addresses, and how connections fail."""

from __future__ import annotations

import asyncio
import errno
import random
import socket

import pytest
from tests.network.fabrics import OUTSIDE, Cluster, make_cluster

from transom.network.model.dataplane import ModelDataplane

VIP = "10.96.0.20"


class Net:
    def __init__(self) -> None:
        self.cluster: Cluster = make_cluster()
        for name, node in (("l1", "linux-1"), ("w1", "windows-1"), ("w3", "windows-2")):
            self.cluster.pod(name, node)
        self.plane = ModelDataplane(self.cluster.fabric, self.cluster.clock, random.Random(5))
        self.accepted: list[socket.socket] = []

    def serve(self, name: str, port: int = 80) -> None:
        self.plane.listen(self.cluster.address(name), port, self.accepted.append)

    async def failing(self, coming: asyncio.Future[object], seconds: float) -> BaseException:
        task = asyncio.ensure_future(coming)
        await self.cluster.clock.run_for(seconds)
        assert task.done()
        problem = task.exception()
        assert problem is not None
        return problem


async def talk(near: socket.socket, far: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(near, b"ping")
    assert await loop.sock_recv(far, 10) == b"ping"
    await loop.sock_sendall(far, b"pong")
    assert await loop.sock_recv(near, 10) == b"pong"
    near.close()
    far.close()


async def test_a_connection_and_the_source_address_that_the_server_sees() -> None:
    net = Net()
    net.serve("w3")
    net.cluster.service("web", VIP, ["w3"])
    mine = net.cluster.address("w1")
    near = await net.plane.connect(net.cluster.address("w3"), 80, mine)
    assert near.getsockname().rsplit(b"/", 1)[1].startswith(mine.encode() + b":")
    await talk(near, net.accepted.pop())
    translated = await net.plane.connect(VIP, 80, mine)
    far = net.accepted.pop()
    assert (
        far.getpeername().rsplit(b"/", 1)[1].startswith(net.cluster.ip("windows-1").encode() + b":")
    )
    await talk(translated, far)


async def test_the_api_server_is_at_the_first_node() -> None:
    net = Net()
    net.serve("l1")
    net.plane.listen(net.cluster.ip("windows-2"), 10250, net.accepted.append)
    for address, port in (
        (net.cluster.address("l1"), 80),
        (net.cluster.ip("windows-2"), 10250),
    ):
        near = await net.plane.connect(address, port)
        assert near.getsockname() == "", "it has no name"
        await talk(near, net.accepted.pop())


async def test_how_connections_fail() -> None:
    net = Net()
    mine = net.cluster.address("w1")
    with pytest.raises(ConnectionRefusedError):
        await net.plane.connect(net.cluster.address("w3"), 81, mine)
    with pytest.raises(OSError) as unreachable:
        await net.plane.connect(VIP, 80, net.cluster.ip("windows-1"))
    assert unreachable.value.errno == errno.EHOSTUNREACH
    with pytest.raises(OSError) as unserved:
        await net.plane.connect(net.cluster.address("w3"), 80, "10.1.2.3")
    assert unserved.value.errno == errno.EHOSTUNREACH
    lost = net.plane.connect("10.244.2.200", 80, mine)
    assert isinstance(await net.failing(lost, 31), TimeoutError)  # type: ignore[arg-type]
    linux = net.plane.connect("10.244.1.200", 80, net.cluster.address("l1"))
    assert getattr(await net.failing(linux, 3), "errno", 0) == errno.EHOSTUNREACH  # type: ignore[arg-type]


async def test_the_first_packet_is_sent_again() -> None:
    net = Net()
    mine = net.cluster.address("l1")
    there = net.cluster.stack("w3")
    net.serve("w3")
    address = net.cluster.address("w3")
    link, addresses = there.links["Ethernet"], list(there.links["Ethernet"].addresses)
    for held in addresses:
        there.delete_address(link.name, str(held))
    coming = asyncio.ensure_future(net.plane.connect(address, 80, mine))
    await net.cluster.clock.run_for(2)
    assert not coming.done()
    for held in addresses:
        there.add_address(link.name, str(held))
    there.replace_route("0.0.0.0/0", link.name, "10.244.3.2")
    await net.cluster.clock.run_for(10)
    await talk(await coming, net.accepted.pop())


def test_addresses_in_use() -> None:
    net = Net()
    net.serve("w1")
    with pytest.raises(OSError) as taken:
        net.serve("w1")
    assert taken.value.errno == errno.EADDRINUSE
    close = net.plane.listen("10.0.0.1", 80, net.accepted.append)
    close()
    net.plane.listen("10.0.0.1", 80, net.accepted.append)


async def test_datagrams() -> None:
    net = Net()
    seen: list[str] = []

    async def respond(payload: bytes, source: str) -> bytes | None:
        seen.append(source)
        return payload.upper() if payload else None

    net.plane.answer(net.cluster.address("w3"), 53, respond)
    net.cluster.service("dns", "10.96.0.10", ["w3"], port=53, target=53, protocol="UDP")
    mine = net.cluster.address("l1")
    assert await net.plane.ask(net.cluster.address("w3"), 53, b"a", mine) == b"A"
    assert await net.plane.ask("10.96.0.10", 53, b"b", mine) == b"B"
    assert seen == [mine, mine]
    with pytest.raises(ConnectionRefusedError):
        await net.plane.ask(net.cluster.address("w3"), 54, b"a", mine)
    silent = net.plane.ask(net.cluster.address("w3"), 53, b"", mine, timeout=2)
    assert isinstance(await net.failing(silent, 2), TimeoutError)  # type: ignore[arg-type]
    with pytest.raises(OSError):
        await net.plane.ask("10.96.0.99", 53, b"a", net.cluster.ip("windows-1"))
    await net.plane.settled()


async def test_an_outside_name_answers_only_where_a_server_listens() -> None:
    net = Net()
    net.plane.listen(OUTSIDE, 443, net.accepted.append)
    near = await net.plane.connect(OUTSIDE, 443, net.cluster.address("w1"))
    assert (
        net.accepted[0]
        .getpeername()
        .rsplit(b"/", 1)[1]
        .startswith(net.cluster.ip("windows-1").encode())
    )
    await talk(near, net.accepted.pop())
    with pytest.raises(ConnectionRefusedError):
        await net.plane.connect(OUTSIDE, 444, net.cluster.address("w1"))
