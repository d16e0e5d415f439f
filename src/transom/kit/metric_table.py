"""Counters and histograms that one table describes, as a component exports them to Prometheus.

Nothing is stored for metrics without observations. Knows no metric.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.kit.prometheus import Family, Histogram, Kind, Labels, Sample

DEFAULT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


def exponential_buckets(start: float, factor: float, count: int) -> tuple[float, ...]:
    """The upper bounds of `count` buckets; each is `factor` times the one before."""
    return tuple(float(f"{start * factor**number:.12g}") for number in range(count))


class MetricRow(NamedTuple):
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = DEFAULT_BUCKETS
    stability: str = "ALPHA"


class BucketCounts:
    """The observations of one histogram, by bucket."""

    __slots__ = ("counts", "total")

    def __init__(self, bounds: int) -> None:
        self.counts = [0] * (bounds + 1)
        self.total = 0.0

    def observe(self, bounds: tuple[float, ...], value: float) -> None:
        self.counts[bisect_left(bounds, value)] += 1
        self.total += value


class MetricTable:
    """Label values are in the order of the table."""

    __slots__ = ("_counters", "_histograms", "_rows")

    def __init__(self, rows: Mapping[str, MetricRow]) -> None:
        self._rows = rows
        self._counters: dict[tuple[str, tuple[str, ...]], float] = {}
        self._histograms: dict[tuple[str, tuple[str, ...]], BucketCounts] = {}

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        key = (name, labels)
        self._counters[key] = self._counters.get(key, 0) + by

    def observe(self, name: str, value: float, *labels: str) -> None:
        key = (name, labels)
        bounds = self._rows[name].bounds
        found = self._histograms.get(key)
        if found is None:
            found = self._histograms[key] = BucketCounts(len(bounds))
        found.observe(bounds, value)

    def collect(self) -> list[Family]:
        samples: dict[str, list[Sample | Histogram]] = {}
        for (name, values), count in self._counters.items():
            samples.setdefault(name, []).append(Sample(self._named(name, values), count))
        for (name, values), found in self._histograms.items():
            row = Histogram(
                self._named(name, values), self._rows[name].bounds, found.counts, found.total
            )
            samples.setdefault(name, []).append(row)
        return [self.family(name, rows) for name, rows in samples.items()]

    def family(self, name: str, samples: list[Sample | Histogram]) -> Family:
        """The family of a row with these samples, such as a gauge that is read when it is asked."""
        row = self._rows[name]
        return Family(name, row.kind, f"[{row.stability}] {row.help}", samples)

    def _named(self, name: str, values: tuple[str, ...]) -> Labels:
        return tuple(zip(self._rows[name].labels, values, strict=True))
