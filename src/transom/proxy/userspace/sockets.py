"""One listener of the user space proxy: forwards connections and datagrams to the next endpoint.

The data plane listens and connects; the node's address is the source of forwarded traffic, so
endpoints never see the client's address.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from transom.kit.clock import Clock
from transom.kit.task_set import TaskSet
from transom.network.api import Dataplane
from transom.proxy.tracker import PortName
from transom.proxy.userspace import dnsnames
from transom.proxy.userspace.roundrobin import NoEndpoint, Place, RoundRobin

log = logging.getLogger("transom.proxy")

_TIMEOUTS: Final = (0.25, 0.5, 1.0, 2.0)  # seconds, one connection attempt each
_CHUNK: Final = 64 * 1024
DNS_PORT: Final = "dns"


class Proxying:
    """What all listeners of a node share."""

    def __init__(
        self,
        dataplane: Dataplane,
        balancer: RoundRobin,
        clock: Clock,
        node_ip: str,
        udp_timeout: float,
        suffixes: Sequence[str] = (),
    ) -> None:
        self.dataplane = dataplane
        self.balancer = balancer
        self.clock = clock
        self.node_ip = node_ip
        self.udp_timeout = udp_timeout
        self.suffixes = (*dnsnames.SUFFIXES, *suffixes)  # the suffixes of the node come after these
        self.tasks = TaskSet()

    # ---- TCP ----

    def accept(self, name: PortName) -> Callable[[socket.socket], None]:
        def take(connection: socket.socket) -> None:
            self.tasks.start(self._proxy(name, connection))

        return take

    async def _proxy(self, name: PortName, near: socket.socket) -> None:
        with near:
            near.setblocking(False)
            far = await self._connect(name, peer_address(near))
            if far is None:
                return
            with far:
                await _join(near, far)

    async def _connect(self, name: PortName, client: str) -> socket.socket | None:
        reset = False
        for seconds in _TIMEOUTS:
            try:
                address, port = self.balancer.next(name, client, reset=reset)
            except NoEndpoint as problem:
                log.error("Couldn't find an endpoint for %s: %s", name, problem)
                log.error("Failed to connect to balancer: %s", problem)
                return None
            try:
                async with asyncio.timeout(seconds):
                    return await self.dataplane.connect(address, port, self.node_ip)
            except OSError as problem:
                log.error("Dial failed: dial tcp %s:%d: %s", address, port, problem)
                reset = True
        log.error("Failed to connect to balancer: failed to connect to an endpoint.")
        return None

    # ---- UDP ----

    def respond(self, name: PortName) -> Callable[[bytes, str], Any]:
        flows: dict[str, tuple[Place, float]] = {}  # client -> endpoint, and its expiry

        async def ask(payload: bytes, source: str) -> bytes | None:
            now = self.clock.monotonic()
            known = flows.get(source)
            if known is not None and known[1] > now:
                endpoint = known[0]
            else:
                try:
                    endpoint = self.balancer.next(name, source)
                except NoEndpoint as problem:
                    log.error("Couldn't find an endpoint for %s: %s", name, problem)
                    return None
            flows[source] = (endpoint, now + self.udp_timeout)
            if name.port_name == DNS_PORT:
                return await self._resolve(endpoint, payload)
            return await self._ask(endpoint, payload)

        return ask

    async def _ask(self, endpoint: Place, payload: bytes) -> bytes | None:
        try:
            return await self.dataplane.ask(*endpoint, payload, self.node_ip, self.udp_timeout)
        except OSError as problem:
            log.error("Read failed: %s", problem)
            return None

    async def _resolve(self, endpoint: Place, payload: bytes) -> bytes | None:
        """Tries the suffixes until one answers without an error; the client gets the name that it
        queried.
        """
        try:
            query = dnsnames.parse_raw_dns(payload)
            rewritten = dnsnames.wants_suffix(query)
        except dnsnames.BadDnsMessage as problem:
            log.error("Process DNS query packet failed: %s", problem)
            rewritten = False
        if not rewritten:
            return await self._ask(endpoint, payload)
        answer: bytes | None = None
        for suffix in self.suffixes:
            answer = await self._ask(endpoint, dnsnames.with_suffix(query, suffix))
            if answer is None:
                return None
            try:
                message = dnsnames.parse_raw_dns(answer)
            except dnsnames.BadDnsMessage as problem:
                log.error("Process DNS response packet failed: %s", problem)
                return answer
            answer = dnsnames.pack_raw_dns(dnsnames.with_question(message, query.questions[0]))
            if message.code == 0:
                break
        return answer


async def _join(one: socket.socket, other: socket.socket) -> None:
    """Copies both ways until either side ends; then closes both, even if one has more data."""
    directions = [
        asyncio.ensure_future(_copy(one, other)),
        asyncio.ensure_future(_copy(other, one)),
    ]
    try:
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for direction in directions:
            direction.cancel()
        await asyncio.gather(*directions, return_exceptions=True)


async def _copy(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    # the peer has closed the connection, which is not a fault of the proxy
    with contextlib.suppress(OSError):
        while data := await loop.sock_recv(source, _CHUNK):
            await loop.sock_sendall(target, data)


def peer_address(connection: socket.socket) -> str:
    """The client's address. A socket of the network model is named after it:
    `\\0.../10.244.1.3:40123`.
    """
    try:
        name = connection.getpeername()
    except OSError:
        return ""
    if isinstance(name, bytes):
        name = name.rpartition(b"/")[2].decode("ascii", "replace")
        return name.rpartition(":")[0].strip("[]")
    return str(name[0]) if isinstance(name, tuple) else ""
