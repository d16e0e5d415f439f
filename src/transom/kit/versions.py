"""Versions of programs as numbers that can be compared."""

from __future__ import annotations

from typing import Final

from transom.kit.lazy import lazy_pattern

_NUMBERS: Final = lazy_pattern(r"v?(\d+(?:\.\d+)*)")


def version_numbers(version: str) -> tuple[int, ...]:
    """The numbers at the beginning: `v0.12.0-rc1` gives (0, 12, 0); empty if there are none."""
    found = _NUMBERS.match(version)
    return tuple(map(int, found[1].split("."))) if found else ()
