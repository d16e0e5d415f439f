"""The choice of controllers, and when they start."""

from __future__ import annotations

import asyncio
import random
from typing import cast

import pytest
from tests.apiserver.harness import start
from tests.client.conftest import ADMIN

from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import ApiClient
from transom.client.resources import PODS
from transom.controllers.base import Controller, ControllerContext, ControllerSettings
from transom.controllers.early import EARLY_CONTROLLERS
from transom.controllers.manager import (
    CONTROLLERS,
    ControllerManager,
    ControllerRow,
    UnknownController,
    selected_controllers,
)
from transom.controllers.runner import ControllerRunner
from transom.kit.clock import RealClock, VirtualClock

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


async def test_a_controller_that_fails_is_restarted_with_back_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    built: list[float] = []
    steady: list[float] = []

    class Failing:
        def __init__(self, env: ControllerContext) -> None:
            built.append(clock.monotonic())
            env.informers(PODS).add_handler(add=lambda _pod: None)

        async def run(self) -> None:
            if len(built) < 5:
                raise RuntimeError("a defect")
            await asyncio.Event().wait()

    class Steady:
        def __init__(self, env: ControllerContext) -> None:
            steady.append(clock.monotonic())
            env.informers(PODS).add_handler(add=lambda _pod: None)

        async def run(self) -> None:
            await asyncio.Event().wait()

    api = await start()
    runner = ControllerRunner(
        lambda _identity: InProcessClient(api.server, ADMIN),
        clock,
        random.Random(1),
        ControllerSettings(),
    )
    rows = [
        ControllerRow("failing", "", Failing),
        ControllerRow("steady", "", Steady),
    ]
    task = asyncio.create_task(runner.run(rows))
    await clock.run_for(20.0)
    assert [at - built[0] for at in built] == [0.0, 1.0, 3.0, 7.0, 15.0]
    assert len(steady) == 1
    assert len(runner.informers.handlers()) == 2  # those of former instances are removed
    assert "the controller failing failed; restarting it in 8 s" in caplog.text
    assert "RuntimeError: a defect" in caplog.text
    task.cancel()
    await asyncio.wait((task,))
    assert not runner.informers.handlers()
    await api.server.stop()


async def test_controllers_that_have_ended_leave_no_handlers() -> None:
    clock = VirtualClock()
    api = await start()
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1", "services": "1"}}}
    await api.ok("POST", "/api/v1/namespaces/default/resourcequotas", quota)
    manager = ControllerManager(
        lambda _identity: InProcessClient(api.server, ADMIN),
        clock,
        random.Random(1),
        ControllerSettings(),
        controllers=["*", "-nodeipam"],
    )
    task = asyncio.create_task(manager.run())
    await clock.run_for(60.0)
    before = len(manager.informers.handlers())
    task.cancel()
    await asyncio.wait((task,))
    assert before > len(CONTROLLERS)
    assert not manager.informers.handlers()
    await api.server.stop()
