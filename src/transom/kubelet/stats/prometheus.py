"""Prometheus' text format, and the two sets of metrics that come straight from the summary: resources and volumes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple

from transom.kit.clock import parse_rfc3339
from transom.machinery.objects import Object

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    labels: Labels
    value: float
    time: float | None = None
    suffix: str = ""


class Family(NamedTuple):
    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample]


def number(value: float) -> str:
    """As Go prints a float with the fewest digits: `0.25`, `123456`, `1.234567e+06`."""
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
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


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def render(families: Iterable[Family]) -> str:
    """Families in the order of their names; one without samples is left out."""
    out: list[str] = []
    for family in sorted(families, key=lambda f: f.name):
        if not family.samples:
            continue
        out.append(f"# HELP {family.name} {family.help}")
        out.append(f"# TYPE {family.name} {family.kind}")
        for sample in family.samples:
            said = ",".join(f'{name}="{_escape(value)}"' for name, value in sample.labels)
            line = f"{family.name}{sample.suffix}{{{said}}}" if said else family.name + sample.suffix
            line += f" {number(sample.value)}"
            out.append(line if sample.time is None else f"{line} {int(sample.time * 1000)}")
    out.append("")
    return "\n".join(out)


def histogram(labels: Labels, bounds: Sequence[float], counts: Sequence[int], total: float) -> list[Sample]:
    """`counts` has one more than `bounds`: what is above them all."""
    out: list[Sample] = []
    running = 0
    for bound, count in zip((*bounds, None), counts, strict=True):
        running += count
        le = "+Inf" if bound is None else number(bound)
        out.append(Sample((*labels, ("le", le)), running, None, "_bucket"))
    return [*out, Sample(labels, total, None, "_sum"), Sample(labels, running, None, "_count")]


# ---- /metrics/resource

_SECOND: Final = 1e9
_NODE: Final = (
    ("node_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the node in core-seconds", "cpu"),
    ("node_memory_working_set_bytes", "gauge", "Current working set of the node in bytes", "memory"),
)  # fmt: skip
_CONTAINER: Final = (
    ("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the container in core-seconds", "cpu"),
    ("container_memory_working_set_bytes", "gauge", "Current working set of the container in bytes", "memory"),
)
_POD: Final = (
    ("pod_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the pod in core-seconds", "cpu"),
    ("pod_memory_working_set_bytes", "gauge", "Current working set of the pod in bytes", "memory"),
)


def _usage(stats: Mapping[str, Any], kind: str, labels: Labels) -> list[Sample]:
    found = stats.get(kind)
    if not found:
        return []
    value = found["usageCoreNanoSeconds"] / _SECOND if kind == "cpu" else found["workingSetBytes"]
    return [Sample(labels, value, parse_rfc3339(found["time"]))]


def resource_metrics(summary: Object) -> str:
    """From the short form of the summary."""
    families: list[Family] = []
    for name, kind, text, field in _NODE:
        families.append(_family(name, kind, text, _usage(summary["node"], field, ())))
    for name, kind, text, field in _CONTAINER:
        samples = [s for pod in summary["pods"] for c in pod["containers"] or ()
                   for s in _usage(c, field, (("container", c["name"]), *_whose(pod)))]  # fmt: skip
        families.append(_family(name, kind, text, samples))
    for name, kind, text, field in _POD:
        families.append(_family(name, kind, text, [s for p in summary["pods"] for s in _usage(p, field, _whose(p))]))
    error = "1 if there was an error while getting container metrics, 0 otherwise"
    families.append(_family("scrape_error", "gauge", error, [Sample((), 0)]))
    return render(families)


def _family(name: str, kind: str, text: str, samples: Sequence[Sample]) -> Family:
    return Family(name, "counter" if kind == "counter" else "gauge", f"[ALPHA] {text}", samples)


def _whose(pod: Object) -> Labels:
    return (("namespace", pod["podRef"]["namespace"]), ("pod", pod["podRef"]["name"]))


# ---- kubelet_volume_stats_*

_VOLUME: Final = (
    ("kubelet_volume_stats_available_bytes", "Number of available bytes in the volume", "availableBytes"),
    ("kubelet_volume_stats_capacity_bytes", "Capacity in bytes of the volume", "capacityBytes"),
    ("kubelet_volume_stats_inodes", "Maximum number of inodes in the volume", "inodes"),
    ("kubelet_volume_stats_inodes_free", "Number of free inodes in the volume", "inodesFree"),
    ("kubelet_volume_stats_inodes_used", "Number of used inodes in the volume", "inodesUsed"),
    ("kubelet_volume_stats_used_bytes", "Number of used bytes in the volume", "usedBytes"),
)


def volume_metrics(volumes: Iterable[Object]) -> list[Family]:
    """Of volumes that are somebody's claim, each claim once."""
    claims: dict[Labels, Object] = {}
    for volume in volumes:
        claim = volume.get("pvcRef")
        if claim:
            claims[("namespace", claim["namespace"]), ("persistentvolumeclaim", claim["name"])] = volume
    return [
        _family(name, "gauge", text, [Sample(labels, volume[field]) for labels, volume in claims.items()])
        for name, text, field in _VOLUME
    ]
