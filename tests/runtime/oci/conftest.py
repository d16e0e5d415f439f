from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest
from tests.conftest import UVLOOP, Backend
from tests.runtime import behaviour
from tests.runtime.behaviour import Bench

StartBench = Callable[[], AbstractAsyncContextManager[Bench]]


@pytest.fixture
def anyio_backend() -> Backend:
    return UVLOOP


def bench_starter(kind: str, folder: Path) -> StartBench:
    why = behaviour.unavailable(kind)
    if why:
        pytest.skip(why)
    return partial(behaviour.running_bench, kind, folder)


@pytest.fixture(params=sorted(behaviour.KINDS))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> StartBench:
    """Starts every kind of runtime."""
    return bench_starter(request.param, tmp_path)


@pytest.fixture
def oci(tmp_path: Path) -> StartBench:
    """Starts a runtime with real Linux containers."""
    return bench_starter("oci", tmp_path)
