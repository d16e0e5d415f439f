"""A network for tests: a table of addresses and their listeners."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Callable
from itertools import count

from transom.network.api import Accept, NetworkFailure, Respond, SandboxNetwork

Place = tuple[str, int]


class TableDataplane:
    def __init__(self) -> None:
        self._listeners: dict[Place, Accept] = {}
        self._responders: dict[Place, Respond] = {}
        self._held: dict[str, int] = {}  # address -> how many hold it
        self._connections = count()
        self.forwarded: dict[Place, Place] = {}  # host ports

    def hold(self, address: str) -> Callable[[], None]:
        """Makes the address exist; the answer ends that."""
        self._held[address] = self._held.get(address, 0) + 1

        def release() -> None:
            self._held[address] -= 1

        return release

    def listen(self, address: str, port: int, accept: Accept) -> Callable[[], None]:
        if (address, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._listeners[address, port] = accept
        return lambda: self._listeners.pop((address, port), None) and None

    def answer(self, address: str, port: int, respond: Respond) -> Callable[[], None]:
        self._responders[address, port] = respond
        return lambda: self._responders.pop((address, port), None) and None

    async def connect(self, address: str, port: int, source: str = "") -> socket.socket:
        place = self.forwarded.get((address, port), (address, port))
        accept = self._listeners.get(place)
        if accept is None:
            if self._held.get(place[0]):
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        near, far = socket.socketpair()
        if source:
            number = next(self._connections)
            caller = f"[{source}]" if ":" in source else source
            near.bind(
                f"\0transom/{os.getpid()}/{id(self)}/{number}/{caller}:{32768 + number % 28000}"
            )
        near.setblocking(False)
        far.setblocking(False)
        accept(far)
        return near

    async def ask(
        self,
        address: str,
        port: int,
        payload: bytes,
        source: str = "",
        timeout: float = 5.0,  # noqa: ASYNC109
    ) -> bytes:
        respond = self._responders.get((address, port))
        answer = await respond(payload, source) if respond is not None else None
        if answer is None:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        return answer

    async def echo(self, address: str, source: str = "", patience: float = 1.0) -> bool:
        return bool(self._held.get(address))

    async def settled(self) -> None:
        """Always."""


class TableNetwork:
    """The pods of one node: addresses from its range, in turn."""

    def __init__(
        self, dataplane: TableDataplane, node_ip: str, cidr: str, *, reserved: int = 2
    ) -> None:
        self._dataplane = dataplane
        self._node_ip = node_ip
        network = ipaddress.ip_network(cidr)
        self._free = [str(network[number]) for number in range(reserved, network.num_addresses - 1)]
        self._held: dict[str, list[Callable[[], object]]] = {}
        self.fault = ""  # while set, nothing works, and this says why

    def ready(self) -> str:
        return self.fault

    async def add(self, sandbox: SandboxNetwork) -> list[str]:
        if self.fault:
            raise NetworkFailure(self.fault)
        address = self._free.pop(0)
        held = self._held[sandbox.sandbox] = [
            self._dataplane.hold(address),
            lambda: self._free.append(address),
        ]
        forwarded = self._dataplane.forwarded
        for mapping in sandbox.ports:
            place = (self._node_ip, mapping.host_port)
            if not mapping.host_port or mapping.protocol != "TCP":
                continue
            if place in forwarded:
                await self.remove(sandbox.sandbox)
                raise NetworkFailure(
                    f"cannot open hostport {mapping.host_port} for pod "
                    f"{sandbox.pod}_{sandbox.namespace}"
                )
            forwarded[place] = (address, mapping.container_port)
            held.append(lambda place=place: forwarded.pop(place))  # type: ignore[misc]
        return [address]

    async def remove(self, sandbox: str) -> None:
        for release in self._held.pop(sandbox, ()):
            release()
