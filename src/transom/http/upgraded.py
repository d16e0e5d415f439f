"""The client's side of a connection after an upgrade, and how two such connections are made one.

`Upgraded` is for calls what `RawConnection` is for the server; both are a `Wire` of `sessions`. Knows nothing of what the
bytes mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from transom.http.outgoing import Outgoing
from transom.http.sessions import Wire


class Upgraded(asyncio.Protocol):
    """Takes over the transport of a call that was answered with 101. Nothing is read until `receive` says where to."""

    __slots__ = ("_early", "_full", "_on_data", "_reading", "_transport", "alive", "on_close", "on_writable")

    def __init__(self, connection: Outgoing) -> None:
        self._transport: Any
        self._transport, self._early = connection.detach()
        self._on_data: Callable[[bytes], None] | None = None
        self._reading = True
        self._full = False
        self.alive = True
        self.on_close: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self._transport.set_protocol(self)
        self.pause_reading()

    def receive(self, on_data: Callable[[bytes], None]) -> None:
        self._on_data = on_data
        early, self._early = self._early, b""
        if early:
            on_data(early)
        if self.alive:
            self.resume_reading()
        elif self.on_close is not None:  # the end came before anybody listened
            asyncio.get_running_loop().call_soon(self.on_close)

    def write(self, data: bytes) -> None:
        if self.alive:
            self._transport.write(data)

    @property
    def writable(self) -> bool:
        return self.alive and not self._full

    def pause_reading(self) -> None:
        if self.alive and self._reading and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.alive and not self._reading and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    def close(self) -> None:
        """Sends what is buffered, then closes. `on_close` follows."""
        self._transport.close()

    # ---- asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        if self._on_data is None:
            self._early += data
        else:
            self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.alive:
            self.alive = False
            if self.on_close is not None:
                self.on_close()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self.on_writable is not None:
            self.on_writable()


def splice(one: Wire, other: Wire) -> None:
    """Bytes both ways until either side ends, at the pace of the slower one."""

    def passing(source: Wire, target: Wire) -> Callable[[bytes], None]:
        def on_data(data: bytes) -> None:
            target.write(data)
            if not target.writable:
                source.pause_reading()

        target.on_writable = source.resume_reading
        target.on_close = source.close
        return on_data

    forth, back = passing(one, other), passing(other, one)
    one.receive(forth)
    other.receive(back)
