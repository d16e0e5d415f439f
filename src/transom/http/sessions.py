"""Runs a session of `kit.streaming` on a connection: bytes to the session, its events to `react`,
its bytes back.

Shared by all code that terminates or joins streams. Does not interpret the events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

_BEHIND: Final = 256 * 1024  # bytes in a session that wait for the peer


class Wire(Protocol):
    """A byte connection, such as `RawConnection`."""

    on_close: Callable[[], None] | None
    on_writable: Callable[[], None] | None

    def receive(self, on_data: Callable[[bytes], None]) -> None: ...
    def write(self, data: bytes) -> None: ...
    @property
    def writable(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


class UpgradeSession(Protocol):
    """What `RemoteCommand` and `PortForward` have in common."""

    def start(self) -> list[Any]: ...
    def receive_data(self, data: bytes) -> list[Any]: ...
    def receive_eof(self) -> list[Any]: ...
    def data_to_send(self) -> bytes: ...
    @property
    def queued(self) -> int: ...
    @property
    def done(self) -> bool: ...


class SessionDriver:
    """`react` gets each event. Code that changes the session outside of it calls `send` afterwards.

    `on_behind(True)` means that the peer does not keep up, `on_behind(False)` that it has caught
    up. `on_received` is called after the events of received data, even if there were none.
    """

    __slots__ = (
        "_behind",
        "_closed",
        "_held",
        "_react",
        "_session",
        "_wire",
        "on_behind",
        "on_received",
    )

    def __init__(self, session: UpgradeSession, wire: Wire, react: Callable[[Any], None]) -> None:
        self._session = session
        self._wire = wire
        self._react = react
        self._behind = False
        self._held = 0
        self._closed = False
        self.on_behind: Callable[[bool], None] | None = None
        self.on_received: Callable[[], None] | None = None

    def start(self) -> None:
        self._wire.on_close = self._lost
        self._wire.on_writable = self._look
        self._handle(self._session.start())
        if not self._closed:
            self._wire.receive(self._received)
            if self._held:
                self._wire.pause_reading()

    def send(self) -> None:
        """Sends the session's output, and closes the connection when the session is done."""
        if self._closed:
            return
        data = self._session.data_to_send()
        if data:
            self._wire.write(data)
        if self._session.done:
            self._closed = True
            self._wire.close()
        else:
            self._look()

    @property
    def behind(self) -> bool:
        return self._behind

    def hold(self) -> None:
        """Reads nothing more from the peer until `release` has been called as often as this."""
        self._held += 1
        if self._held == 1:
            self._wire.pause_reading()

    def release(self) -> None:
        self._held -= 1
        if self._held == 0:
            self._wire.resume_reading()

    def _received(self, data: bytes) -> None:
        self._handle(self._session.receive_data(data))
        if self.on_received is not None:
            self.on_received()

    def _lost(self) -> None:
        self._closed = True
        for event in self._session.receive_eof():
            self._react(event)

    def _handle(self, events: Sequence[Any]) -> None:
        for event in events:
            self._react(event)
        self.send()

    def _look(self) -> None:
        behind = not self._wire.writable or self._session.queued > _BEHIND
        if behind != self._behind and not self._closed:
            self._behind = behind
            if self.on_behind is not None:
                self.on_behind(behind)
