"""The loop watchdog: which callbacks it reports, on both event loops, and its messages."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from transom.kit.loop_watchdog import GcTimer, LongCallback, LoopWatchdog, exact_watch
from transom.kit.prometheus import render_metrics

pytestmark = pytest.mark.loop_budget(None)

BUDGET = 0.1


def burn(seconds: float) -> None:
    """Uses CPU time of this thread in Python code."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(500))


def burn_in_c(seconds: float) -> None:
    """Uses about this much CPU time in one call that keeps the interpreter lock."""
    count = 200_000
    while True:
        numbers = [(i * 7919) % 1_000_003 for i in range(count)]
        began = time.thread_time()
        sorted(numbers, key=str)
        took = time.thread_time() - began
        if took >= seconds:
            return
        count = int(count * seconds / took * 1.2)


@pytest.fixture(params=["asyncio", "uvloop"])
def watched(
    request: pytest.FixtureRequest,
) -> Callable[[Callable[[], Awaitable[None]]], list[LongCallback]]:
    """Runs a coroutine under a watchdog; what it reports."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def run(work: Callable[[], Awaitable[None]]) -> list[LongCallback]:
        found: list[LongCallback] = []

        async def main() -> None:
            watchdog = LoopWatchdog(BUDGET, found.append)
            watchdog.start()
            await asyncio.sleep(0.05)
            await work()
            await asyncio.sleep(0.15)  # the watchdog's thread judges a callback after it
            watchdog.stop()

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())
        return found

    return run


def names(found: LongCallback) -> list[str]:
    return [code.co_name for code, _ in found.stack]


def test_reports_a_long_callback_with_the_stack_that_ran(
    watched: Callable[[Callable[[], Awaitable[None]]], list[LongCallback]],
) -> None:
    async def work() -> None:
        burn(0.3)

    [found] = watched(work)
    assert 0.25 < found.seconds < 0.4
    assert "burn" in names(found) and "work" in names(found)
    assert "event loop blocked for " in found.describe(BUDGET) and "in burn" in found.describe(
        BUDGET
    )


def test_reports_a_protocol_callback(
    watched: Callable[[Callable[[], Awaitable[None]]], list[LongCallback]],
) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def heavy() -> None:
            burn(0.3)
            done.set_result(None)

        loop.call_later(0.01, heavy)
        await done

    [found] = watched(work)
    assert "heavy" in names(found)


def test_reports_one_call_that_keeps_the_interpreter_lock(
    watched: Callable[[Callable[[], Awaitable[None]]], list[LongCallback]],
) -> None:
    async def work() -> None:
        burn_in_c(0.3)

    found = watched(work)
    assert any("burn_in_c" in names(one) for one in found)


def test_many_short_callbacks_are_not_a_long_one(
    watched: Callable[[Callable[[], Awaitable[None]]], list[LongCallback]],
) -> None:
    async def work() -> None:
        async def worker() -> None:
            for _ in range(20):
                burn(0.004)
                await asyncio.sleep(0)

        # Two hundred steps in one iteration of the loop use far more than the budget; each one does
        # not.
        await asyncio.gather(*(worker() for _ in range(10)))
        for _ in range(100):
            asyncio.get_running_loop().call_soon(burn, 0.003)
        await asyncio.sleep(0)

    assert watched(work) == []


def test_a_busy_loop_that_starves_other_threads_is_not_a_long_callback(
    watched: Callable[[Callable[[], Awaitable[None]]], list[LongCallback]],
) -> None:
    async def work() -> None:
        async def worker() -> None:
            for _ in range(2000):
                sum(range(3000))
                await asyncio.sleep(0)

        await asyncio.gather(*(worker() for _ in range(8)))

    assert watched(work) == []


def test_waiting_is_not_counted(
    watched: Callable[[Callable[[], Awaitable[None]]], list[LongCallback]],
) -> None:
    async def work() -> None:
        time.sleep(0.3)  # noqa: ASYNC251
        other = threading.Thread(target=burn, args=(0.3,))
        other.start()
        other.join()

    assert watched(work) == []


async def test_logs_and_counts_what_nothing_else_takes(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = LoopWatchdog(BUDGET)
    watchdog.start()
    burn(0.3)
    await asyncio.sleep(0.15)
    watchdog.stop()
    with caplog.at_level(logging.ERROR):
        watchdog = watchdog
    assert "event loop blocked for" in caplog.text and "in burn" in caplog.text
    out = render_metrics(watchdog.collect_metrics()).splitlines()
    assert "transom_loop_blocked_seconds_count 1" in out
    assert float(out[2].removeprefix("transom_loop_blocked_seconds_sum ")) == pytest.approx(
        watchdog.worst
    )


def test_the_exact_watch_measures_each_callback() -> None:
    found: list[LongCallback] = []

    async def main() -> None:
        burn(0.12)
        await asyncio.sleep(0)
        for _ in range(10):
            asyncio.get_running_loop().call_soon(burn, 0.03)
        await asyncio.sleep(0.01)

    with exact_watch(BUDGET, found.append):
        asyncio.run(main())
    [one] = found
    assert 0.12 <= one.seconds < 0.2
    assert "burn" in names(one)


def test_the_exact_watch_exempts_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text(
        "import time\nend = time.thread_time() + 0.15\nwhile time.thread_time() < end:\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found: list[LongCallback] = []

    async def main() -> None:
        importlib.import_module("slow_to_import")

    with exact_watch(BUDGET, found.append):
        asyncio.run(main())
    assert found == []


def test_garbage_collection_is_recognised() -> None:
    timer = GcTimer()
    timer.start()
    gc.collect()
    timer.stop()
    assert timer.total > 0 and timer.worst > 0
    before = timer.total
    gc.collect()
    assert timer.total == before
    assert "garbage collection 150 ms" in LongCallback(0.2, 0.15, ()).describe(BUDGET)
