"""Integers in decimal notation, as clients write them in parameters and fields."""

from __future__ import annotations

_DIGITS = 40  # more than any type of Kubernetes holds
_HUGE = 10**_DIGITS


def parse_int(text: str) -> int:
    """`int(text)`. For a text with very many digits, which Python rejects with ValueError, returns
    a number with the same sign that is out of range of every type.
    """
    if len(text) <= _DIGITS:
        return int(text)
    digits = text.lstrip("+-").lstrip("0")
    number = int(digits or "0") if len(digits) <= _DIGITS else _HUGE
    return -number if text.startswith("-") else number
