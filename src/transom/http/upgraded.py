"""The client side of an upgraded connection, and splicing of two such connections.

`Upgraded` is the client's counterpart of `RawConnection`; both are a `Wire` of `sessions`. Does not
interpret the bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from transom.http.outgoing import OutgoingConnection
from transom.http.pacing import PacedInput
from transom.http.sessions import Wire

log = logging.getLogger("transom.http")


class Upgraded(asyncio.Protocol):
    """Takes over the transport of a call that was answered with 101. Reads nothing until `receive`
    is called.
    """

    __slots__ = (
        "_full",
        "_input",
        "_paused",
        "_reading",
        "_transport",
        "alive",
        "on_close",
        "on_writable",
    )

    def __init__(self, connection: OutgoingConnection) -> None:
        self._transport: Any
        self._transport, early = connection.detach()
        self._reading = True
        self._paused = True  # paused by the receiver
        self._full = False
        self.alive = True
        self.on_close: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self._input = PacedInput(
            asyncio.get_running_loop(), self._pause, self._resume, self._receiver_failed
        )
        self._transport.set_protocol(self)
        self._input.hold()
        self._input.feed(early)

    def receive(self, on_data: Callable[[bytes], None]) -> None:
        self._input.deliver_to(on_data)
        self.resume_reading()
        if not self.alive and self.on_close is not None:  # it ended before there was a receiver
            asyncio.get_running_loop().call_soon(self.on_close)

    def write(self, data: bytes) -> None:
        if self.alive:
            self._transport.write(data)

    @property
    def writable(self) -> bool:
        return self.alive and not self._full

    def pause_reading(self) -> None:
        if not self._paused:
            self._paused = True
            self._input.hold()

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._input.release()

    def close(self) -> None:
        """Sends what is buffered, then closes. `on_close` follows."""
        self._input.discard()
        self._transport.close()

    def _pause(self) -> None:
        if self.alive and self._reading and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self.alive and not self._reading and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    def _receiver_failed(self) -> None:
        log.exception("the receiver of an upgraded connection failed")
        self._input.discard()
        self._transport.abort()

    # ---- asyncio.Protocol ----

    def data_received(self, data: bytes) -> None:
        self._input.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.alive:
            self.alive = False
            self._input.end(self._closed)

    def _closed(self) -> None:
        if self.on_close is not None:
            self.on_close()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self.on_writable is not None:
            self.on_writable()


def splice(one: Wire, other: Wire) -> None:
    """Copies bytes both ways until either side ends, at the pace of the slower one."""

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
