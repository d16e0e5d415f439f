"""Amounts of CPU in the units of cgroups."""

from __future__ import annotations

from typing import Final

CPU_PERIOD: Final = 100_000  # microseconds
MIN_SHARES: Final = 2
_MAX_SHARES: Final = 262_144
_SHARES_A_CPU: Final = 1024
_MIN_QUOTA: Final = 1_000


def cpu_shares(milli: int) -> int:
    return min(max(milli * _SHARES_A_CPU // 1000, MIN_SHARES), _MAX_SHARES)


def cpu_quota(milli: int, period: int = CPU_PERIOD) -> int:
    """0: no limit."""
    return max(milli * period // 1000, _MIN_QUOTA) if milli else 0
