"""One end of a connection of the network model, with the address that the model gives it.

Both ends are in this process, so the object can carry the name. The kernel could do it on Linux only,
which has abstract names.
"""

from __future__ import annotations

import socket


class NamedSocket(socket.socket):
    __slots__ = ("_own", "_peer")

    def __init__(self, end: socket.socket, *, own: bytes = b"", peer: bytes = b"") -> None:
        """Takes over an end of a socket pair. A name has the form `\\0.../10.244.1.3:40123`."""
        super().__init__(end.family, end.type, end.proto, end.detach())
        self._own = own
        self._peer = peer

    def getsockname(self) -> bytes | str:
        return self._own or ""

    def getpeername(self) -> bytes | str:
        return self._peer or ""
