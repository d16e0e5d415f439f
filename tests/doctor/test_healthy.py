"""A healthy cluster has no findings, with any network, release, size and nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.doctor.failures import NANO, WAIT, service, workload
from tests.doctor.virtual_cluster import VirtualCluster, virtual_cluster

from transom.cluster.config import RELEASES, ClusterConfig
from transom.node import spec as nodes
from transom.node.network_settings import NetworkSettings
from transom.node.spec import NodeSpec

SHAPES: dict[str, dict[str, Any]] = {
    "l2bridge": {},
    "overlay": {"network": NetworkSettings(mode="overlay")},
    "l2tunnel": {"network": NetworkSettings(mode="l2tunnel")},
    "transparent": {"network": NetworkSettings(mode="transparent")},
    "only Linux": {"windows": 0},
    "many nodes": {"linux": 8, "windows": 8},
    "tainted": {"taint": True},
    "builds": {"build": 19041},
    **{
        f"release {release}": {"release": release}
        for release in ("1.14", "1.17", "1.19", "1.24", "1.28", "1.32", "1.36")
        if release in RELEASES
    },
}


def specs(config: ClusterConfig, shape: dict[str, Any]) -> list[NodeSpec]:
    return nodes.demo_specs(
        config,
        shape.get("linux"),
        shape.get("windows"),
        shape.get("build"),
        taint=shape.get("taint", False),
    )


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_healthy_cluster_has_no_findings(shape: dict[str, Any], tmp_path: Path) -> None:
    options = {"release": shape["release"]} if "release" in shape else {}
    config = ClusterConfig(name="doctor", port=6443, **options)
    with virtual_cluster(tmp_path, specs(config, shape), shape.get("network"), **options) as (
        cluster,
        run,
    ):
        run(_examine(cluster, windows=shape.get("windows") != 0, build=shape.get("build", 17763)))


async def _examine(cluster: VirtualCluster, *, windows: bool, build: int) -> None:
    assert await cluster.doctor() == []
    await cluster.apply(workload(), service("s", {"app": "w"}))
    if windows:
        tolerations = {"tolerations": [{"key": "os", "value": "windows", "effect": "NoSchedule"}]}
        image = NANO if build == 17763 else "mcr.microsoft.com/windows/nanoserver:2004"
        second = workload(
            "StatefulSet",
            "x",
            os="windows",
            image=image,
            command=WAIT,
            pod_spec=tolerations,
            spec={"serviceName": "h"},
        )
        second["spec"]["selector"]["matchLabels"] = second["spec"]["template"]["metadata"][
            "labels"
        ] = {"app": "x"}
        await cluster.apply(service("h", {"app": "x"}, clusterIP="None"), second)
    await cluster.clock.sleep(30)
    assert await cluster.doctor() == [], await cluster.story(await cluster.doctor())
    await cluster.clock.sleep(600)
    assert await cluster.doctor() == [], await cluster.story(await cluster.doctor())


def test_nodes_of_several_builds_are_healthy_until_a_pod_selects_no_build(tmp_path: Path) -> None:
    config = ClusterConfig(name="doctor", port=6443)
    mixed = [
        NodeSpec("linux-1"),
        NodeSpec("w-2019", os="windows", build=17763),
        NodeSpec("w-2004", os="windows", build=19041),
    ]
    with virtual_cluster(tmp_path, nodes.complete_specs(config, mixed)) as (cluster, run):

        async def scenario() -> None:
            assert await cluster.doctor() == []
            found = workload(os="windows")
            await cluster.apply(found)
            await cluster.clock.sleep(5)
            [one] = [one for one in await cluster.doctor() if one.record == "WIN-OS-013"]
            assert "may also be placed on nodes of build 19041" in one.what
            assert one.remedy == "Add nodeSelector node.kubernetes.io/windows-build: 10.0.17763."
            found["spec"]["template"]["spec"]["nodeSelector"][
                "node.kubernetes.io/windows-build"
            ] = "10.0.17763"
            await cluster.apply(found)
            await cluster.silence()

        run(scenario())


def test_nodes_without_reservations_and_with_unsupported_parts_are_reported(tmp_path: Path) -> None:
    config = ClusterConfig(name="doctor", port=6443)
    odd = [
        NodeSpec("linux-1"),
        NodeSpec("greedy", os="windows", system_reserved={}),
        NodeSpec("new", os="windows", build=20348, runtime="containerd"),
        NodeSpec("old", os="windows", runtime="docker", runtime_version="18.9.9"),
    ]
    with virtual_cluster(tmp_path, nodes.complete_specs(config, odd)) as (cluster, run):
        found = {one.where[0]: one.what for one in run(cluster.doctor())}
    assert found["node/greedy"] == "reserves no memory for its system and its kubelet"
    assert found["node/new"].startswith("Kubernetes 1.20 does not support Windows build 20348")
    assert (
        found["node/old"]
        == "Kubernetes 1.20 needs docker 19.03 or later on Windows nodes, not 18.9.9-sim"
    )
