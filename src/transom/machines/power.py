"""Requests of programs on a machine to restart it or to switch it off.

The owner of the machine carries them out; without one they have no effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from transom.kit.clock import Clock, Timer
from transom.kit.named_tuple import NamedTuple

PowerAction = Literal["restart", "off"]


class PowerRequest(NamedTuple):
    action: PowerAction
    at: float  # clock.time()


class PowerSwitch:
    """At most one request is pending."""

    __slots__ = ("_clock", "_perform", "_timer", "pending")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._perform: Callable[[PowerAction], None] | None = None
        self._timer: Timer | None = None
        self.pending: PowerRequest | None = None

    def connect(self, perform: Callable[[PowerAction], None]) -> None:
        """Sets the function that carries requests out."""
        self._perform = perform

    def request(self, action: PowerAction, seconds: float) -> bool:
        """Returns False, without any change, while another request is pending."""
        if self.pending is not None:
            return False
        self.pending = PowerRequest(action, self._clock.time() + seconds)
        self._timer = self._clock.call_later(seconds, self._due, action)
        return True

    def cancel(self) -> bool:
        """Returns whether a request was pending."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, before, self.pending = None, self.pending, None
        return before is not None

    def _due(self, action: PowerAction) -> None:
        if self._perform is not None:
            self._perform(action)
