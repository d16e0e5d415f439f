"""Exponential back-off: the wait after a number of consecutive failures."""

from __future__ import annotations

_MOST_DOUBLINGS = 64  # a larger exponent would overflow, and every limit is reached earlier


def exponential_backoff(first: float, longest: float, failures: int) -> float:
    """Returns `first` seconds without earlier failures, doubled for each one, at most `longest`."""
    return min(first * 2.0 ** min(failures, _MOST_DOUBLINGS), longest)
