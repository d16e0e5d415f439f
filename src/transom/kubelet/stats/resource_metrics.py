"""The metrics of /metrics/resource and of volumes, derived from the summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from transom.kit.clock import parse_rfc3339
from transom.kit.prometheus import Family, Labels, Sample, render_metrics
from transom.machinery.objects import Object

# ---- /metrics/resource

_SECOND: Final = 1e9
_NODE: Final = (
    (
        "node_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the node in core-seconds",
        "cpu",
    ),
    (
        "node_memory_working_set_bytes",
        "gauge",
        "Current working set of the node in bytes",
        "memory",
    ),
)
_CONTAINER: Final = (
    (
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the container in core-seconds",
        "cpu",
    ),
    (
        "container_memory_working_set_bytes",
        "gauge",
        "Current working set of the container in bytes",
        "memory",
    ),
)
_POD: Final = (
    (
        "pod_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the pod in core-seconds",
        "cpu",
    ),
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
        samples = [
            s
            for pod in summary["pods"]
            for c in pod["containers"] or ()
            for s in _usage(c, field, (("container", c["name"]), *_owner_labels(pod)))
        ]
        families.append(_family(name, kind, text, samples))
    for name, kind, text, field in _POD:
        families.append(
            _family(
                name,
                kind,
                text,
                [s for p in summary["pods"] for s in _usage(p, field, _owner_labels(p))],
            )
        )
    error = "1 if there was an error while getting container metrics, 0 otherwise"
    families.append(_family("scrape_error", "gauge", error, [Sample((), 0)]))
    return render_metrics(families)


def _family(name: str, kind: str, text: str, samples: Sequence[Sample]) -> Family:
    return Family(name, "counter" if kind == "counter" else "gauge", f"[ALPHA] {text}", samples)


def _owner_labels(pod: Object) -> Labels:
    return (("namespace", pod["podRef"]["namespace"]), ("pod", pod["podRef"]["name"]))


# ---- kubelet_volume_stats_*

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
        _family(
            name,
            "gauge",
            text,
            [Sample(labels, volume[field]) for labels, volume in claims.items()],
        )
        for name, text, field in _VOLUME
    ]
