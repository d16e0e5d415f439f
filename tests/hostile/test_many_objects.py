"""Requests that touch many objects without waiting for anything: they yield to other tasks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

import pytest
from tests.apiserver.harness import Api, start
from tests.hostile.test_bodies import CONFIG_MAPS

from transom.apiserver.core import options
from transom.kit import time_slice

MANY = 500


@pytest.fixture(autouse=True)
def every_step_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slice, "_SECONDS", -1.0)


async def turns_of_others(work: Awaitable[Any]) -> int:
    """How often another task runs until the work is done."""
    pending = asyncio.ensure_future(work)
    count = 0
    while not pending.done():
        await asyncio.sleep(0)
        count += 1
    await pending
    return count


async def with_config_maps(**metadata: Any) -> Api:
    api = await start()
    for number in range(MANY):
        await api.ok("POST", CONFIG_MAPS, {"metadata": {"name": f"a{number}", **metadata}})
    return api


async def test_a_dry_run_of_deleting_many_objects_yields() -> None:
    api = await with_config_maps()
    assert await turns_of_others(api.ok("DELETE", f"{CONFIG_MAPS}?dryRun=All")) > MANY / 2
    await api.server.stop()


async def test_deleting_many_objects_that_finalizers_hold_yields() -> None:
    api = await with_config_maps(finalizers=["example.com/hold"])
    await api.ok("DELETE", CONFIG_MAPS)
    # they are marked already: nothing is written
    assert await turns_of_others(api.ok("DELETE", CONFIG_MAPS)) > MANY / 2
    await api.server.stop()


async def test_large_options_of_a_deletion_are_checked_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[threading.Thread] = []
    original = options.rules.validate_delete_options

    def recorded(given: Any) -> Any:
        threads.append(threading.current_thread())
        return original(given)

    monkeypatch.setattr(options.rules, "validate_delete_options", recorded)
    api = await start()
    await api.ok("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
    body = {"dryRun": ["x"] * 100_000}
    status, answer = await api.call("DELETE", f"{CONFIG_MAPS}/a", body)
    assert status == 422 and "Unsupported value" in answer["message"]
    await api.server.stop()
    assert threads and threading.main_thread() not in threads
