"""Relays between this machine's loopback addresses and the cluster's network, which have no other
connection.

Inbound: each node port and load balancer address gets a listener on loopback; connections continue
from the external host, like those of any client. Outbound, for destinations that the user has
named: the external host listens for pods, and connections continue from this machine. Both work
with any data plane: they only need `connect` and `listen`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from transom.client.informer import Informer
from transom.kit.named_tuple import NamedTuple
from transom.kit.task_set import TaskSet
from transom.machinery.objects import Object
from transom.network.api import Dataplane
from transom.network.stacks import NetworkStack

log = logging.getLogger("transom.relay")

_LOOPBACK, _LOOPBACK6 = "127.0.0.1", "::1"
_CHUNK = 65536
_LARGEST = 65535
_STAGGER = 0.1  # seconds before another node is tried in parallel
MOST_RELAYS = 256  # of one service: each is a listener on this machine


class RelayLine(NamedTuple):
    """One line of what `transom up` prints."""

    service: str  # namespace/name
    port: str  # the name or number of the service's port
    protocol: str  # TCP or UDP
    inside: str  # "nodes:30080", or the load balancer's address and port
    outside: str  # "127.0.0.1:30080"


class _Wanted(NamedTuple):
    service: str
    port: str
    protocol: str
    address: str  # "": any node
    number: int
    node_port: int = 0  # the node port that a load balancer forwards to
    ipv6: bool = False  # node ports answer only at addresses of that family


def wanted_relays(service: Object) -> list[_Wanted]:
    """The relays for a service's external ports."""
    spec = service["spec"]
    key = f"{service['metadata']['namespace']}/{service['metadata']['name']}"
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    addresses = (
        [each["ip"] for each in ingress if each.get("ip")]
        if spec.get("type") == "LoadBalancer"
        else []
    )
    ways: list[_Wanted] = []
    for port in spec.get("ports") or ():
        if len(ways) >= MOST_RELAYS:
            log.warning("service %s: only %d ports are relayed to this machine", key, MOST_RELAYS)
            break
        protocol = port.get("protocol", "TCP")
        if protocol not in ("TCP", "UDP"):
            continue
        name = port.get("name") or str(port["port"])
        behind = int(port.get("nodePort") or 0)
        ways += [
            _Wanted(key, name, protocol, address, int(port["port"]), behind, ":" in address)
            for address in addresses[: MOST_RELAYS - len(ways)]
        ]
        if port.get("nodePort") and spec.get("type") in ("NodePort", "LoadBalancer"):
            ways.append(
                _Wanted(
                    key,
                    name,
                    protocol,
                    "",
                    int(port["nodePort"]),
                    ipv6=":" in spec.get("clusterIP", ""),
                )
            )
    return ways


class PortRelay:
    """`sources` are addresses of the external host, one for each family; `nodes` are those that
    serve node ports.
    """

    def __init__(
        self,
        dataplane: Dataplane,
        services: Informer,
        sources: Sequence[str],
        nodes: Callable[[], Sequence[str]],
        changed: Callable[[], None] = lambda: None,
        on_loopback: Callable[[str], str] = lambda _address: _LOOPBACK,
    ) -> None:
        self._dataplane = dataplane
        self._sources = {":" in source: source for source in sources}
        self._nodes = nodes
        self._changed = changed
        self._on_loopback = on_loopback  # the loopback address for a load balancer's address
        self._open: dict[_Wanted, tuple[str, Callable[[], None]]] = {}
        self._of: dict[str, list[_Wanted]] = {}
        self._tasks = TaskSet()
        services.add_handler(add=self.put, update=lambda _, new: self.put(new), delete=self.remove)

    def ways(self) -> list[RelayLine]:
        return [
            RelayLine(
                w.service, w.port, w.protocol, f"{_host(w.address) or 'nodes'}:{w.number}", outside
            )
            for w, (outside, _) in sorted(self._open.items())
        ]

    def put(self, service: Object) -> None:
        key = f"{service['metadata']['namespace']}/{service['metadata']['name']}"
        self._set(key, wanted_relays(service))

    def remove(self, service: Object) -> None:
        self._set(f"{service['metadata']['namespace']}/{service['metadata']['name']}", [])

    def close(self) -> None:
        for key in list(self._of):
            self._set(key, [])
        self._tasks.cancel()

    def _set(self, key: str, now: list[_Wanted]) -> None:
        before = self._of.pop(key, [])
        if now:
            self._of[key] = now
        kept = set(now)
        for way in before:
            if way not in kept and way in self._open:
                self._open.pop(way)[1]()
        for way in now:
            if way not in self._open:
                self._open[way] = self._listen(way)
        if before != now:
            self._changed()

    def _listen(self, way: _Wanted) -> tuple[str, Callable[[], None]]:
        loop = asyncio.get_running_loop()
        kind = socket.SOCK_STREAM if way.protocol == "TCP" else socket.SOCK_DGRAM
        # This machine has only one IPv6 loopback address.
        near = (
            _LOOPBACK
            if not way.address
            else _LOOPBACK6
            if ":" in way.address
            else self._on_loopback(way.address)
        )
        server = _bound(kind, near, way.number)
        host, port = server.getsockname()[:2]
        name = f"{_host(host)}:{port}"
        if kind == socket.SOCK_DGRAM:
            loop.add_reader(server, self._datagrams, server, way)
        else:
            server.listen(128)
            loop.add_reader(server, self._connections, server, way)

        def close() -> None:
            loop.remove_reader(server)
            server.close()

        return name, close

    def _connections(self, server: socket.socket, way: _Wanted) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            near, _ = server.accept()
            near.setblocking(False)
            self._tasks.start(_joined(near, lambda: self._dial(way)))

    async def _dial(self, way: _Wanted) -> socket.socket:
        port = way.node_port or way.number
        if way.address and not way.node_port:
            return await self._dataplane.connect(way.address, way.number, self._sources[way.ipv6])
        return await _first(
            lambda node: self._dataplane.connect(node, port, self._sources[way.ipv6]),
            self._nodes_for(way),
        )

    def _nodes_for(self, way: _Wanted) -> list[str]:
        return [node for node in self._nodes() if (":" in node) == way.ipv6]

    def _datagrams(self, server: socket.socket, way: _Wanted) -> None:
        with contextlib.suppress(OSError):
            payload, sender = server.recvfrom(_LARGEST)
            self._tasks.start(self._answer(server, sender, way, payload))

    async def _answer(
        self, server: socket.socket, sender: Any, way: _Wanted, payload: bytes
    ) -> None:
        direct = bool(way.address) and not way.node_port
        for address in (way.address,) if direct else self._nodes_for(way):
            try:
                reply = await self._dataplane.ask(
                    address,
                    way.number if direct else way.node_port or way.number,
                    payload,
                    self._sources[way.ipv6],
                )
            except OSError:
                continue
            if server.fileno() >= 0:
                # uvloop has no sock_sendto; if the buffer is full, the datagram is lost
                with contextlib.suppress(OSError):
                    server.sendto(reply, sender)
            return


# ---- outbound ----


class OutgoingPort(NamedTuple):
    inside: str  # where pods reach it
    outside: str  # as the user wrote it


class OutgoingRelay:
    """Lets pods reach destinations in this machine's network by their own addresses, and this
    machine itself by the address of the external host.
    """

    def __init__(self, dataplane: Dataplane, external: NetworkStack) -> None:
        self._dataplane = dataplane
        self._external = external
        self._closers: list[Callable[[], None]] = []
        self._tasks = TaskSet()
        self.ways: list[OutgoingPort] = []

    async def open(self, targets: Iterable[str]) -> None:
        """Opens relays for `host:port` each. Raises OSError for an unknown name."""
        loop = asyncio.get_running_loop()
        for target in targets:
            host, _, port = target.rpartition(":")
            found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
            for address in dict.fromkeys(entry[4][0] for entry in found):
                self._listen(str(address), int(port), target)

    def close(self) -> None:
        for close in self._closers:
            close()
        self._closers.clear()
        self._tasks.cancel()

    def _listen(self, address: str, port: int, target: str) -> None:
        link = next(link for link in self._external.links.values() if link.kind != "loopback")
        inside = address
        if ipaddress.ip_address(address).is_loopback:
            # Its Internet address, not the one in the segment: packets to that one may keep the
            # pod's source address.
            own = [a for a in link.addresses if (a.version == 6) == (":" in address)]
            own.sort(key=lambda a: -a.network.prefixlen)
            if not own:
                return
            inside = str(own[0].ip)
        elif address not in self._external.addresses():
            whole = f"{address}/{ipaddress.ip_address(address).max_prefixlen}"
            self._external.add_address(link.name, whole)
            self._closers.append(lambda: self._external.delete_address(link.name, whole))

        async def dial() -> socket.socket:
            far = socket.socket(
                socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM
            )
            far.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(far, (address, port))
            except BaseException:
                far.close()
                raise
            return far

        def accept(near: socket.socket) -> None:
            self._tasks.start(_joined(near, dial))

        self._closers.append(self._dataplane.listen(inside, port, accept))
        self.ways.append(OutgoingPort(f"{_host(inside)}:{port}", target))


# ---- copying ----


async def _joined(near: socket.socket, dial: Callable[[], Awaitable[socket.socket]]) -> None:
    with near:
        try:
            far = await dial()
        except (OSError, TimeoutError) as error:
            log.debug("a relayed connection could not be made: %s", error)
            return
        with far, contextlib.suppress(OSError):
            await asyncio.gather(_pump(near, far), _pump(far, near))


async def _pump(source: socket.socket, target: socket.socket) -> None:
    """Copies until the source ends; the other direction may continue."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, _CHUNK):
        await loop.sock_sendall(target, data)
    target.shutdown(socket.SHUT_WR)


async def _first(
    dial: Callable[[str], Awaitable[socket.socket]], addresses: Sequence[str]
) -> socket.socket:
    """The first destination that answers; a slow one does not delay the others."""
    waiting: set[asyncio.Task[socket.socket]] = set()
    problem: BaseException = ConnectionRefusedError("there is no node")
    rest = list(addresses)
    try:
        while rest or waiting:
            if rest:
                waiting.add(asyncio.ensure_future(dial(rest.pop(0))))
            done, waiting = await asyncio.wait(
                waiting, timeout=_STAGGER if rest else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                failure = task.exception()
                if failure is None:
                    return task.result()
                problem = failure
    finally:
        for task in waiting:
            task.add_done_callback(_unneeded)
            task.cancel()
    raise problem


def _unneeded(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _bound(kind: socket.SocketKind, address: str, port: int) -> socket.socket:
    """Binds the same port as in the cluster if it is free and permitted on this machine."""
    spare = address if address == _LOOPBACK6 else _LOOPBACK
    for place in dict.fromkeys(((address, port), (spare, port), (spare, 0), (_LOOPBACK, 0))):
        server = socket.socket(socket.AF_INET6 if ":" in place[0] else socket.AF_INET, kind)
        server.setblocking(False)
        try:
            if kind == socket.SOCK_STREAM:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(place)
        except OSError:
            server.close()
            if place == (_LOOPBACK, 0):
                raise
        else:
            return server
    raise AssertionError("a bind to no particular port succeeds or raises")


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
