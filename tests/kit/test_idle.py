from __future__ import annotations

import itertools

from transom.kit.idle import wait_until_idle


async def test_work_that_can_wait_begins_when_little_else_is_done() -> None:
    used = [0.0, 0.15, 0.21, 0.22, 0.9]  # at the beginning, and after each moment
    readings = iter(used)
    moments = itertools.count(1)
    waited = 0

    async def sleep(seconds: float) -> None:
        nonlocal waited
        assert seconds > 0
        waited = next(moments)

    await wait_until_idle(cpu_seconds=lambda: next(readings), sleep=sleep)
    assert waited == 3
    assert next(readings) == 0.9


async def test_it_does_not_wait_for_other_processes() -> None:
    moments = 0

    async def sleep(_: float) -> None:
        nonlocal moments
        moments += 1

    await wait_until_idle(cpu_seconds=lambda: 7.0, sleep=sleep)
    assert moments == 1
