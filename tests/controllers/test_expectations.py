"""A controller waits for its expectations until they are fulfilled or expire."""

from __future__ import annotations

from transom.controllers.expectations import TIMEOUT_SECONDS, Expectations
from transom.kit.clock import VirtualClock


def test_creations_and_deletions_are_waited_for() -> None:
    found = Expectations(VirtualClock())
    assert found.satisfied("a")
    found.expect("a", 2, ["x", "y"])
    found.created("a")
    found.deleted("a", "x")
    found.deleted("a", "x")  # first its timestamp, then itself
    found.deleted("a", "z")  # deleted by another client
    assert not found.satisfied("a") and found.satisfied("b")
    found.created("a", 3)
    assert not found.satisfied("a")
    found.deleted("a", "y")
    assert found.satisfied("a")


def test_they_end_with_time_and_with_their_owner() -> None:
    clock = VirtualClock()
    found = Expectations(clock)
    found.expect("a", 1)
    found.expect("b", 1)
    found.forget("a")
    clock.advance(TIMEOUT_SECONDS)
    assert found.satisfied("a") and not found.satisfied("b")
    clock.advance(1)
    assert found.satisfied("b")
