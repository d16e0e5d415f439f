"""The garbage collector's passes in a server."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from transom.kit.clock import VirtualClock
from transom.kit.process import bound_collections, collect_regularly

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
        collect_regularly(clock.call_later)
    for one in stored:
        for number in range(_STORED):
            one[number] = {"a": [number]}
        clock.advance(0.1)
    gc.collect(1)
    # A round makes two objects for each stored one; two rounds may be young.
    assert (max(young_objects) < 5 * _STORED) is regularly
