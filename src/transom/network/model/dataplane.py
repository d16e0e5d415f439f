"""The model as a data plane: a connection is a walk, and a socket pair if it arrives. Needs no
privileges.

Servers see the source address of the arriving packets. Addresses exist as long as a stack has them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from transom.kit.clock import Clock
from transom.kit.lazy import lazy_import
from transom.network.api import Accept, NamedStack, Respond
from transom.network.model import fast
from transom.network.model.named_socket import NamedSocket
from transom.network.model.packet_trip import NetworkState
from transom.network.packets import Packet, Protocol, Walk
from transom.network.stacks import Fabric, NetworkStack

if TYPE_CHECKING:
    from transom.network.model import walk
else:
    walk = lazy_import("transom.network.model.walk")

Server = TypeVar("Server")
_Place = tuple[str, str, int]  # stack ("": whichever has the address), address, port
# Seconds after which a stack retransmits its first packet; then it gives up.
_RETRIES: Final = (1.0, 2.0, 4.0, 8.0, 15.0)
_NEIGHBOUR_SECONDS: Final = 3.0


class ModelDataplane:
    def __init__(self, fabric: Fabric, clock: Clock, rng: random.Random) -> None:
        self.fabric = fabric
        self.world = NetworkState(fabric, clock.monotonic, rng)
        self._clock = clock
        self._rng = rng
        self._listeners: dict[_Place, Accept] = {}
        self._responders: dict[_Place, Respond] = {}
        self._connections = count()
        self.home = ""  # the stack of the API server; the first node if not set

    def close(self) -> None:
        self.world.close()

    # ---- serving ----

    def listen(
        self, address: str, port: int, accept: Accept, stack: str = ""
    ) -> Callable[[], None]:
        return _claim(self._listeners, (stack, address, port), accept)

    def answer(
        self, address: str, port: int, respond: Respond, stack: str = ""
    ) -> Callable[[], None]:
        return _claim(self._responders, (stack, address, port), respond)

    def listening(self, stack: NamedStack, address: str, port: int, protocol: str) -> bool:
        """Whether a connection or datagram would reach a socket."""
        servers: Mapping[_Place, object] = (
            self._responders if protocol == "udp" else self._listeners
        )
        return ("", address, port) in servers or (stack.name, address, port) in servers

    def serves(self, address: str, port: int, protocol: Literal["tcp", "udp"] = "tcp") -> bool:
        """Whether a program of a pod listens there."""
        servers: Mapping[_Place, object] = (
            self._responders if protocol == "udp" else self._listeners
        )
        return any(place[1] in (address, "0.0.0.0", "::") and place[2] == port for place in servers)

    async def settled(self) -> None:
        """Changes of the state take effect immediately."""

    # ---- clients ----

    async def connect(self, address: str, port: int, source: str = "") -> socket.socket:
        found = await self._first_packet(address, port, source)
        accept = _server(self._listeners, found)
        if accept is None or found.packet is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        near, far = socket.socketpair()
        if source:
            seen = found.packet.source
            caller = f"[{seen}]" if ":" in seen else seen
            name = (
                f"\0transom/{next(self._connections)}/{caller}:{found.packet.source_port}".encode()
            )
            near, far = NamedSocket(near, own=name), NamedSocket(far, peer=name)
        near.setblocking(False)
        far.setblocking(False)
        accept(far)
        return near

    async def _first_packet(self, address: str, port: int, source: str) -> Walk:
        """Sends it until it arrives or is refused. Raises OSError if a router reports no route;
        TimeoutError without an answer.
        """
        for delay in (*_RETRIES, 0.0):
            found = self._walk(address, port, source, "tcp")
            if found.outcome == "dropped" and found.facts.get("icmp"):
                if found.reason == "no-neighbour":  # three requests, one second each
                    await self._clock.sleep(_NEIGHBOUR_SECONDS)
                    found = self._walk(address, port, source, "tcp")
                if found.outcome == "dropped":
                    raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
            if found.outcome != "dropped":
                return found
            if delay:
                await self._clock.sleep(delay)
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    async def ask(
        self,
        address: str,
        port: int,
        payload: bytes,
        source: str = "",
        timeout: float = 5.0,  # noqa: ASYNC109
    ) -> bytes:
        """Sends one datagram and returns the reply."""
        found = self._walk(address, port, source, "udp")
        if found.outcome == "dropped" and found.facts.get("icmp"):
            if found.reason == "no-neighbour":
                await self._clock.sleep(_NEIGHBOUR_SECONDS)
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        respond = _server(self._responders, found)
        if found.outcome == "refused":
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        if respond is None or found.packet is None:
            await self._clock.sleep(timeout)
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        working = asyncio.ensure_future(respond(payload, found.packet.source))
        late = asyncio.ensure_future(self._clock.sleep(timeout))
        try:
            await asyncio.wait((working, late), return_when=asyncio.FIRST_COMPLETED)
            answer = working.result() if working.done() else None
            if answer is None:
                await late
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            return answer
        finally:
            working.cancel()
            late.cancel()

    async def echo(self, address: str, source: str = "", patience: float = 1.0) -> bool:
        """Sends one ICMP echo request; returns whether a reply arrived."""
        if self._walk(address, 0, source, "icmp").outcome == "delivered":
            return True
        await self._clock.sleep(patience)
        return False

    def _walk(self, address: str, port: int, source: str, protocol: Protocol) -> Walk:
        origin = self._origin(source)
        if origin is None:
            return Walk(
                "dropped",
                reason="no-route",
                explanation="there is no machine with that address",
                facts={"icmp": True},
            )
        # otherwise the stack chooses one
        own = source if (":" in source) == (":" in address) else ""
        sent = Packet(own, address, protocol, self._rng.randint(*walk.EPHEMERAL), port)
        near = fast.walk_nearby(self.world, origin, sent, self.listening)
        return (
            near
            if near is not None
            else walk.walk_packet(self.world, sent, origin, listening=self.listening)
        )

    def _origin(self, source: str) -> NetworkStack | None:
        if source:
            return self.fabric.owner(source)
        home = self.fabric.stacks.get(self.home)
        if home is not None:
            return home
        for role in ("node", "external"):
            for stack in self.fabric.stacks.values():
                if stack.role == role:
                    return stack
        return None


def _server(servers: Mapping[_Place, Server], found: Walk) -> Server | None:
    if found.outcome != "delivered":
        return None
    address, port = found.facts.get("socket", ("", 0))
    return servers.get((found.stack, address, port)) or servers.get(("", address, port))


def _claim(servers: dict[_Place, Server], place: _Place, server: Server) -> Callable[[], None]:
    if place in servers:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    servers[place] = server

    def close() -> None:
        if servers.get(place) is server:
            del servers[place]

    return close
