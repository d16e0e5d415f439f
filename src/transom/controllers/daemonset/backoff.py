"""Longer and longer waits for things that fail again and again, by key."""

from __future__ import annotations

from transom.kit.clock import Clock


class Backoff:
    def __init__(self, clock: Clock, first: float, longest: float) -> None:
        self._clock = clock
        self._first = first
        self._longest = longest
        self._entries: dict[str, tuple[float, float]] = {}  # how long to wait, and since when

    def waiting(self, key: str) -> float:
        """The wait that is not over yet; 0 when there is none."""
        wait, since = self._entries.get(key, (0.0, 0.0))
        return wait if wait and self._clock.monotonic() - since < wait else 0.0

    def next(self, key: str) -> None:
        """It failed again: wait twice as long as last time, or begin anew after a long rest."""
        now = self._clock.monotonic()
        wait, since = self._entries.get(key, (0.0, 0.0))
        rested = not wait or now - since > 2 * self._longest
        self._entries[key] = (self._first if rested else min(2 * wait, self._longest)), now
        self._collect(now)

    def _collect(self, now: float) -> None:
        if len(self._entries) > 1000:
            self._entries = {k: e for k, e in self._entries.items() if now - e[1] <= 2 * self._longest}
