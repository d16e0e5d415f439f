"""The modelled network: addresses, connections, host ports, and what is refused."""

from __future__ import annotations

import asyncio
import socket

import pytest

from transom.network.api import NetworkFailure, PortMapping, SandboxNetwork
from transom.network.model import ModelDataplane, NodeNetwork


def _sandbox(name: str, *ports: PortMapping) -> SandboxNetwork:
    return SandboxNetwork(name, "default", f"pod-{name}", f"uid-{name}", ports=ports)


def _greet(connection: socket.socket) -> None:
    connection.sendall(b"hello")
    connection.close()


def test_bytes_reach_who_listens() -> None:
    async def main() -> None:
        dataplane = ModelDataplane()
        close = dataplane.listen("10.0.0.5", 80, _greet)
        release = dataplane.hold("10.0.0.5")
        with await dataplane.connect("10.0.0.5", 80) as near:
            assert await asyncio.get_running_loop().sock_recv(near, 100) == b"hello"
        with pytest.raises(OSError, match="in use"):
            dataplane.listen("10.0.0.5", 80, _greet)
        close()
        with pytest.raises(ConnectionRefusedError):
            await dataplane.connect("10.0.0.5", 80)
        release()
        with pytest.raises(OSError, match="No route to host"):
            await dataplane.connect("10.0.0.5", 80)

    asyncio.run(main())


def test_a_node_gives_addresses_in_turn_until_none_is_left() -> None:
    async def main() -> None:
        network = NodeNetwork(ModelDataplane(), "192.168.0.1")
        assert network.ready() == "cni config uninitialized"
        with pytest.raises(NetworkFailure, match="cni config uninitialized"):
            await network.add(_sandbox("a"))
        network.use("10.244.1.0/29")
        got = [(await network.add(_sandbox(str(i))))[0] for i in range(5)]
        assert got == [f"10.244.1.{i}" for i in range(2, 7)]
        with pytest.raises(NetworkFailure, match="no IP addresses available in range set"):
            await network.add(_sandbox("late"))
        await network.remove("1")
        assert await network.add(_sandbox("late")) == ["10.244.1.3"]

    asyncio.run(main())


def test_a_host_port_leads_to_its_pod_until_the_pod_goes() -> None:
    async def main() -> None:
        dataplane = ModelDataplane()
        dataplane.hold("192.168.0.1")
        network = NodeNetwork(dataplane, "192.168.0.1")
        network.use("10.244.1.0/24")
        (address,) = await network.add(_sandbox("a", PortMapping(80, 8080)))
        dataplane.listen(address, 80, _greet)
        with await dataplane.connect("192.168.0.1", 8080) as near:
            assert await asyncio.get_running_loop().sock_recv(near, 100) == b"hello"
        with pytest.raises(NetworkFailure, match="8080"):
            await network.add(_sandbox("b", PortMapping(80, 8080)))
        await network.remove("a")
        with pytest.raises(ConnectionRefusedError):
            await dataplane.connect("192.168.0.1", 8080)

    asyncio.run(main())


def test_the_server_sees_who_calls() -> None:
    async def main() -> None:
        seen: list[object] = []
        dataplane = ModelDataplane()
        dataplane.listen("10.0.0.5", 80, lambda far: seen.append(far.getpeername()))
        for _ in range(2):
            (await dataplane.connect("10.0.0.5", 80, "10.244.1.3")).close()
        first, second = (str(bytes(name), "ascii").rpartition("/")[2] for name in seen if isinstance(name, bytes))
        assert (first, second) == ("10.244.1.3:32768", "10.244.1.3:32769")

    asyncio.run(main())
