"""Rate limiters for retries: per item, overall, or the longer of both.

The default is that of Kubernetes' controllers: each failure of an item doubles its delay, from 5 ms
to 1000 s, and all retries together are limited to 10 per second after a burst of 100.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from transom.kit.backoff import exponential_backoff
from transom.kit.clock import Clock


class RateLimiter(Protocol):
    def when(self, item: Hashable) -> float:
        """Seconds until the item may be retried; counts as one failure."""

    def forget(self, item: Hashable) -> None:
        """The item succeeded, or is no longer retried."""

    def failures(self, item: Hashable) -> int: ...


_ROUNDING = 1e-9


class TokenBucket:
    """`qps` tokens a second, at most `burst` of them saved."""

    __slots__ = ("_burst", "_clock", "_last", "_qps", "_tokens")

    def __init__(self, clock: Clock, qps: float, burst: int) -> None:
        self._clock = clock
        self._qps = qps
        self._burst = float(burst)
        self._tokens = float(burst)
        self._last = clock.monotonic()

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._last) * self._qps)
        self._last = now

    def reserve(self) -> float:
        """Takes a token, possibly a future one; returns the seconds to wait for it."""
        self._fill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._qps)

    def allow(self) -> bool:
        """Takes a token if there is one."""
        self._fill()
        if self._tokens < 1 - _ROUNDING:
            return False
        self._tokens = max(0.0, self._tokens - 1)
        return True

    def wait(self) -> float:
        """Seconds until there is a token; does not take it."""
        self._fill()
        return max(0.0, (1 - self._tokens) / self._qps)


class ItemBackoff:
    """Doubles with each failure of the item."""

    __slots__ = ("_base", "_failures", "_longest")

    def __init__(self, base: float = 0.005, longest: float = 1000.0) -> None:
        self._base = base
        self._longest = longest
        self._failures: dict[Hashable, int] = {}

    def when(self, item: Hashable) -> float:
        count = self._failures.get(item, 0)
        self._failures[item] = count + 1
        return exponential_backoff(self._base, self._longest, count)

    def forget(self, item: Hashable) -> None:
        self._failures.pop(item, None)

    def failures(self, item: Hashable) -> int:
        return self._failures.get(item, 0)


class ControllerLimiter:
    """Back-off per item, under one bucket for all."""

    __slots__ = ("_bucket", "_items")

    def __init__(self, clock: Clock, base: float = 0.005, longest: float = 1000.0) -> None:
        self._items = ItemBackoff(base, longest)
        self._bucket = TokenBucket(clock, 10.0, 100)

    def when(self, item: Hashable) -> float:
        return max(self._items.when(item), self._bucket.reserve())

    def forget(self, item: Hashable) -> None:
        self._items.forget(item)

    def failures(self, item: Hashable) -> int:
        return self._items.failures(item)
