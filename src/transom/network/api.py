"""The network as runtimes, kubelets and the API server see it: addresses for sandboxes, connections to addresses.

`Dataplane` is the seam: the model needs no privileges and reaches addresses that exist nowhere but here, because both ends
of a connection are handed out as a socket pair; on a real network `connect` is an ordinary TCP connection.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol


class NetworkFailure(Exception):
    """An address could not be given or taken back; the text is the plugin's."""


class PortMapping(NamedTuple):
    container_port: int
    host_port: int
    protocol: str = "TCP"
    host_ip: str = ""


class DnsConfig(NamedTuple):
    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class SandboxNetwork(NamedTuple):
    """What a network plugin is told about a sandbox."""

    sandbox: str  # its id
    namespace: str
    pod: str
    uid: str
    dns: DnsConfig = DnsConfig()
    ports: Sequence[PortMapping] = ()
    annotations: Mapping[str, str] = {}


class PodNetwork(Protocol):
    """The network of one node."""

    def ready(self) -> str:
        """Empty, or why no sandbox can be given an address yet."""

    async def add(self, sandbox: SandboxNetwork) -> list[str]:
        """The addresses, the primary first. Raises NetworkFailure."""

    async def remove(self, sandbox: str) -> None: ...


Accept = Callable[[socket.socket], None]
"""Takes the server's end of a connection; must not block."""


Respond = Callable[[bytes, str], Awaitable[bytes | None]]
"""Takes a datagram and the address it came from; None when there is nothing to say."""


class Dataplane(Protocol):
    async def connect(self, address: str, port: int, source: str = "") -> socket.socket:
        """A connected, non-blocking stream socket. `source` is the address of who asks, "" for the machine itself.

        Raises ConnectionRefusedError where nobody listens, TimeoutError where no packet would come back, and
        OSError(EHOSTUNREACH) where no route is.
        """

    def listen(self, address: str, port: int, accept: Accept, stack: str = "") -> Callable[[], None]:
        """Takes connections to the address; the answer ends that. OSError(EADDRINUSE) when somebody has it. `stack` says
        in which stack, for an address that several have."""

    async def ask(
        self, address: str, port: int, payload: bytes, source: str = "", timeout: float = 5.0  # noqa: ASYNC109
    ) -> bytes:
        """One datagram there, one back. Raises as `connect`."""

    def answer(self, address: str, port: int, respond: Respond, stack: str = "") -> Callable[[], None]:
        """Answers datagrams to the address; the answer ends that."""

    async def echo(self, address: str, source: str = "", patience: float = 1.0) -> bool:
        """One ICMP echo request; whether it was answered."""

    def close(self) -> Awaitable[None] | None:
        """Takes away what was made on this machine."""

    async def settled(self) -> None:
        """Returns when everything that the network was told is in force."""


Dial = Callable[[str, int], Awaitable[socket.socket]]


class OnStack:
    """A data plane as one stack sees it: who listens, listens there."""

    def __init__(self, dataplane: Dataplane, stack: str) -> None:
        self._dataplane = dataplane
        self._stack = stack
        self.connect = dataplane.connect
        self.ask = dataplane.ask
        self.echo = dataplane.echo
        self.settled = dataplane.settled

    def listen(self, address: str, port: int, accept: Accept, stack: str = "") -> Callable[[], None]:
        return self._dataplane.listen(address, port, accept, stack or self._stack)

    def answer(self, address: str, port: int, respond: Respond, stack: str = "") -> Callable[[], None]:
        return self._dataplane.answer(address, port, respond, stack or self._stack)

    def close(self) -> None:
        """It is not this one's to close."""
