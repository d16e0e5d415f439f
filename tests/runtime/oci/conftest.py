from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest
from tests.conftest import UVLOOP, Backend
from tests.runtime import behaviour
from tests.runtime.behaviour import RuntimeHarness

StartHarness = Callable[[], AbstractAsyncContextManager[RuntimeHarness]]


@pytest.fixture
def anyio_backend() -> Backend:
    return UVLOOP


def bench_starter(kind: str, folder: Path) -> StartHarness:
    why = behaviour.unavailable(kind)
    if why:
        pytest.skip(why)
    return partial(behaviour.running_harness, kind, folder)


@pytest.fixture(params=sorted(behaviour.KINDS))
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> StartHarness:
    """Starts every kind of runtime."""
    return bench_starter(request.param, tmp_path)


@pytest.fixture
def oci(tmp_path: Path) -> StartHarness:
    """Starts a runtime with real Linux containers."""
    return bench_starter("oci", tmp_path)
