from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.runtime import behaviour
from tests.runtime.behaviour import Bench

Scenario = Callable[[Bench], Awaitable[None]]


def player(kind: str, folder: Path) -> Callable[[Scenario], None]:
    why = behaviour.unavailable(kind)
    if why:
        pytest.skip(why)
    return lambda scenario: behaviour.play(kind, folder, scenario)


@pytest.fixture(params=sorted(behaviour.KINDS))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """Plays a scenario on every kind of runtime."""
    return player(request.param, tmp_path)


@pytest.fixture
def oci(tmp_path: Path) -> Callable[[Scenario], None]:
    """Plays a scenario on real Linux containers."""
    return player("oci", tmp_path)
