import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.kit.clock import (
    RealClock,
    VirtualClock,
    parse_rfc3339,
    rfc3339,
    rfc3339_micro,
)


def test_timers_run_at_their_time_in_order_of_due_time_then_creation() -> None:
    clock = VirtualClock(start=1000.0)
    ran: list[tuple[str, float]] = []

    def note(name: str) -> None:
        ran.append((name, clock.time()))

    clock.call_later(2, note, "b")
    clock.call_later(1, note, "a")
    clock.call_later(2, note, "c")
    clock.call_later(1.5, note, "never").cancel()
    clock.call_later(1, lambda: clock.call_later(0.5, note, "nested"))
    clock.call_later(9, note, "later")
    clock.advance(2)
    assert ran == [("a", 1001.0), ("nested", 1001.5), ("b", 1002.0), ("c", 1002.0)]
    assert clock.monotonic() == 2.0
    clock.advance(7)
    assert ran[-1] == ("later", 1009.0)


async def test_coroutines_sleep_on_virtual_time() -> None:

    # At six, "three" went to sleep first.
    expected = [("two", 2.0), ("three", 3.0), ("two", 4.0), ("three", 6.0), ("two", 6.0)]
    clock = VirtualClock(start=0.0)
    woke: list[tuple[str, float]] = []

    async def tick(name: str, period: float) -> None:
        while True:
            await clock.sleep(period)
            woke.append((name, clock.time()))

    tasks = [asyncio.create_task(tick("three", 3)), asyncio.create_task(tick("two", 2))]
    await clock.run_for(6)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await clock.run_for(60)
    assert woke == expected


async def test_real_clock_calls_and_cancels() -> None:
    clock = RealClock()
    called: list[str] = []
    done = asyncio.Event()
    clock.call_later(0.0, called.append, "cancelled").cancel()
    clock.call_later(0.001, done.set)
    await done.wait()
    await clock.sleep(0)
    assert called == []


@pytest.mark.parametrize(
    ("t", "seconds", "micros"),
    [
        (1577934245.0, "2020-01-02T03:04:05Z", "2020-01-02T03:04:05.000000Z"),
        (1577934245.999999, "2020-01-02T03:04:05Z", "2020-01-02T03:04:05.999999Z"),
        (0.5, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.500000Z"),
        (-0.5, "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.500000Z"),
        (-62135596800.0, "0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_formats(t: float, seconds: str, micros: str) -> None:
    assert rfc3339(t) == seconds
    assert rfc3339_micro(t) == micros


@pytest.mark.parametrize(
    ("text", "t"),
    [
        ("2020-01-02T03:04:05Z", 1577934245.0),
        ("2020-01-02T05:04:05+02:00", 1577934245.0),
        ("2020-01-01T21:34:05-05:30", 1577934245.0),
        ("2020-01-02T03:04:05.25Z", 1577934245.25),
        ("2020-02-29T00:00:00Z", 1582934400.0),
        ("0001-01-01T00:00:00Z", -62135596800.0),
    ],
)
def test_parses(text: str, t: float) -> None:
    assert parse_rfc3339(text) == t


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2020-01-02",
        "2020-01-02T03:04:05",
        "2020-01-02 03:04:05Z",
        "2020-01-02t03:04:05z",
        "2020-13-02T03:04:05Z",
        "2021-02-29T03:04:05Z",
        "2020-01-02T24:04:05Z",
        "2020-01-02T03:04:05.Z",
        "2020-01-02T03:04:05+0200",
        "2020-01-02T03:04:05Z\n",
        "٢020-01-02T03:04:05Z",
    ],
)
def test_refuses(text: str) -> None:
    with pytest.raises(ValueError):
        parse_rfc3339(text)


@given(st.integers(min_value=0, max_value=4_102_444_800_000_000))
def test_micro_round_trip(micros: int) -> None:
    text = rfc3339_micro(micros / 1e6)
    assert len(text) == len("2020-01-02T03:04:05.000001Z")
    assert round(parse_rfc3339(text) * 1e6) == micros
