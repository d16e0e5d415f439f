"""Delivers received data in pieces that take the receiver a few milliseconds each, so that a flood
of tiny messages on one connection does not block the event loop. Does not interpret the bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

_LARGEST: Final = 32 * 1024
_SMALLEST: Final = 1024
_SECONDS: Final = 0.005  # time limit of a piece; after a slower one, the next one is smaller


class PacedInput:
    """Received data that is not delivered yet. `pause` and `resume` are the socket's.

    Delivers in order, starting with `deliver_to`, while not paused. `failed` is called when the
    receiver raises.
    """

    __slots__ = (
        "_backlog",
        "_discarded",
        "_failed",
        "_held",
        "_loop",
        "_on_data",
        "_on_end",
        "_pause",
        "_piece",
        "_resume",
        "_turn_due",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pause: Callable[[], None],
        resume: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._pause = pause
        self._resume = resume
        self._failed = failed
        self._on_data: Callable[[bytes], None] | None = None
        self._on_end: Callable[[], None] | None = None
        self._backlog = b""
        self._piece = _LARGEST
        self._held = 0
        self._discarded = False
        self._turn_due = False

    def deliver_to(self, on_data: Callable[[bytes], None]) -> None:
        self._on_data = on_data
        if self._backlog:
            self._deliver_later()

    def feed(self, data: bytes) -> None:
        if self._discarded:
            return
        if self._backlog or self._on_data is None or self._held:
            self._backlog += data
            if len(self._backlog) > 2 * _LARGEST:
                self._pause()
        elif len(data) <= self._piece:
            self._give(self._on_data, data)
        else:
            self._backlog = data[self._piece :]
            self._pause()
            self._deliver_later()
            self._give(self._on_data, data[: self._piece])

    def hold(self) -> None:
        """Delivers nothing until `release` has been called as often as this."""
        self._held += 1
        if not self._discarded:
            self._pause()

    def release(self) -> None:
        self._held -= 1
        if not self._held and not self._discarded:
            if self._backlog or self._on_end is not None:
                self._deliver_later()
            else:
                self._resume()

    def end(self, on_end: Callable[[], None]) -> None:
        """Nothing more will be received: calls `on_end` when everything is delivered."""
        if self._backlog and self._on_data is not None:
            self._on_end = on_end
        else:
            on_end()

    def discard(self) -> None:
        """The receiver is gone. Reads and drops further data: closing a socket with unread input
        resets it, and the peer might lose data sent to it before.
        """
        self._discarded = True
        self._backlog = b""
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()
        else:
            self._resume()

    def _deliver_later(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._turn_due = False
        if self._held or self._on_data is None or self._discarded:
            return
        piece, self._backlog = self._backlog[: self._piece], self._backlog[self._piece :]
        if self._backlog:
            self._deliver_later()
        if piece:
            self._give(self._on_data, piece)
        if not self._backlog and not self._discarded:
            if self._on_end is not None:
                on_end, self._on_end = self._on_end, None
                on_end()
            elif not self._held:
                self._resume()

    def _give(self, on_data: Callable[[bytes], None], piece: bytes) -> None:
        began = monotonic()
        try:
            on_data(piece)
        except Exception:
            self._failed()
        if monotonic() - began > _SECONDS:
            self._piece = max(_SMALLEST, self._piece // 2)
        elif self._piece < _LARGEST:
            self._piece = min(_LARGEST, self._piece * 2)
