"""The network as a table: addresses that exist in this process only, and who listens on them. Needs no privileges.

A connection is a pair of sockets, one end for each side, so whatever speaks over a socket speaks over the model. Names and
services are not known here: who translates service addresses registers a `translate`.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Callable
from itertools import count

from transom.network.api import Accept, NetworkFailure, SandboxNetwork

_EPHEMERAL = 32768
Place = tuple[str, int]
Translate = Callable[[str, int, str], Place | None]
"""An address and port as asked for, and the source -> where it leads; None when it is no concern of the translator."""



class ModelDataplane:
    def __init__(self) -> None:
        self._listeners: dict[Place, Accept] = {}
        self._addresses: dict[str, int] = {}  # how many hold it: an address may be used by a sandbox and its host
        self._connections = count()
        self.translators: list[Translate] = []

    def hold(self, address: str) -> Callable[[], None]:
        """Makes the address exist; the answer ends that."""
        self._addresses[address] = self._addresses.get(address, 0) + 1

        def release() -> None:
            left = self._addresses.get(address, 0) - 1
            if left > 0:
                self._addresses[address] = left
            else:
                self._addresses.pop(address, None)

        return release

    def listen(self, address: str, port: int, accept: Accept) -> Callable[[], None]:
        place = (address, port)
        if place in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._listeners[place] = accept

        def close() -> None:
            if self._listeners.get(place) is accept:
                del self._listeners[place]

        return close

    async def connect(self, address: str, port: int, source: str = "") -> socket.socket:
        for translate in self.translators:
            place = translate(address, port, source)
            if place is not None:
                address, port = place
                break
        accept = self._listeners.get((address, port))
        if accept is None:
            if not address or address in self._addresses:  # "": a service without endpoints, which is rejected
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        near, far = socket.socketpair()
        if source:
            # The name that the other end sees: sockets without a file, so it only has to be nobody else's.
            number = next(self._connections)
            caller = f"[{source}]" if ":" in source else source
            near.bind(f"\0transom/{os.getpid()}/{id(self)}/{number}/{caller}:{_EPHEMERAL + number % 28000}")
        near.setblocking(False)
        far.setblocking(False)
        accept(far)
        return near


class NodeNetwork:
    """The pods of one node: addresses from its share of the cluster's range, given in turn as host-local IPAM does."""

    def __init__(self, dataplane: ModelDataplane, node_ip: str, *, reserved: int = 2) -> None:
        self._dataplane = dataplane
        self._node_ip = node_ip
        self._reserved = reserved  # network and gateway; a Windows bridge takes one more
        self._range: ipaddress.IPv4Network | ipaddress.IPv6Network | None = None
        self._next = 0
        self._taken: dict[str, str] = {}  # address -> sandbox
        self._held: dict[str, list[Callable[[], None]]] = {}
        self.fault = ""  # while set, nothing works, and this says why

    @property
    def cidr(self) -> str:
        return "" if self._range is None else str(self._range)

    def use(self, cidr: str) -> None:
        """The node's share, once it is known."""
        self._range = ipaddress.ip_network(cidr)
        self._next = self._reserved

    def ready(self) -> str:
        return self.fault or ("" if self._range is not None else "cni config uninitialized")

    async def add(self, sandbox: SandboxNetwork) -> list[str]:
        problem = self.ready()
        if problem:
            raise NetworkFailure(problem)
        address = self._pick()
        self._taken[address] = sandbox.sandbox
        held = self._held.setdefault(sandbox.sandbox, [])
        held.append(self._dataplane.hold(address))
        try:
            for mapping in sandbox.ports:
                if mapping.host_port and mapping.protocol == "TCP":
                    held.append(self._forward(mapping.host_port, address, mapping.container_port))
        except OSError as error:
            await self.remove(sandbox.sandbox)
            raise NetworkFailure(f"cannot open hostport {mapping.host_port} for pod {sandbox.pod}_{sandbox.namespace}: "
                                 f"{error.strerror}") from error
        return [address]

    def _pick(self) -> str:
        assert self._range is not None
        last = self._range.num_addresses - 1  # the broadcast address
        for _ in range(last):
            number, self._next = self._next, self._next + 1
            if self._next >= last:
                self._next = self._reserved
            address = str(self._range[number])
            if address not in self._taken:
                return address
        raise NetworkFailure(f"failed to allocate for range 0: no IP addresses available in range set: "
                             f"{self._range[1]}-{self._range[last - 1]}")

    def _forward(self, host_port: int, address: str, port: int) -> Callable[[], None]:
        dataplane, node_ip = self._dataplane, self._node_ip

        def translate(asked: str, asked_port: int, _source: str) -> Place | None:
            return (address, port) if asked == node_ip and asked_port == host_port else None

        if any(found(node_ip, host_port, "") for found in dataplane.translators):
            raise OSError(errno.EADDRINUSE, f"listen tcp4 :{host_port}: bind: address already in use")
        dataplane.translators.append(translate)
        return lambda: dataplane.translators.remove(translate)

    async def remove(self, sandbox: str) -> None:
        for release in self._held.pop(sandbox, ()):
            release()
        for address in [a for a, holder in self._taken.items() if holder == sandbox]:
            del self._taken[address]
