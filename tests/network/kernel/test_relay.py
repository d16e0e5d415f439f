"""Connections between loopback and the cluster: through services, both protocols, and to external
hosts that the user has configured.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.network.fabrics import OUTSIDE, make_cluster

from transom.kit.clock import RealClock
from transom.network.kernel.dataplane import KernelDataplane
from transom.network.kernel.namespaces import missing_kernel_support
from transom.node.relay import OutgoingRelay, PortRelay, wanted_relays

privileged = pytest.mark.skipif(
    bool(missing_kernel_support()), reason=missing_kernel_support() or "-"
)


class Services:
    """As much of an informer as a relay needs."""

    def add_handler(self, **handlers: Callable[..., None]) -> None:
        self.handlers = handlers


class Plane:
    """Every address is a server on loopback that returns what was requested."""

    def __init__(self) -> None:
        self.requested: list[tuple[str, int, str]] = []
        self.slow: set[str] = set()

    async def connect(self, address: str, port: int, source: str = "") -> socket.socket:
        self.requested.append((address, port, source))
        if address in self.slow:
            await asyncio.sleep(30)
        near, far = socket.socketpair()
        for end in (near, far):
            end.setblocking(False)
        asyncio.get_running_loop().create_task(_echoing(far, f"{address}:{port} "))
        return near

    async def ask(
        self,
        address: str,
        port: int,
        payload: bytes,
        source: str = "",
        timeout: float = 5.0,  # noqa: ASYNC109
    ) -> bytes:
        return f"{address}:{port} ".encode() + payload


async def _echoing(far: socket.socket, before: str) -> None:
    with far:
        data = await asyncio.get_running_loop().sock_recv(far, 1000)
        await asyncio.get_running_loop().sock_sendall(far, before.encode() + data)


def service(kind: str = "NodePort", *, ingress: str = "", **port: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"type": kind, "ports": [{"port": 80, "protocol": "TCP", **port}]},
    }
    if ingress:
        made["status"] = {"loadBalancer": {"ingress": [{"ip": ingress}]}}
    return made


@pytest.mark.parametrize(
    ("made", "places"),
    [
        (service("ClusterIP"), []),
        (service(nodePort=30080), [("", 30080)]),
        (
            service("LoadBalancer", ingress="198.18.0.1", nodePort=30080),
            [("198.18.0.1", 80), ("", 30080)],
        ),
        (service("LoadBalancer"), []),
        (service("NodePort", nodePort=30080, protocol="SCTP"), []),
    ],
)
def test_what_of_a_service_is_reached_from_outside(
    made: dict[str, Any], places: list[tuple[str, int]]
) -> None:
    assert [(way.address, way.number) for way in wanted_relays(made)] == places


async def call(place: str, data: bytes) -> bytes:
    host, _, port = place.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    writer.write_eof()
    try:
        return await reader.read()
    finally:
        writer.close()


def started(plane: Any, nodes: list[str]) -> tuple[PortRelay, Services]:
    services = Services()
    return PortRelay(plane, services, (OUTSIDE,), lambda: nodes), services  # type: ignore[arg-type]


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await asyncio.wait_for(body(), 20)

    asyncio.run(whole())


def test_a_node_port_is_asked_at_nodes_from_the_host_outside() -> None:
    async def body() -> None:
        plane = Plane()
        relay, services = started(plane, ["172.20.0.2"])
        services.handlers["add"](service(nodePort=30080))
        (way,) = relay.ways()
        assert (way.service, way.inside) == ("default/web", "nodes:30080")
        assert await call(way.outside, b"hello") == b"172.20.0.2:30080 hello"
        assert plane.requested == [("172.20.0.2", 30080, OUTSIDE)]
        services.handlers["delete"](service())
        assert relay.ways() == []
        with pytest.raises(OSError):
            await call(way.outside, b"")
        relay.close()

    run(body)


def test_a_node_that_does_not_answer_delays_no_other() -> None:
    async def body() -> None:
        plane = Plane()
        plane.slow = {"172.20.0.2"}
        relay, services = started(plane, ["172.20.0.2", "172.20.0.3"])
        services.handlers["add"](service(nodePort=30080))
        assert await call(relay.ways()[0].outside, b"") == b"172.20.0.3:30080 "
        relay.close()

    run(body)


def test_a_port_that_the_machine_uses_is_another_outside() -> None:
    async def body() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            number = taken.getsockname()[1]
            relay, services = started(Plane(), ["172.20.0.2"])
            services.handlers["add"](service(nodePort=number))
            (way,) = relay.ways()
            assert way.inside == f"nodes:{number}"
            assert way.outside != f"127.0.0.1:{number}"
            relay.close()

    run(body)


def test_datagrams() -> None:
    async def body() -> None:
        relay, services = started(Plane(), ["172.20.0.2"])
        services.handlers["add"](service(nodePort=30053, protocol="UDP"))
        host, _, port = relay.ways()[0].outside.rpartition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            client.connect((host, int(port)))
            client.send(b"?")
            assert await asyncio.get_running_loop().sock_recv(client, 100) == b"172.20.0.2:30053 ?"
        relay.close()

    run(body)


def test_a_changed_service_keeps_what_stays() -> None:
    async def body() -> None:
        relay, services = started(Plane(), ["172.20.0.2"])
        services.handlers["add"](service(nodePort=30080))
        before = relay.ways()
        services.handlers["update"](
            None, service("LoadBalancer", ingress="198.18.0.1", nodePort=30080)
        )
        after = relay.ways()
        assert before[0] in after
        assert len(after) == 2
        relay.close()

    run(body)


@privileged
def test_from_loopback_to_a_windows_pod_and_from_a_pod_to_this_machine() -> None:
    async def body() -> None:
        cluster = make_cluster("l2bridge", 1, 1)
        pod = cluster.pod("pod", "windows-1")
        cluster.service("web", "10.96.0.10", ["pod"], kind="NodePort", node_port=30080)
        plane = KernelDataplane(cluster.fabric, "relay", RealClock(), patience=15)
        await plane.settled()

        def accept(connection: socket.socket) -> None:
            with connection:
                connection.send(connection.getpeername()[0].encode())

        plane.listen(pod, 80, accept)
        relay, services = started(plane, [cluster.ip("windows-1")])
        services.handlers["add"](service(nodePort=30080))
        # Without DSR the pod sees its node.
        assert await call(relay.ways()[0].outside, b"") == cluster.ip("windows-1").encode()
        relay.close()

        with socket.create_server(("127.0.0.1", 0)) as machine:
            machine.setblocking(False)
            number = machine.getsockname()[1]
            out = OutgoingRelay(plane, cluster.fabric.stacks["external"])
            with pytest.raises(ConnectionRefusedError):
                await plane.connect(OUTSIDE, number, pod)
            await out.open([f"127.0.0.1:{number}"])
            await plane.settled()
            loop = asyncio.get_running_loop()
            inside = out.ways[0].inside.rpartition(":")[0]
            with await plane.connect(inside, number, pod) as connection:
                served, _ = await loop.sock_accept(machine)
                with served:
                    await loop.sock_sendall(connection, b"from a pod")
                    assert await loop.sock_recv(served, 100) == b"from a pod"
            out.close()
        await plane.close()

    run(body)
