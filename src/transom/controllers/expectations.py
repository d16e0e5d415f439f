"""Expectations: creations and deletions by a controller that its informer does not show yet.

A controller that counts pods in an informer right after it created some would create them again. So
it records what it expects, and does not act on its count until all of it has been observed, or a
timeout has passed.
"""

from __future__ import annotations

from collections.abc import Collection

from transom.kit.clock import Clock

TIMEOUT_SECONDS = 300.0
_JUST_AFTER = 0.001


class _Expected:
    __slots__ = ("creations", "deletions", "since")

    def __init__(self, creations: int, deletions: set[str], since: float) -> None:
        self.creations = creations
        self.deletions = deletions
        self.since = since


class Expectations:
    """By the key of the owner."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expected: dict[str, _Expected] = {}

    def expect(self, owner: str, creations: int, deletions: Collection[str] = ()) -> None:
        """Expects a number of creations, and deletions by key. Each deletion counts once, whether
        it is observed as a deletion timestamp, a deletion, or both.
        """
        self._expected[owner] = _Expected(creations, set(deletions), self._clock.monotonic())

    def created(self, owner: str, count: int = 1) -> None:
        """Creations were observed, or failed."""
        expected = self._expected.get(owner)
        if expected is not None:
            expected.creations -= count

    def deleted(self, owner: str, key: str) -> None:
        expected = self._expected.get(owner)
        if expected is not None:
            expected.deletions.discard(key)

    def satisfied(self, owner: str) -> bool:
        expected = self._expected.get(owner)
        if expected is None or (expected.creations <= 0 and not expected.deletions):
            return True
        return self._clock.monotonic() - expected.since > TIMEOUT_SECONDS

    def seconds_left(self, owner: str) -> float | None:
        """The seconds until pending expectations time out; None if there are none. Objects that
        were created and deleted while the watch was interrupted are never observed, and no event
        reports it, so the controller must sync again by then.
        """
        if self.satisfied(owner):
            return None
        return (
            max(self._expected[owner].since + TIMEOUT_SECONDS - self._clock.monotonic(), 0.0)
            + _JUST_AFTER
        )

    def forget(self, owner: str) -> None:
        self._expected.pop(owner, None)
