"""The clock of test clusters: real time that can be advanced."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from transom.kit.adjustable_clock import AdjustableClock, IdleDetectingLoop


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=IdleDetectingLoop) as runner:
        runner.run(main)


def test_timers_run_at_their_time_in_order() -> None:
    async def main() -> None:
        clock = AdjustableClock()
        start, ran = clock.monotonic(), list[tuple[str, int]]()

        def note(name: str) -> None:
            ran.append((name, round(clock.monotonic() - start)))

        clock.call_later(200, note, "b")
        clock.call_later(100, note, "a")
        clock.call_later(150, note, "never").cancel()
        clock.call_later(100, lambda: clock.call_later(50, note, "nested"))
        clock.call_later(900, note, "later")
        began = clock.time()
        ended = await clock.advance(300)
        assert ran == [("a", 100), ("nested", 150), ("b", 200)]
        assert ended == pytest.approx(began + 300, abs=1)
        await clock.advance(600)
        assert ran[-1] == ("later", 900)

    run(main())


def test_work_that_a_timer_starts_ends_before_time_advances() -> None:
    """Also work that needs a thread or a socket."""

    async def main() -> None:
        clock = AdjustableClock()
        loop = asyncio.get_running_loop()
        start, seen = clock.monotonic(), list[int]()
        left, right = socket.socketpair()
        left.setblocking(False)
        right.setblocking(False)
        gate = threading.Event()

        async def work() -> None:
            while True:
                await clock.sleep(10)
                threading.Timer(0.01, gate.set).start()
                await asyncio.to_thread(gate.wait)
                gate.clear()
                await loop.sock_sendall(left, b"x")
                await loop.sock_recv(right, 1)
                seen.append(round(clock.monotonic() - start))

        task = asyncio.create_task(work())
        await clock.advance(35)
        assert seen == [10, 20, 30]
        task.cancel()
        left.close()
        right.close()

    run(main())


def test_time_passes_by_itself_between_two_advances() -> None:
    async def main() -> None:
        clock = AdjustableClock()
        await clock.advance(1000)
        began, real = clock.time(), time.monotonic()
        await clock.sleep(0.02)
        assert clock.time() - began >= 0.02
        assert clock.time() - began == pytest.approx(time.monotonic() - real, abs=0.01)
        assert clock.time() > time.time() + 900

    run(main())


def test_a_long_timer_comes_closer_with_each_advance() -> None:
    async def main() -> None:
        clock = AdjustableClock()
        task = asyncio.create_task(clock.sleep(1000.01))
        await clock.advance(1000)
        assert not task.done()
        await asyncio.wait_for(task, 10)  # the rest in real time

    run(main())


def test_cancelled_timers_are_forgotten() -> None:
    async def main() -> None:
        clock = AdjustableClock()
        kept = clock.call_later(3600, run)
        for _ in range(1000):
            clock.call_later(3600, run).cancel()
        assert len(clock._timers) < 300
        kept.cancel()

    run(main())


async def test_another_loop_is_refused() -> None:
    with pytest.raises(RuntimeError, match="IdleDetectingLoop"):
        await AdjustableClock().advance(1)
