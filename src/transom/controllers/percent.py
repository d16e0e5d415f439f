"""A number of pods that is given as such or as a percentage."""

from __future__ import annotations


def scaled_value(value: int | str, total: int, *, up: bool) -> int:
    """The number itself, or so many percent of the total, rounded up or down."""
    if isinstance(value, str):
        exact = int(value.removesuffix("%")) * total
        return -(-exact // 100) if up else exact // 100
    return value
