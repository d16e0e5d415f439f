"""Completion indexes of a Job as sorted intervals, the form of `completedIndexes`: `0,2-4,7`.

A status may name more indexes than fit in memory one by one, so they are never listed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

Interval = tuple[int, int]  # the first and the last index


class IndexIntervals:
    """Immutable. Intervals neither overlap nor touch."""

    __slots__ = ("intervals",)

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        merged: list[Interval] = []
        for interval in sorted(intervals):
            if merged and interval[0] <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], interval[1]))
            else:
                merged.append(interval)
        self.intervals = tuple(merged)

    @classmethod
    def of(cls, indexes: Iterable[int]) -> IndexIntervals:
        return cls((index, index) for index in indexes)

    @classmethod
    def parse(cls, text: str, completions: int) -> IndexIntervals:
        """The indexes below `completions`; parts that are not numbers are ignored."""
        found: list[Interval] = []
        for part in filter(None, text.split(",")):
            first, dash, last = part.partition("-")
            if not _is_number(first) or (dash and not _is_number(last)):
                continue
            if int(first) >= completions:
                break
            found.append((int(first), min(int(last), completions - 1) if dash else int(first)))
        return cls(found)

    def union(self, other: IndexIntervals) -> IndexIntervals:
        return IndexIntervals((*self.intervals, *other.intervals))

    def overlap(self, other: IndexIntervals) -> int:
        """How many indexes are in both."""
        return self.total + other.total - self.union(other).total

    @property
    def total(self) -> int:
        return sum(last - first + 1 for first, last in self.intervals)

    def __contains__(self, index: int) -> bool:
        at = bisect_left(self.intervals, index, key=lambda interval: interval[1])
        return at < len(self.intervals) and self.intervals[at][0] <= index

    def first_missing(self, count: int, completions: int) -> list[int]:
        """The lowest indexes below `completions` that are not in it, at most `count`."""
        out: list[int] = []
        candidate = 0
        for first, last in (*self.intervals, (completions, completions)):
            stop = min(first, completions, candidate + count - len(out))
            out += range(candidate, stop)
            candidate = max(candidate, last + 1)
            if len(out) >= count:
                break
        return out

    def __str__(self) -> str:
        return ",".join(
            str(a) if a == b else f"{a},{b}" if b == a + 1 else f"{a}-{b}"
            for a, b in self.intervals
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
