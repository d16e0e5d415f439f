"""Finds repeated items of a list in linear time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson


def repetitions(values: Iterable[Any]) -> frozenset[int]:
    """The indexes of values that equal an earlier item."""
    seen: set[Any] = set()
    repeated: list[int] = []
    for i, value in enumerate(values):
        key = (
            orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
            if isinstance(value, dict | list)
            else (type(value), value)
        )
        if key in seen:
            repeated.append(i)
        seen.add(key)
    return frozenset(repeated)
