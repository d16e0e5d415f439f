"""Prometheus' text exposition format, as Kubernetes' components print their metrics.

Families are sorted by name, numbers are printed as Go prints them. Defines no metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple

if TYPE_CHECKING:
    import decimal
else:
    decimal = lazy_import("decimal")

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram", "summary"]
Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    labels: Labels
    value: float
    time: float | None = None


class Histogram(NamedTuple):
    """`counts` has one more element than `bounds`: the observations above all of them."""

    labels: Labels
    bounds: tuple[float, ...]
    counts: Sequence[int]
    total: float


class Summary(NamedTuple):
    """A summary without quantiles."""

    labels: Labels
    observations: int
    total: float


class Family(NamedTuple):
    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample | Histogram | Summary]


Collector = Callable[[], Iterable[Family]]
"""The current metrics of one part of a program."""


def render_metrics(families: Iterable[Family]) -> str:
    """Families without samples are left out."""
    out: list[str] = []
    for family in sorted(families, key=lambda f: f.name):
        if not family.samples:
            continue
        if family.help:
            out.append(f"# HELP {family.name} {family.help}")
        out.append(f"# TYPE {family.name} {family.kind}")
        for sample in family.samples:
            if isinstance(sample, Histogram):
                _render_histogram(out, family.name, sample)
            elif isinstance(sample, Summary):
                _render_total(out, family.name, sample.labels, sample.total, sample.observations)
            else:
                _render_sample(out, family.name, sample)
    out.append("")
    return "\n".join(out)


def _render_sample(out: list[str], name: str, sample: Sample) -> None:
    labels = _format_labels(sample.labels)
    line = f"{name}{{{labels}}}" if labels else name
    line += f" {format_number(sample.value)}"
    out.append(line if sample.time is None else f"{line} {int(sample.time * 1000)}")


def _render_histogram(out: list[str], name: str, sample: Histogram) -> None:
    labels = _format_labels(sample.labels)
    before = f"{labels}," if labels else ""
    running = 0
    for bound, count in zip(_format_bounds(sample.bounds), sample.counts, strict=True):
        running += count
        out.append(f'{name}_bucket{{{before}le="{bound}"}} {running}')
    _render_total(out, name, sample.labels, sample.total, running)


def _render_total(out: list[str], name: str, labels: Labels, total: float, count: int) -> None:
    text = f"{{{_format_labels(labels)}}}" if labels else ""
    out.append(f"{name}_sum{text} {format_number(total)}")
    out.append(f"{name}_count{text} {count}")


@lru_cache(maxsize=64)
def _format_bounds(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*map(format_number, bounds), "+Inf")


def _format_labels(labels: Labels) -> str:
    return ",".join([f'{name}="{_escape(value)}"' for name, value in labels])


def _escape(value: str) -> str:
    if value.isalnum():
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def format_number(value: float) -> str:
    """Formats a float like Go, with the fewest digits: `0.25`, `123456`, `1.234567e+06`."""
    if isinstance(value, int) and -1_000_000 < value < 1_000_000:
        return str(int(value))
    if value == 0:
        return "0"
    sign, digits, exponent = decimal.Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    power = len(text) + exponent - 1
    text = text.rstrip("0")
    minus = "-" if sign else ""
    if power < -4 or power >= 6:
        mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
        return f"{minus}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{minus}0.{'0' * (-power - 1)}{text}"
    whole, fraction = text[: power + 1].ljust(power + 1, "0"), text[power + 1 :]
    return f"{minus}{whole}.{fraction}" if fraction else minus + whole
