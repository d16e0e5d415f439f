"""A priority level: its seats are never exceeded, flows are treated fairly, no request is lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from transom.apiserver.flowcontrol.levels import WAIT_LIMIT, PriorityLevel, RequestRejected
from transom.apiserver.flowcontrol.turns import HeavyReadTurns
from transom.kit.clock import VirtualClock


@asynccontextmanager
async def run() -> AsyncIterator[VirtualClock]:
    yield VirtualClock()


def made(
    clock: VirtualClock, limit: int = 2, queues: int = 8, hand: int = 2, length: int = 4
) -> PriorityLevel:
    level = PriorityLevel("x", clock)
    level.configure("uid", limit, queues, hand, length)
    return level


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_waiting_requests_get_the_seats_of_finished_ones() -> None:
    async with run() as clock:
        level = made(clock, limit=1)
        assert level.has_room(1)
        level.take(1)
        assert not level.has_room(1)
        waiting = asyncio.create_task(level.wait((0,), 1))
        await turn()
        assert level.waiting == 1 and not waiting.done()
        level.release(1)
        assert not level.has_room(1)  # it was given on
        await waiting
        assert (level.executing, level.waiting) == (1, 0)


async def test_a_request_that_weighs_more_than_the_level_has_runs_alone() -> None:
    async with run() as clock:
        level = made(clock, limit=2)
        assert level.has_room(10)
        level.take(10)
        assert not level.has_room(1)
        other = asyncio.create_task(level.wait((0,), 10))
        await turn()
        level.release(10)
        await other
        level.release(10)
        assert level.executing == 0


async def test_a_full_queue_and_a_level_without_queues_refuse() -> None:
    async with run() as clock:
        level = made(clock, limit=1, queues=1, hand=1, length=2)
        level.take(1)
        waiting = [asyncio.create_task(level.wait((0,), 1)) for _ in range(2)]
        await turn()
        with pytest.raises(RequestRejected, match="queue-full"):
            await level.wait((0,), 1)
        for task in waiting:
            task.cancel()
        level = made(clock, limit=1, queues=0)
        level.take(1)
        with pytest.raises(RequestRejected, match="concurrency-limit"):
            await level.wait((), 1)


async def test_no_request_waits_longer_than_the_limit() -> None:
    async with run() as clock:
        level = made(clock, limit=1)
        level.take(1)
        waiting = asyncio.create_task(level.wait((0,), 1))
        await clock.run_for(WAIT_LIMIT - 1)
        late = asyncio.create_task(level.wait((0,), 1))
        await clock.run_for(1)
        with pytest.raises(RequestRejected, match="time-out"):
            await waiting
        assert level.waiting == 1
        level.release(1)
        await late


async def test_a_quiet_flow_is_not_held_up_by_a_busy_one() -> None:
    async with run() as clock:
        level = made(clock, limit=1, queues=2, hand=1, length=100)
        order: list[str] = []

        async def request(name: str, hand: tuple[int, ...], seats: int = 1) -> None:
            await level.wait(hand, seats)
            order.append(name)
            level.release(seats)

        level.take(1)
        tasks = [asyncio.create_task(request("busy", (0,))) for _ in range(50)]
        await turn()
        tasks += [asyncio.create_task(request("quiet", (1,))) for _ in range(5)]
        await turn()
        level.release(1)
        await asyncio.gather(*tasks)
        assert order.index("quiet") <= 1
        # one of each in turn
        assert max(i for i, name in enumerate(order) if name == "quiet") <= 11


async def test_heavy_requests_pay_for_their_seats() -> None:
    async with run() as clock:
        level = made(clock, limit=10, queues=2, hand=1, length=100)
        order: list[str] = []

        async def request(name: str, hand: tuple[int, ...], seats: int) -> None:
            await level.wait(hand, seats)
            order.append(name)
            await asyncio.sleep(0)
            level.release(seats)

        level.take(10)
        tasks = [asyncio.create_task(request("heavy", (0,), 10)) for _ in range(10)]
        tasks += [asyncio.create_task(request("light", (1,), 1)) for _ in range(40)]
        await turn()
        level.release(10)
        await asyncio.gather(*tasks)
        early = Counter(order[:22])
        assert early["light"] >= 18, order  # ten light ones for each heavy one


async def test_seats_and_places_are_never_lost_whatever_happens() -> None:
    async def storm(clock: VirtualClock, rng: random.Random) -> None:
        level = made(clock, limit=5, queues=4, hand=2, length=3)
        most = 0

        async def request() -> None:
            nonlocal most
            seats = rng.choice((1, 1, 1, 3, 9))
            if level.has_room(seats):
                level.take(seats)
            else:
                try:
                    await level.wait(level.deal(str(rng.randrange(5))), seats)
                except RequestRejected:
                    return
            most = max(most, level.executing if seats < 9 else 0)
            try:
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                level.release(seats)

        tasks = []
        for _ in range(300):
            tasks.append(asyncio.create_task(request()))
            if rng.random() < 0.2:
                rng.choice(tasks).cancel()
            if rng.random() < 0.02:
                level.configure("uid", rng.choice((1, 5, 8)), rng.choice((1, 4)), 1, 3)
            if rng.random() < 0.05:
                await clock.run_for(rng.choice((0.0, WAIT_LIMIT)), turns=1)
            if rng.random() < 0.5:
                await asyncio.sleep(0)
        level.configure("uid", 5, 4, 2, 3)
        for _ in range(3):
            await clock.run_for(WAIT_LIMIT)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (level.executing, level.waiting) == (0, 0)
        assert level.has_room(5) and most <= 8

    for seed in range(30):
        await storm(VirtualClock(), random.Random(seed))


def test_a_hand_is_dealt_by_the_flow_alone_and_spreads() -> None:
    level = made(VirtualClock(), queues=128, hand=6)
    hands = [level.deal(f"flow-{n}") for n in range(200)]
    assert all(len(set(hand)) == 6 and max(hand) < 128 for hand in hands)
    assert level.deal("flow-7") == hands[7]
    used = Counter(card for hand in hands for card in hand)
    assert len(used) > 120 and max(used.values()) < 30


# ---- turns ----


async def test_turns_go_round_among_groups_one_at_a_time() -> None:
    async with run() as _clock:
        turns, order, running = HeavyReadTurns(), [], 0

        async def work(group: str) -> None:
            nonlocal running
            await turns.take(group)
            running += 1
            assert running == 1
            order.append(group)
            await asyncio.sleep(0)
            running -= 1
            turns.done()

        tasks = [asyncio.create_task(work("a")) for _ in range(10)]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(work("b")) for _ in range(3)]
        await asyncio.gather(*tasks)
        assert order[:7].count("b") == 3, order


async def test_between_two_turns_the_loop_goes_round() -> None:
    async with run() as _clock:
        turns, seen = HeavyReadTurns(), []

        async def work() -> None:
            await turns.take("a")
            seen.append("work")
            turns.done()

        tasks = [asyncio.create_task(work()) for _ in range(5)]
        for _ in range(20):
            await asyncio.sleep(0)
            seen.append("others")
        await asyncio.gather(*tasks)
        text = " ".join(seen)
        assert "work work" not in text, text


async def test_the_turn_of_a_cancelled_request_goes_to_the_next() -> None:
    async with run() as _clock:
        turns = HeavyReadTurns()
        await turns.take("a")
        gone = asyncio.create_task(turns.take("a"))
        next_one = asyncio.create_task(turns.take("a"))
        await asyncio.sleep(0)
        gone.cancel()
        turns.done()
        await next_one
        turns.done()
        await asyncio.wait_for(turns.take("b"), 1)
