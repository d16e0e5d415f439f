"""When a status is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from transom.kit.clock import Timer, VirtualClock
from transom.kubelet.status_manager import StatusManager
from transom.machinery.objects import Object

POD: Object = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "1"},
    "spec": {"containers": [{"name": "c"}]},
    "status": {"phase": "Pending"},
}


class BusyClock(VirtualClock):
    """Of a process whose timers are `late`."""

    late = 0.0

    def call_later(self, seconds: float, function: Callable[..., object], *args: Any) -> Timer:
        return super().call_later(seconds + self.late, function, *args)


class Writes:
    """An API client that records the written phases."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    async def patch(
        self, _resource: Any, _namespace: str, _name: str, body: Any, *_: Any, **__: Any
    ) -> Object:
        self.phases.append(body["status"].get("phase", "Pending"))
        meta = {**POD["metadata"], "resourceVersion": str(len(self.phases) + 1)}
        return {"metadata": meta, "status": body["status"]}


def starting() -> Object:
    state = {"waiting": {"reason": "ContainerCreating"}}
    return {"phase": "Pending", "containerStatuses": [{"name": "c", "state": state}]}


def running() -> Object:
    return {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"running": {}}}]}


@pytest.fixture
def clock() -> BusyClock:
    return BusyClock()


async def written(clock: BusyClock, late: float, before: float, after: float = 0.2) -> list[str]:
    """The phases that were written for a start that takes this long, in virtual time."""
    writes = Writes()
    manager = StatusManager(writes, clock, lambda _: POD)  # type: ignore[arg-type]
    clock.late = late
    manager.set(POD, starting())
    await clock.run_for(before)
    manager.set(POD, running())
    await clock.run_for(after)
    return writes.phases


async def test_a_start_is_reported_after_a_moment(clock: BusyClock) -> None:
    assert await written(clock, late=0, before=0.09) == ["Running"]


async def test_a_longer_start_is_reported(clock: BusyClock) -> None:
    assert await written(clock, late=0, before=0.11) == ["Pending", "Running"]


async def test_a_start_in_a_busy_process_is_reported_later(clock: BusyClock) -> None:
    assert await written(clock, late=0.05, before=0.5) == ["Running"]


async def test_a_long_start_in_a_busy_process_is_reported(clock: BusyClock) -> None:
    assert await written(clock, late=0.05, before=2.5) == ["Pending", "Running"]
