"""The listeners in a network namespace (a sandbox's, or the machine's own), and connections from
inside it.

Listeners on all addresses are also registered with the dataplane; those on the loopback address are
reachable from inside only.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

from transom.kit.clock import Clock
from transom.network.api import Accept, Dataplane, Respond
from transom.network.resolver import limited_config
from transom.runtime.sim.connections import ConnectionTable
from transom.userland.api import OpenSocket

_FIRST_EPHEMERAL = 32768
_LOOPBACK = ("127.", "::1", "localhost")
PAGING_DELAY = 0.2  # seconds added for each multiple of the usual time (slowness)
_DATAGRAM_TIMEOUT = 5.0  # seconds, as the dataplane's
_PACKETS = 640  # bytes counted for a connection, each way
_ECHO = 84  # bytes of a ping
_numbers = count()


def is_loopback_address(address: str) -> bool:
    return address.startswith(_LOOPBACK)


class _Listener:
    __slots__ = ("accept", "address", "closers", "open", "pid", "port", "program", "version")

    def __init__(
        self, port: int, address: str, accept: Accept, pid: int, program: str, version: int
    ) -> None:
        self.program = program
        self.version = version
        self.port = port
        self.pid = pid
        self.address = address
        self.accept = accept
        self.open = False
        self.closers: list[Callable[[], object]] = []

    def covers(self, address: str) -> bool:
        """Whether it listens on this address of the namespace."""
        if self.version and (":" in address) != (self.version == 6):
            return False
        return self.address in ("", address)


class NetworkNamespace:
    __slots__ = (
        "_clock",
        "_connections",
        "_dataplane",
        "_listeners",
        "_responders",
        "_slowness",
        "_sockets",
        "addresses",
        "received",
        "sent",
    )

    def __init__(
        self,
        dataplane: Dataplane,
        clock: Clock,
        addresses: Sequence[str],
        slowness: Callable[[], float],
    ) -> None:
        """`slowness` returns how many times slower than usual the machine is."""
        self._dataplane = dataplane
        self._clock = clock
        self._slowness = slowness
        self._listeners: list[_Listener] = []
        self._responders: dict[int, Respond] = {}  # by UDP port
        self._sockets: list[OpenSocket] = []  # of the responders
        self._connections = ConnectionTable()
        self.addresses = addresses
        self.received = 0
        self.sent = 0

    def listen(
        self,
        port: int,
        accept: Accept,
        address: str = "",
        delay: float = 0.0,
        pid: int = 0,
        program: str = "",
        version: int = 0,
    ) -> Callable[[], None]:
        """`delay`: the port is taken, but accepts no connections for this long. `pid` is the
        listening process; `program` is its name where processes are not in a table. `version`: 4 or
        6 for addresses of one IP version only.
        """
        address = "" if address in ("0.0.0.0", "::", "*") else address
        taken = {
            one.port
            for one in self._listeners
            if (not address or not one.address or one.address == address)
            and (not version or one.version in (0, version))
        }
        if port == 0:
            port = next(number for number in range(_FIRST_EPHEMERAL, 65536) if number not in taken)
        elif port in taken:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = _Listener(port, address, accept, pid, program, version)
        if delay > 0:
            listener.closers.append(self._clock.call_later(delay, self._open, listener).cancel)
        else:
            self._open(listener)
        self._listeners.append(listener)

        def close() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)
                for closer in listener.closers:
                    closer()

        return close

    def _open(self, listener: _Listener) -> None:
        reachable = (
            [a for a in self.addresses if listener.covers(a)]
            if not is_loopback_address(listener.address)
            else []
        )
        try:
            for address in reachable:
                arrived = partial(self._arrived, listener, address)
                listener.closers.append(self._dataplane.listen(address, listener.port, arrived))
        except OSError:
            for closer in listener.closers:
                closer()
            raise
        listener.open = True

    def _arrived(self, listener: _Listener, address: str, connection: socket.socket) -> None:
        self._connections.accepted(
            connection, address, listener.port, listener.pid, listener.program
        )
        self.received += _PACKETS
        self.sent += _PACKETS
        slowness = self._slowness()
        if slowness > 1.0:
            self._clock.call_later(
                PAGING_DELAY * (slowness - 1.0), self._late, listener, connection
            )
        else:
            listener.accept(connection)

    def _late(self, listener: _Listener, connection: socket.socket) -> None:
        if listener in self._listeners:
            listener.accept(connection)
        else:
            connection.close()

    def connect_inside(self, port: int, address: str = "127.0.0.1") -> socket.socket | None:
        """Connects to a listener of this namespace; None when there is none."""
        for listener in self._listeners:
            if listener.port == port and listener.open and self._answers(listener, address):
                near, far = socket.socketpair()
                caller = f"[{address}]" if ":" in address else address
                number = next(_numbers)
                # What the other end sees; the rest of the name only has to be unique.
                near.bind(
                    f"\0transom/{os.getpid()}/inside/{number}/{caller}:{_FIRST_EPHEMERAL + number % 28000}"
                )
                near.setblocking(False)
                far.setblocking(False)
                self._arrived(listener, address, far)
                return near
        return None

    def listens(self, address: str, port: int, protocol: str) -> bool:
        """Whether a program of this namespace accepts what is sent to one of its addresses."""
        if protocol == "udp":
            return port in self._responders
        return any(
            listener.port == port and listener.open and self._answers(listener, address)
            for listener in self._listeners
        )

    def _answers(self, listener: _Listener, address: str) -> bool:
        if listener.covers(address):
            return True
        same_version = listener.version in (0, 6 if ":" in address else 4)
        return (
            same_version and is_loopback_address(listener.address) and is_loopback_address(address)
        )

    async def connect(self, address: str, port: int, pid: int = 0) -> socket.socket:
        """Raises like `Dataplane.connect`. `pid` is the connecting process."""
        found = await self._connect(address, port)
        own = next((a for a in self.addresses if (":" in a) == (":" in address)), "")
        if is_loopback_address(address) or address in self.addresses:
            own = address
        self._connections.opened(found, own, address, port, pid)
        return found

    async def _connect(self, address: str, port: int) -> socket.socket:
        own = is_loopback_address(address) or address in self.addresses
        found = self.connect_inside(port, address) if own else None
        if found is not None:
            # otherwise a rule may redirect it: node ports and host ports also apply to the loopback
            # address
            return found
        self.sent += _PACKETS
        self.received += _PACKETS
        return await self._dataplane.connect(
            address, port, self.addresses[0] if self.addresses else ""
        )

    async def ask(self, address: str, port: int, payload: bytes) -> bytes:
        """Sends a datagram and returns the response. Raises like `Dataplane.ask`."""
        self.sent += len(payload)
        respond = self._responders.get(port) if is_loopback_address(address) else None
        if respond is not None:
            reply = await limited_config(self._clock, _DATAGRAM_TIMEOUT, respond(payload, address))
            if reply is None:
                await self._clock.sleep(_DATAGRAM_TIMEOUT)
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            self.received += len(reply)
            return reply
        answer = await self._dataplane.ask(
            address, port, payload, self.addresses[0] if self.addresses else ""
        )
        self.received += len(answer)
        return answer

    async def echo(self, address: str, patience: float) -> bool:
        """Whether a ping is answered in time."""
        if is_loopback_address(address) or address in self.addresses:
            return True
        self.sent += _ECHO
        answered = await self._dataplane.echo(
            address, self.addresses[0] if self.addresses else "", patience
        )
        self.received += _ECHO * answered
        return answered

    def listener(self, protocol: str, port: int) -> OpenSocket | None:
        """The socket that waits for connections or datagrams on a port."""
        if protocol == "udp":
            return next((one for one in self._sockets if one.port == port), None)
        for one in self._listeners:
            if one.port == port:
                return OpenSocket("tcp", one.address, port, one.pid, program=one.program)
        return None

    def sockets(self) -> list[OpenSocket]:
        """The sockets that wait for connections or datagrams, and the connections."""
        tcp = [
            OpenSocket(
                "tcp",
                one.address or ("::" if one.version == 6 else "0.0.0.0"),
                one.port,
                one.pid,
                program=one.program,
            )
            for one in self._listeners
        ]
        return [*tcp, *self._sockets, *self._connections.list()]

    def answer(self, port: int, respond: Respond, pid: int = 0) -> Callable[[], None]:
        """Answers datagrams on all addresses. Raises OSError(EADDRINUSE) when the port is taken."""

        async def counted(payload: bytes, sender: str) -> bytes | None:
            self.received += len(payload)
            reply = await respond(payload, sender)
            self.sent += len(reply or b"")
            return reply

        closers: list[Callable[[], None]] = []
        entry = OpenSocket("udp", "0.0.0.0", port, pid)

        def close() -> None:
            for one in closers:
                one()
            closers.clear()
            if entry in self._sockets:
                self._sockets.remove(entry)
                self._responders.pop(port, None)

        try:
            for address in self.addresses:
                closers.append(self._dataplane.answer(address, port, counted))
        except OSError:
            close()
            raise
        self._sockets.append(entry)
        self._responders[port] = counted
        return close

    def close(self) -> None:
        """Closes all listeners."""
        for listener in self._listeners:
            for closer in listener.closers:
                closer()
        self._listeners.clear()
        self._responders.clear()
        self._sockets.clear()
        self._connections.clear()
