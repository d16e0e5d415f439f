"""Injectable time, so that tests of a five-minute wait take a millisecond.

Code that needs the time or a timer receives a `Clock`: `RealClock` in the server, `VirtualClock` in
tests. RFC 3339 formatting (whole seconds or microseconds) lives here too.
"""

from __future__ import annotations

import asyncio
import heapq
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import count
from typing import Any, Protocol

from transom.kit.lazy import lazy_pattern


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def time(self) -> float:
        """Seconds since 1970 by the wall clock."""

    def monotonic(self) -> float:
        """Seconds that never decrease; only differences are meaningful."""

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, function: Callable[..., object], *args: Any) -> Timer: ...


class RealClock:
    __slots__ = ()

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, function: Callable[..., object], *args: Any) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, function, *args)


class _VirtualTimer:
    __slots__ = ("args", "cancelled", "function")

    def __init__(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """Time stands still until a test advances it. Timers run in order of due time, then of
    creation.
    """

    __slots__ = ("_now", "_order", "_start", "_timers")

    # 2020-01-02T03:04:05Z
    def __init__(self, start: float = 1577934245.0) -> None:
        self._start = start
        self._now = 0.0
        self._order = count()
        self._timers: list[tuple[float, int, _VirtualTimer]] = []

    def time(self) -> float:
        return self._start + self._now

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()

    def call_later(self, seconds: float, function: Callable[..., object], *args: Any) -> Timer:
        timer = _VirtualTimer(function, args)
        heapq.heappush(self._timers, (self._now + max(seconds, 0.0), next(self._order), timer))
        return timer

    @property
    def pending(self) -> int:
        """The number of pending timers, including sleeping coroutines."""
        return sum(not timer.cancelled for _, _, timer in self._timers)

    def advance(self, seconds: float) -> None:
        """Advances the time, running each timer at its due time. A coroutine that wakes runs in the
        next loop iteration; use `run_for` if it sleeps again and that sleep must end within the
        same interval.
        """
        end = self._now + seconds
        while self._run_next(end):
            pass
        self._now = end

    async def run_for(self, seconds: float, turns: int = 16) -> None:
        """Advances like `advance`, and runs `turns` loop iterations before and after each timer, so
        that coroutines that wake can sleep again in the same order as on a real clock.
        """
        end = self._now + seconds
        await _turn(turns)
        while self._run_next(end):
            await _turn(turns)
        self._now = end

    def _run_next(self, end: float) -> bool:
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            if timer.cancelled:
                continue
            self._now = max(self._now, due)
            timer.function(*timer.args)
            return True
        return False


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


async def _turn(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


@lru_cache(maxsize=64)
def _seconds_text(seconds: int) -> str:
    t = time.gmtime(seconds)
    return f"{t.tm_year:04d}-{t.tm_mon:02d}-{t.tm_mday:02d}T{t.tm_hour:02d}:{t.tm_min:02d}:{t.tm_sec:02d}"


@lru_cache(maxsize=64)
def _seconds_zulu(seconds: int) -> str:
    return _seconds_text(seconds) + "Z"


def rfc3339(t: float) -> str:
    """`2020-01-02T03:04:05Z`; the fraction is truncated. Returns the same string for all times of a
    second: objects are full of them.
    """
    return _seconds_zulu(int(t // 1))


def rfc3339_micro(t: float) -> str:
    """`2020-01-02T03:04:05.000000Z`."""
    seconds, micros = divmod(round(t * 1_000_000), 1_000_000)
    return f"{_seconds_text(seconds)}.{micros:06d}Z"


_RFC3339 = lazy_pattern(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_rfc3339(text: str) -> float:
    """Any RFC 3339 time as unix seconds; raises ValueError if the text is not one."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"not an RFC 3339 time: {text!r}")
    offset = timedelta()
    if match[8]:
        hours, minutes = int(match[9]), int(match[10])
        if hours > 24 or minutes > 60:
            raise ValueError(f"not an RFC 3339 time: {text!r}")
        offset = timedelta(hours=hours, minutes=minutes) * (-1 if match[8] == "-" else 1)
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    whole = (moment - _EPOCH - offset).total_seconds()
    return whole + float("0." + match[7]) if match[7] else whole
