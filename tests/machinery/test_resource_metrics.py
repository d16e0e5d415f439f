"""From a kubelet's summary to metrics: what counts, what is left out, and how it is written."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.resource_metrics import (
    NodeSample,
    PodSample,
    ResourceUsage,
    node_metrics,
    pod_metrics,
    read_stats_summary,
)

T0, T1 = "2020-01-02T03:04:05Z", "2020-01-02T03:04:09Z"


def stats(
    name: str,
    cpu: int | None = 12345678,
    memory: int | None = 4096,
    times: tuple[str, str] = (T1, T0),
) -> Any:
    return {
        "name": name,
        "cpu": {"time": times[0], **({"usageNanoCores": cpu} if cpu is not None else {})},
        "memory": {"time": times[1], **({"workingSetBytes": memory} if memory is not None else {})},
    }


def pod(name: str, *containers: Any) -> Any:
    return {
        "podRef": {"namespace": "d", "name": name, "uid": "u"},
        "containers": list(containers) or None,
    }


def test_a_summary() -> None:
    found = read_stats_summary(
        {
            "node": stats("n", 5, 6),
            "pods": [
                pod("whole", stats("a", times=(T1, T1)), stats("b", 0, 0)),
                pod("half", stats("a"), stats("b", cpu=None)),
                pod("none"),
                pod("early", stats("a", memory=None)),
            ],
        }
    )
    assert found.node == NodeSample(1577934245.0, ResourceUsage(5, 6))
    assert found.pods == {
        ("d", "whole"): PodSample(
            1577934245.0, {"a": ResourceUsage(12345678, 4096), "b": ResourceUsage(0, 0)}
        )
    }


def test_a_summary_without_numbers() -> None:
    assert read_stats_summary({"node": {"nodeName": "n"}, "pods": None}) == (None, {})
    assert read_stats_summary({}) == (None, {})


@pytest.mark.parametrize(
    ("usage", "cpu", "memory"),
    [
        (ResourceUsage(12345678, 1263616), "12345678n", "1234Ki"),
        (ResourceUsage(250000000, 1 << 30), "250m", "1Gi"),
        (ResourceUsage(2000000000, 1500), "2", "1500"),
        (ResourceUsage(0, 0), "0", "0"),
    ],
)
def test_quantities(usage: ResourceUsage, cpu: str, memory: str) -> None:
    assert usage.quantities() == {"cpu": cpu, "memory": memory}


def test_objects() -> None:
    labels = {"a": "b"}
    node = node_metrics(
        {"metadata": {"name": "n", "uid": "u"}},
        NodeSample(1577934245.0, ResourceUsage(1, 1024)),
        1577934250.0,
    )
    assert node == {
        "metadata": {"name": "n", "creationTimestamp": "2020-01-02T03:04:10Z"},
        "timestamp": T0,
        "window": "30s",
        "usage": {"cpu": "1n", "memory": "1Ki"},
    }
    meta = {"name": "p", "namespace": "d", "labels": labels}
    made = pod_metrics(
        {"metadata": meta}, PodSample(1577934245.0, {"c": ResourceUsage(1, 1024)}), 1577934250.0
    )
    assert made == {
        "metadata": {**meta, "creationTimestamp": "2020-01-02T03:04:10Z"},
        "timestamp": T0,
        "window": "30s",
        "containers": [{"name": "c", "usage": {"cpu": "1n", "memory": "1Ki"}}],
    }
