"""The garbage collector's passes in a server."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from transom.kit.clock import VirtualClock
from transom.kit.garbage import bound_collections, collect_regularly, pause_collections

_STORED = 20_000
_ROUNDS = 10


@pytest.fixture
def young_objects() -> Iterator[list[int]]:
    """How many objects each pass looked at, with the settings of a server."""
    found: list[int] = []

    def record(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            found.append(sum(len(gc.get_objects(g)) for g in range(info["generation"] + 1)))

    thresholds, callbacks = gc.get_threshold(), [*gc.callbacks]
    gc.collect()
    bound_collections()
    gc.callbacks.append(record)
    yield found
    gc.callbacks[:] = callbacks
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.parametrize("regularly", [True, False])
def test_passes_stay_short_while_stored_objects_are_replaced(
    young_objects: list[int], regularly: bool
) -> None:
    clock = VirtualClock()
    stored = [[{"a": [i]} for i in range(_STORED)] for _ in range(_ROUNDS)]
    gc.freeze()
    young_objects.clear()
    if regularly:
        collect_regularly(clock.call_later, clock.monotonic)
    for one in stored:
        for number in range(_STORED):
            one[number] = {"a": [number]}
        clock.advance(0.3)
    gc.collect(1)
    # A round makes two objects for each stored one; two rounds may be young.
    assert (max(young_objects) < 5 * _STORED) is regularly


def test_a_pause_ends_with_its_last_user(young_objects: list[int]) -> None:
    """What was made meanwhile lives until exit in a server, and is never examined."""
    gc.freeze()
    young_objects.clear()
    with pause_collections():
        made = [[[]] for _ in range(_STORED)]
        with pause_collections():
            made += [[[]] for _ in range(_STORED)]
        made += [[[]] for _ in range(_STORED)]
        assert not gc.isenabled() and not young_objects
    assert gc.isenabled()
    gc.collect(1)
    assert max(young_objects) < len(made)


def test_a_pause_in_a_program_that_is_no_server_changes_nothing_else() -> None:
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    with pause_collections():
        made = [[[]] for _ in range(10)]
    assert gc.isenabled() and gc.get_freeze_count() == frozen and made
    gc.disable()
    try:
        with pause_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_regular_passes_rest_during_a_pause(young_objects: list[int]) -> None:
    clock = VirtualClock()
    collect_regularly(clock.call_later, clock.monotonic)
    with pause_collections():
        young_objects.clear()
        clock.advance(1)
        assert not young_objects
    clock.advance(1)
    assert young_objects


def test_a_server_that_does_nothing_examines_nothing(young_objects: list[int]) -> None:
    clock = VirtualClock()
    collect_regularly(clock.call_later, lambda: 5.0)
    young_objects.clear()
    clock.advance(100)
    assert not young_objects
