"""The same flows on both data planes: the path that the model computes, and what real sockets in
namespaces see.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.network.fabrics import Cluster

from transom.kit.clock import RealClock
from transom.network.kernel.dataplane import KernelDataplane
from transom.network.model.walk import walk_packet
from transom.network.packets import Packet, Protocol
from transom.network.stacks import NetworkStack

PATIENCE = 0.6
PATIENT = 15.0
_TRIES = 64  # of the model, which draws backends at random
_ASKED = 3


class Flow(NamedTuple):
    origin: str  # a node, a pod, "external"
    address: str
    port: int
    protocol: Protocol = "tcp"


class Seen(NamedTuple):
    """How it ended, and for who was reached: where, and the source that was seen there."""

    outcome: str
    stack: str = ""
    source: str = ""


class Servers:
    """Everybody listens: pods on their port, nodes and the outside on others. Each answers with who
    it is and what it saw.
    """

    def __init__(self, cluster: Cluster, plane: KernelDataplane, port: int = 80) -> None:
        self.places: set[tuple[str, str, int, str]] = set()
        self._closers = []
        for name, stack in cluster.fabric.stacks.items():
            for address in stack.addresses():
                self.places |= {(name, address, port, "tcp"), (name, address, port, "udp")}
                self._closers.append(
                    plane.listen(address, port, lambda sock, name=name: self._tell(name, sock))
                )
                self._closers.append(plane.answer(address, port, self._answerer(name)))

    def close(self) -> None:
        for close in self._closers:
            close()

    def listening(self, stack: NetworkStack, address: str, port: int, protocol: str) -> bool:
        return (stack.name, address, port, protocol) in self.places

    @staticmethod
    def _tell(name: str, sock: socket.socket) -> None:
        with sock:
            sock.send(f"{name} {sock.getpeername()[0]}".encode())
            sock.shutdown(socket.SHUT_WR)

    @staticmethod
    def _answerer(name: str) -> Any:
        async def respond(_payload: bytes, source: str) -> bytes:
            return f"{name} {source}".encode()

        return respond


def modelled(cluster: Cluster, servers: Servers, flow: Flow) -> set[Seen]:
    """Everything that may happen."""
    found = set()
    rng = random.Random(repr(flow))
    for _ in range(_TRIES):
        port = 0 if flow.protocol == "icmp" else flow.port
        packet = Packet(
            cluster.source(flow.origin, flow.address),
            flow.address,
            flow.protocol,
            rng.randint(33000, 60000),
            port,
        )
        end = walk_packet(
            cluster.world, packet, cluster.stack(flow.origin), listening=servers.listening, rng=rng
        )
        if end.outcome == "delivered" and end.packet is not None:
            found.add(
                Seen("delivered", end.stack, end.packet.source)
                if flow.protocol != "icmp"
                else Seen("delivered")
            )
        else:
            found.add(Seen(end.outcome))
    return found


async def real(
    cluster: Cluster, plane: KernelDataplane, flow: Flow, patience: float = PATIENCE
) -> list[Seen]:
    source = cluster.source(flow.origin, flow.address)
    plane.patience = patience
    return list(
        await asyncio.gather(*(_once(plane, flow, source, patience) for _ in range(_ASKED)))
    )


async def _once(plane: KernelDataplane, flow: Flow, source: str, patience: float) -> Seen:
    try:
        if flow.protocol == "icmp":
            return Seen(
                "delivered" if await plane.echo(flow.address, source, patience) else "dropped"
            )
        if flow.protocol == "udp":
            printed = await plane.ask(flow.address, flow.port, b"?", source, patience)
        else:
            connection = await plane.connect(flow.address, flow.port, source)
            with connection:
                printed = await asyncio.get_running_loop().sock_recv(connection, 1000)
    except ConnectionRefusedError:
        return Seen("refused")
    except OSError:
        return Seen("dropped")
    name, _, seen = printed.decode().partition(" ")
    return Seen("delivered", name, seen)


async def differences(cluster: Cluster, flows: Iterable[Flow]) -> list[str]:
    plane = KernelDataplane(cluster.fabric, "agreement", RealClock(), patience=PATIENCE)
    try:
        await plane.settled()
        assert not plane.problems, plane.problems
        servers = Servers(cluster, plane)
        wrong = []
        flows = list(flows)
        for start in range(0, len(flows), 200):
            batch = flows[start : start + 200]
            results = await asyncio.gather(*(real(cluster, plane, flow) for flow in batch))
            for flow, seen in zip(batch, results, strict=True):
                may = modelled(cluster, servers, flow)
                if not set(seen) <= may:  # on a busy machine an answer may only be late
                    seen = await real(cluster, plane, flow, PATIENT)
                if not set(seen) <= may:
                    wrong.append(
                        f"{flow}: the model says {sorted(may)}, the kernel {sorted(set(seen))}"
                    )
        servers.close()
        return wrong
    finally:
        await plane.close()
