"""CPU and memory usage of nodes and pods: converts a kubelet's summary to objects of
metrics.k8s.io/v1beta1.

The rules are metrics-server's: nodes without values and pods with a container without
values are left out; the time of a sample is that of its oldest value. Pure functions, shared by
the code that collects samples and the code that serves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.kit.clock import parse_rfc3339, rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object
from transom.machinery.quantity import BINARY_SI, Quantity

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"
WINDOW = 30.0  # seconds over which a kubelet averages


class ResourceUsage(NamedTuple):
    cpu: int  # billionths of a core
    memory: int  # bytes

    def quantities(self) -> Object:
        return {
            "cpu": str(Quantity(self.cpu, -9)),
            "memory": str(Quantity(self.memory, 0, BINARY_SI)),
        }


class NodeSample(NamedTuple):
    time: float
    usage: ResourceUsage
    window: float = WINDOW


class PodSample(NamedTuple):
    time: float
    containers: Mapping[str, ResourceUsage]
    window: float = WINDOW


PodName = tuple[str, str]  # namespace and name


class MetricSamples(NamedTuple):
    """The samples of one node."""

    node: NodeSample | None
    pods: Mapping[PodName, PodSample]


def read_stats_summary(summary: Mapping[str, Any]) -> MetricSamples:
    """The samples in a kubelet's /stats/summary."""
    found = _measured(summary.get("node") or {})
    pods: dict[PodName, PodSample] = {}
    for pod in summary.get("pods") or ():
        sample = _pod(pod.get("containers") or ())
        if sample is not None:
            reference = pod["podRef"]
            pods[reference["namespace"], reference["name"]] = sample
    return MetricSamples(None if found is None else NodeSample(*found), pods)


def _pod(containers: Any) -> PodSample | None:
    used: dict[str, ResourceUsage] = {}
    oldest = 0.0
    for container in containers:
        found = _measured(container)
        if found is None:
            return None
        time, used[container["name"]] = found
        oldest = min(oldest, time) if oldest else time
    return PodSample(oldest, used) if used else None


def _measured(stats: Mapping[str, Any]) -> tuple[float, ResourceUsage] | None:
    cpu, memory = stats.get("cpu") or {}, stats.get("memory") or {}
    cores, used = cpu.get("usageNanoCores"), memory.get("workingSetBytes")
    if cores is None or used is None:
        return None
    first, second = cpu["time"], memory["time"]
    time = parse_rfc3339(first)
    return time if first == second else min(time, parse_rfc3339(second)), ResourceUsage(cores, used)


def node_metrics(node: Object, sample: NodeSample, now: float) -> Object:
    return {**_head(node, sample.time, sample.window, now), "usage": sample.usage.quantities()}


def pod_metrics(pod: Object, sample: PodSample, now: float) -> Object:
    containers = [
        {"name": name, "usage": usage.quantities()} for name, usage in sample.containers.items()
    ]
    return {**_head(pod, sample.time, sample.window, now), "containers": containers}


def _head(obj: Object, time: float, window: float, now: float) -> Object:
    meta = obj["metadata"]
    own: Object = {"name": meta["name"]}
    if "namespace" in meta:
        own["namespace"] = meta["namespace"]
    own["creationTimestamp"] = rfc3339(now)
    if meta.get("labels"):
        own["labels"] = meta["labels"]
    return {"metadata": own, "timestamp": rfc3339(time), "window": f"{window:g}s"}
