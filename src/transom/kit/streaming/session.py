"""What both kinds of sessions have in common: bytes in, events out, bytes to send, and one end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

Event = TypeVar("Event")


class StreamingSession(ABC, Generic[Event]):
    """One end of a session on one wire."""

    def __init__(self) -> None:
        self.closed = False  # by either side: nothing more will be written
        self._over = False  # the last event was emitted

    def start(self) -> list[Event]:
        """Call once, after the upgrade and before anything else."""
        return []

    def receive_data(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if not self._over:
            self._receive(data, events)
        return events

    def receive_eof(self) -> list[Event]:
        """The peer closed the connection under the session, or it broke."""
        events: list[Event] = []
        self._end_session(self._eof_error(), events)
        return events

    @abstractmethod
    def data_to_send(self) -> bytes: ...

    @property
    def queued(self) -> int:
        """Bytes that wait for the peer and are not in `data_to_send` yet."""
        return 0

    @property
    def done(self) -> bool:
        """Close the connection under the session once everything in `data_to_send` is sent."""
        return self._over or (self.closed and not self.queued)

    @abstractmethod
    def _receive(self, data: bytes, events: list[Event]) -> None: ...

    def _eof_error(self) -> str:
        return ""

    @abstractmethod
    def _last_events(self, error: str) -> list[Event]:
        """The events to emit at the end."""

    def _end_session(self, error: str, events: list[Event]) -> None:
        if not self._over:
            self._over = self.closed = True
            events += self._last_events(error)
