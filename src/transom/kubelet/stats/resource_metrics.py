"""The metrics of /metrics/resource and of volumes, derived from the summary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from transom.kit.clock import parse_rfc3339
from transom.kit.prometheus import Family, Labels, Sample, render_metrics
from transom.machinery.objects import Object
from transom.machinery.releases.metrics import MetricRules

# ---- /metrics/resource ----

_SECOND: Final = 1e9
_CPU: Final = "Cumulative cpu time consumed by the {owner} in core-seconds"
_MEMORY: Final = "Current working set of the {owner} in bytes"
_SWAP: Final = (
    "Current amount of the {owner} swap usage in bytes. Reported only on non-windows systems"
)
_SWAP_LIMIT: Final = (
    "Current amount of the container swap limit in bytes. Reported only on non-windows systems"
)
_NODE_SWAP: Final = "Current swap usage of the node in bytes. Reported only on non-windows systems"
_START: Final = "Start time of the container since unix epoch in seconds"
_ERROR: Final = "1 if there was an error while getting container metrics, 0 otherwise"
Rows = Sequence[tuple[Labels, Mapping[str, Any]]]  # the labels and statistics of each owner


def resource_metrics(summary: Object, rules: MetricRules) -> str:
    """From the short form of the summary."""
    pods = [(_owner_labels(pod), pod) for pod in summary["pods"]]
    containers = [
        ((("container", container["name"]), *labels), container)
        for labels, pod in pods
        for container in pod["containers"] or ()
    ]
    families = [
        family
        for owner, rows in (
            ("node", [((), summary["node"])]),
            ("container", containers),
            ("pod", pods),
        )
        for family in _usage_families(owner, rows, rules)
    ]
    if rules.container_starts:
        starts = [
            Sample(labels, parse_rfc3339(container["startTime"]))
            for labels, container in containers
        ]
        name = "container_start_time_seconds"
        families.append(Family(name, "gauge", f"[{rules.resource_stability}] {_START}", starts))
    families += [
        Family(name, "gauge", f"{stability} {_ERROR}", [Sample((), 0)])
        for name, stability in rules.scrape_errors.items()
    ]
    return render_metrics(families)


def _usage_families(owner: str, rows: Rows, rules: MetricRules) -> list[Family]:
    stability = f"[{rules.resource_stability}] "
    cpu = [
        Sample(labels, found["usageCoreNanoSeconds"] / _SECOND, parse_rfc3339(found["time"]))
        for labels, stats in rows
        if (found := stats.get("cpu"))
    ]
    out = [
        Family(
            f"{owner}_cpu_usage_seconds_total",
            "counter",
            stability + _CPU.format(owner=owner),
            cpu,
        ),
        Family(
            f"{owner}_memory_working_set_bytes",
            "gauge",
            stability + _MEMORY.format(owner=owner),
            _samples(rows, "memory", lambda found: found["workingSetBytes"]),
        ),
    ]
    if rules.swap_usage:
        text = _NODE_SWAP if owner == "node" else _SWAP.format(owner=owner)
        usage = _samples(rows, "swap", lambda found: found["swapUsageBytes"])
        out.append(Family(f"{owner}_swap_usage_bytes", "gauge", f"[ALPHA] {text}", usage))
    if rules.swap_limit and owner == "container":
        limited = [row for row in rows if "swapAvailableBytes" in (row[1].get("swap") or {})]
        limits = _samples(
            limited, "swap", lambda found: found["swapAvailableBytes"] + found["swapUsageBytes"]
        )
        out.append(Family("container_swap_limit_bytes", "gauge", f"[ALPHA] {_SWAP_LIMIT}", limits))
    return out


def _samples(rows: Rows, field: str, read: Callable[[Mapping[str, Any]], float]) -> list[Sample]:
    return [
        Sample(labels, read(found), parse_rfc3339(found["time"]))
        for labels, stats in rows
        if (found := stats.get(field))
    ]


def _owner_labels(pod: Object) -> Labels:
    return (("namespace", pod["podRef"]["namespace"]), ("pod", pod["podRef"]["name"]))


# ---- kubelet_volume_stats_* ----

_VOLUME: Final = (
    (
        "kubelet_volume_stats_available_bytes",
        "Number of available bytes in the volume",
        "availableBytes",
    ),
    ("kubelet_volume_stats_capacity_bytes", "Capacity in bytes of the volume", "capacityBytes"),
    ("kubelet_volume_stats_inodes", "Maximum number of inodes in the volume", "inodes"),
    ("kubelet_volume_stats_inodes_free", "Number of free inodes in the volume", "inodesFree"),
    ("kubelet_volume_stats_inodes_used", "Number of used inodes in the volume", "inodesUsed"),
    ("kubelet_volume_stats_used_bytes", "Number of used bytes in the volume", "usedBytes"),
)


def volume_metrics(volumes: Iterable[Object]) -> list[Family]:
    """Volumes that belong to a claim, each claim once."""
    claims: dict[Labels, Object] = {}
    for volume in volumes:
        claim = volume.get("pvcRef")
        if claim:
            claims[("namespace", claim["namespace"]), ("persistentvolumeclaim", claim["name"])] = (
                volume
            )
    return [
        Family(
            name,
            "gauge",
            f"[ALPHA] {text}",
            [Sample(labels, volume[field]) for labels, volume in claims.items()],
        )
        for name, text, field in _VOLUME
    ]
