"""Invariants of the work queue, on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from transom.client.ratelimit import ControllerLimiter, ItemBackoff, TokenBucket
from transom.client.workqueue import ShutDown, WorkQueue
from transom.kit.clock import VirtualClock


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def test_an_item_is_queued_once_and_redone_if_added_while_in_work() -> None:
    queue: WorkQueue[str] = WorkQueue(VirtualClock())
    for item in "aab":
        queue.add(item)
    assert len(queue) == 2 and await queue.get() == "a"
    queue.add("a")
    assert len(queue) == 1  # not while it is in work
    queue.done("a")
    assert [await queue.get(), await queue.get()] == ["b", "a"]
    queue.done("a")
    queue.done("b")
    assert queue.idle


async def test_of_several_delays_the_earliest_counts() -> None:
    clock = VirtualClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 7)
    queue.add_after("now", 0)
    assert len(queue) == 1
    clock.advance(2.9)
    assert len(queue) == 1
    clock.advance(0.2)
    assert len(queue) == 2
    await queue.get()
    assert await queue.get() == "a"
    queue.done("a")
    clock.advance(20)
    assert len(queue) == 0


def test_back_off_doubles_and_ends_with_success() -> None:
    limiter = ItemBackoff()
    waits = [limiter.when("a") for _ in range(20)]
    assert (
        waits[:4] == [0.005, 0.01, 0.02, 0.04]
        and waits[17] == 655.36
        and waits[18:] == [1000.0, 1000.0]
    )
    assert limiter.when("b") == 0.005
    limiter.forget("a")
    assert limiter.when("a") == 0.005 and limiter.failures("a") == 1


def test_all_retries_share_one_bucket() -> None:
    clock = VirtualClock()
    limiter = ControllerLimiter(clock)
    waits = [limiter.when(n) for n in range(103)]
    assert waits[:100] == [0.005] * 100
    assert [round(w, 6) for w in waits[100:]] == [0.1, 0.2, 0.3]
    clock.advance(1.3)
    assert round(limiter.when("later"), 6) == 0.005


def test_a_bucket_refuses_when_empty() -> None:
    clock = VirtualClock()
    bucket = TokenBucket(clock, 1 / 300, 2)
    assert [bucket.allow() for _ in range(3)] == [True, True, False]
    clock.advance(299)
    assert not bucket.allow()
    clock.advance(1)
    assert bucket.allow()


async def test_failures_come_back_later_and_success_forgets() -> None:
    clock = VirtualClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    tried: list[float] = []

    async def sync(_item: str) -> None:
        tried.append(round(clock.monotonic(), 3))
        if len(tried) < 4:
            raise ConnectionError("away")

    workers = asyncio.create_task(queue.run(sync))
    queue.add("a")
    await clock.run_for(1)
    assert tried == [0.0, 0.005, 0.015, 0.035] and queue.failures("a") == 0
    queue.shut_down()
    await workers


async def test_shutting_down_ends_workers_after_what_is_there() -> None:
    async def scenario() -> None:
        queue: WorkQueue[int] = WorkQueue(VirtualClock())
        done: list[int] = []

        async def sync(item: int) -> None:
            done.append(item)

        for item in range(5):
            queue.add(item)
        queue.add_after(99, 1)
        queue.shut_down()
        queue.add(100)
        await queue.run(sync, workers=2)
        assert done == [0, 1, 2, 3, 4]
        try:
            await queue.get()
        except ShutDown:
            return
        raise AssertionError("a queue that is shut down gave something")

    await scenario()


async def test_a_cancelled_getter_loses_nothing() -> None:
    queue: WorkQueue[str] = WorkQueue(VirtualClock())
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")  # wakes the first, which is cancelled before it can take it
    first.cancel()
    assert await asyncio.wait_for(second, 1) == "a"


@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=40),
)
async def test_no_add_is_lost_and_no_item_is_worked_on_twice_at_once(
    seed: int, workers: int, adds: list[tuple[int, int]]
) -> None:
    """Whatever happens: after the last add of an item a sync of it begins, and there is only one at
    a time.
    """

    clock, rng = VirtualClock(), random.Random(seed)
    queue: WorkQueue[int] = WorkQueue(clock)
    busy: Counter[int] = Counter()
    last_add: dict[int, float] = {}
    last_start: dict[int, float] = {}

    async def sync(item: int) -> None:
        busy[item] += 1
        assert busy[item] == 1
        last_start[item] = clock.monotonic()
        await clock.sleep(rng.random() * 3)
        busy[item] -= 1
        if rng.random() < 0.2:
            raise ConnectionError("away")

    task = asyncio.create_task(queue.run(sync, workers))
    for item, pause in adds:
        last_add[item] = clock.monotonic()
        queue.add(item)
        await clock.run_for(pause * 0.37)
    await clock.run_for(500)
    assert queue.idle
    assert all(last_start[item] >= at for item, at in last_add.items())
    queue.shut_down()
    await task


async def test_a_worker_that_is_cancelled_ends_even_if_cleaning_up_fails() -> None:
    queue: WorkQueue[str] = WorkQueue(VirtualClock())
    begun = asyncio.Event()

    async def sync(_item: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("the server has gone")

    workers = asyncio.create_task(queue.run(sync))
    queue.add("a")
    await begun.wait()
    workers.cancel()
    done, _ = await asyncio.wait((workers,), timeout=5)
    assert done and workers.cancelled()
