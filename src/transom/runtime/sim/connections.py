r"""The open TCP connections of a network namespace, as netstat shows them.

An entry exists as long as its socket is open; the socket itself is not kept alive. Both ends of a
connection of the network model are in this process: the name of an end, if it has one, ends with
its address in the model (`\0.../10.244.1.3:40123`).
"""

from __future__ import annotations

import socket
import weakref
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.userland.api import OpenSocket

_PRUNED: Final = 32  # entries, from which on closed ones are removed first
ESTABLISHED: Final = "ESTABLISHED"
CLOSE_WAIT: Final = "CLOSE_WAIT"


def model_name(name: object) -> tuple[str, int]:
    """Address and port of one end of a connection; ("", 0) if it has no name."""
    if isinstance(name, tuple):
        return str(name[0]), int(name[1])
    text = name.decode("ascii", "replace") if isinstance(name, bytes) else ""
    address, _, port = text.rpartition("/")[2].rpartition(":")
    return (address.strip("[]"), int(port)) if port.isdigit() else ("", 0)


def _own_name(connection: socket.socket) -> tuple[str, int]:
    return model_name(connection.getsockname())


def _peer_name(connection: socket.socket) -> tuple[str, int]:
    try:
        return model_name(connection.getpeername())
    except OSError:
        return "", 0


class _Connection(NamedTuple):
    socket: weakref.ref[socket.socket]
    entry: OpenSocket

    def current(self) -> OpenSocket | None:
        found = self.socket()
        if found is None or found.fileno() < 0:
            return None
        try:
            ended = found.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            ended = False
        except OSError:
            return None
        return self.entry._replace(state=CLOSE_WAIT) if ended else self.entry


class ConnectionTable:
    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: list[_Connection] = []

    def accepted(
        self, connection: socket.socket, address: str, port: int, pid: int, program: str
    ) -> None:
        """A connection to a listener at `address`."""
        peer, peer_port = _peer_name(connection)
        if peer:
            own = address or peer
            entry = OpenSocket("tcp", own, port, pid, peer, peer_port, ESTABLISHED, program)
            self._add(connection, entry)

    def opened(
        self, connection: socket.socket, own: str, address: str, port: int, pid: int
    ) -> None:
        """A connection from here, from the address `own`."""
        _, own_port = _own_name(connection)
        if own_port:
            entry = OpenSocket("tcp", own, own_port, pid, address, port, ESTABLISHED)
            self._add(connection, entry)

    def _add(self, connection: socket.socket, entry: OpenSocket) -> None:
        if len(self._rows) >= _PRUNED:
            self._rows = [row for row in self._rows if row.current() is not None]
        self._rows.append(_Connection(weakref.ref(connection), entry))

    def list(self) -> list[OpenSocket]:
        return [found for row in self._rows if (found := row.current()) is not None]

    def clear(self) -> None:
        self._rows.clear()
