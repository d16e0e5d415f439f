"""A number of pods as an integer or a percentage."""

from __future__ import annotations


def scaled_value(value: int | str, total: int, *, up: bool) -> int:
    """The number itself, or the percentage of the total, rounded up or down."""
    if isinstance(value, str):
        exact = int(value.removesuffix("%")) * total
        return -(-exact // 100) if up else exact // 100
    return value
