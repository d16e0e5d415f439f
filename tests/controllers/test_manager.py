"""The choice of controllers, and when they start."""

from __future__ import annotations

import asyncio
import random
from typing import cast

import pytest

from transom.client.api import ApiClient
from transom.controllers.base import Controller, ControllerContext, ControllerSettings
from transom.controllers.early import EARLY_CONTROLLERS
from transom.controllers.manager import (
    CONTROLLERS,
    ControllerRow,
    UnknownController,
    selected_controllers,
)
from transom.controllers.runner import ControllerRunner
from transom.kit.clock import RealClock

TABLE = tuple(
    ControllerRow(name, name, lambda _env: None, on)
    for name, on in (("a", True), ("b", True), ("c", False))
)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (["*"], "ab"),
        (["*", "-a"], "b"),
        (["*", "c"], "abc"),
        (["c"], "c"),
        (["-a"], ""),
        (["a", "-a"], ""),
        ([], ""),
    ],
)
def test_selection(wanted: list[str], names: str) -> None:
    assert "".join(row.name for row in selected_controllers(wanted, TABLE)) == names


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownController, match='"d" is not in the list of known controllers'):
        selected_controllers(["*", "-d"], TABLE)


def test_a_cluster_runs_each_controller_once() -> None:
    names = [row.name for row in CONTROLLERS]
    assert len(names) == len(set(names))
    assert {row.name for row in EARLY_CONTROLLERS} < set(names)


async def test_later_controllers_start_when_it_is_time_and_share_the_informers() -> None:
    running: dict[str, ControllerContext] = {}

    class Recorded:
        def __init__(self, name: str, env: ControllerContext) -> None:
            self._name, self._env = name, env

        async def run(self) -> None:
            running[self._name] = self._env
            await asyncio.Event().wait()

    def row(name: str) -> ControllerRow:
        def build(env: ControllerContext) -> Controller:
            return Recorded(name, env)

        return ControllerRow(name, name, build)

    ready = asyncio.Event()

    async def later() -> list[ControllerRow]:
        await ready.wait()
        return [row("b")]

    runner = ControllerRunner(
        lambda _identity: cast(ApiClient, object()),
        RealClock(),
        random.Random(1),
        ControllerSettings(),
    )
    task = asyncio.create_task(runner.run([row("a")], later))
    for _ in range(10):
        await asyncio.sleep(0)
    assert [*running] == ["a"]
    ready.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert [*running] == ["a", "b"]
    assert running["a"].informers is running["b"].informers is runner.informers
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
