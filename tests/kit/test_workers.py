"""CPU-bound calls run outside of the event loop, in turns, within their budget."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from transom.kit.workers import WorkerThread, WorkRejected, WorkTimeout


@pytest.fixture
def workers() -> Iterator[WorkerThread]:
    workers = WorkerThread(cpu_seconds=5.0, queue_length=3)
    yield workers
    workers.close()


def busy(seconds: float) -> int:
    steps = 0
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        steps += 1
    return steps


async def test_results_and_exceptions_reach_the_caller(workers: WorkerThread) -> None:
    assert await workers.run(lambda: 7) == 7
    with pytest.raises(ValueError, match="no"):
        await workers.run(lambda: int("no"))
    assert await workers.run(threading.get_ident) != threading.get_ident()


async def test_the_loop_answers_while_a_call_computes(workers: WorkerThread) -> None:
    work = asyncio.ensure_future(workers.run(lambda: busy(1.0)))
    before = time.thread_time()
    turns = 0
    while not work.done():
        await asyncio.sleep(0.005)
        turns += 1
    assert turns > 20
    [used] = [time.thread_time() - before]
    assert used < 0.5, "the computation ran on the loop's thread"


async def test_a_call_over_its_budget_is_interrupted_and_the_next_one_runs(
    workers: WorkerThread,
) -> None:
    before = time.monotonic()
    with pytest.raises(WorkTimeout):
        await workers.run(lambda: busy(60), seconds=0.3)
    assert time.monotonic() - before < 20
    assert await workers.run(lambda: "next") == "next"


async def test_a_call_that_swallows_exceptions_is_still_interrupted(workers: WorkerThread) -> None:
    def stubborn() -> None:
        while True:
            with contextlib.suppress(Exception):
                busy(0.01)

    with pytest.raises(WorkTimeout):
        await workers.run(stubborn, seconds=0.3)


async def test_a_cancelled_call_frees_the_worker() -> None:
    workers = WorkerThread(cpu_seconds=0.3)
    running = asyncio.ensure_future(workers.run(lambda: busy(60)))
    waiting = asyncio.ensure_future(workers.run(lambda: busy(60)))
    await asyncio.sleep(0.05)
    running.cancel()
    waiting.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)
    assert await asyncio.wait_for(workers.run(lambda: 1), 20) == 1
    workers.close()


async def test_groups_take_turns_and_have_a_limit(workers: WorkerThread) -> None:
    order: list[str] = []
    gate, started = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait() -> None:
        loop.call_soon_threadsafe(started.set)
        gate.wait()

    first = asyncio.ensure_future(workers.run(wait, group="a"))
    await started.wait()
    calls = [
        asyncio.ensure_future(workers.run(lambda: order.append("a"), group="a")) for _ in range(3)
    ]
    await asyncio.sleep(0)
    with pytest.raises(WorkRejected):
        await workers.run(lambda: None, group="a")
    calls.append(asyncio.ensure_future(workers.run(lambda: order.append("b"), group="b")))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, *calls)
    assert order.index("b") <= 1, order


def test_work_for_one_loop_after_another(workers: WorkerThread) -> None:
    for number in range(3):

        async def main(number: int = number) -> int:
            return await workers.run(lambda: number)

        assert asyncio.run(main()) == number
