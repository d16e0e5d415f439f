"""The network as runtimes, kubelets and the API server see it: addresses for sandboxes, connections
to addresses.

`Dataplane` is the interface to an implementation. The model needs no privileges: both ends of a
connection are the two sockets of a pair, so its addresses exist only in this process. On a real
network `connect` is an ordinary TCP connection.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from transom.kit.named_tuple import NamedTuple


class NetworkFailure(Exception):
    """An address could not be assigned or released; the text is the plugin's."""


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
    """What a network plugin receives about a sandbox."""

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
        """Empty, or why no sandbox can get an address yet."""

    async def add(self, sandbox: SandboxNetwork) -> list[str]:
        """Returns the addresses, the primary one first. Raises NetworkFailure."""

    async def remove(self, sandbox: str) -> None: ...


Accept = Callable[[socket.socket], None]
"""Takes the server's end of a connection; must not block."""


Respond = Callable[[bytes, str], Awaitable[bytes | None]]
"""Takes a datagram and its source address; returns the reply, or None for no reply."""


class NamedStack(Protocol):
    """A network stack, as far as a data plane needs it to find its sockets."""

    @property
    def name(self) -> str: ...


class Dataplane(Protocol):
    async def connect(self, address: str, port: int, source: str = "") -> socket.socket:
        """A connected, non-blocking stream socket. `source` is the client's address, "" for the
        machine itself.

        Raises ConnectionRefusedError if no process listens, TimeoutError if no packet would come
        back, and OSError(EHOSTUNREACH) if there is no route.
        """

    def listen(
        self, address: str, port: int, accept: Accept, stack: str = ""
    ) -> Callable[[], None]:
        """Accepts connections to the address; returns a function that stops it. Raises
        OSError(EADDRINUSE) if another process has the port. `stack` selects the stack if several
        have the address.
        """

    async def ask(
        self,
        address: str,
        port: int,
        payload: bytes,
        source: str = "",
        timeout: float = 5.0,  # noqa: ASYNC109
    ) -> bytes:
        """Sends one datagram and returns the reply. Raises as `connect`."""

    def answer(
        self, address: str, port: int, respond: Respond, stack: str = ""
    ) -> Callable[[], None]:
        """Answers datagrams to the address; returns a function that stops it."""

    def listening(self, stack: NamedStack, address: str, port: int, protocol: str) -> bool:
        """Whether a program in the stack accepts such a connection or datagram."""

    async def echo(self, address: str, source: str = "", patience: float = 1.0) -> bool:
        """Sends one ICMP echo request; returns whether a reply arrived."""

    def close(self) -> Awaitable[None] | None:
        """Removes everything that was created on this machine."""

    async def settled(self) -> None:
        """Returns when the whole network configuration is in effect."""


Dial = Callable[[str, int], Awaitable[socket.socket]]


class OnStack:
    """A data plane as seen from one stack: listeners listen in that stack."""

    def __init__(self, dataplane: Dataplane, stack: str) -> None:
        self._dataplane = dataplane
        self._stack = stack
        self.connect = dataplane.connect
        self.ask = dataplane.ask
        self.echo = dataplane.echo
        self.listening = dataplane.listening
        self.settled = dataplane.settled

    def listen(
        self, address: str, port: int, accept: Accept, stack: str = ""
    ) -> Callable[[], None]:
        return self._dataplane.listen(address, port, accept, stack or self._stack)

    def answer(
        self, address: str, port: int, respond: Respond, stack: str = ""
    ) -> Callable[[], None]:
        return self._dataplane.answer(address, port, respond, stack or self._stack)

    def close(self) -> None:
        """Does nothing: this object does not own the data plane."""
