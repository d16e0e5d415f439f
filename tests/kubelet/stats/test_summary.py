from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kubelet.server_harness import ServerHarness

from transom.kit.prometheus import format_number
from transom.machinery.resource_metrics import read_stats_summary

INODES = {"inodesFree", "inodes", "inodesUsed"}
DISK = {"time", "availableBytes", "capacityBytes", "usedBytes"}
CPU = {"time", "usageNanoCores", "usageCoreNanoSeconds"}
MEMORY = {
    "time",
    "availableBytes",
    "usageBytes",
    "workingSetBytes",
    "rssBytes",
    "pageFaults",
    "majorPageFaults",
}


def summary(harness: ServerHarness, query: str = "") -> Any:
    return json.loads(harness.text(f"/stats/summary{query}")[1])


def fill(harness: ServerHarness) -> None:
    join = harness.env.os.join
    volumes = join(harness.env.config.root_dir, "pods", "u1", "volumes")
    for plugin, name, size in (
        ("kubernetes.io~empty-dir", "cache", 1000),
        ("kubernetes.io~secret", "keys", 10),
    ):
        folder = join(volumes, plugin, name)
        harness.files.mkdir(folder)
        harness.files.write(join(folder, "file"), b"x" * size)
    harness.write_log("2020-01-02T03:04:05Z stdout F hello")


@pytest.mark.parametrize("runtime", ["docker", "containerd"])
def test_linux(runtime: str) -> None:
    harness = ServerHarness(runtime=runtime)
    fill(harness)
    shown = summary(harness)
    node = shown["node"]
    assert list(node) == [
        "nodeName",
        "systemContainers",
        "startTime",
        "cpu",
        "memory",
        "network",
        "fs",
        "runtime",
        "rlimit",
    ]
    assert set(node["cpu"]) == CPU and set(node["memory"]) == MEMORY
    assert node["network"]["name"] == "eth0" and node["network"]["rxBytes"] == 100
    assert set(node["fs"]) == DISK | INODES and set(node["runtime"]["imageFs"]) == DISK | INODES
    assert [c["name"] for c in node["systemContainers"]] == ["kubelet", "runtime", "pods"]
    assert node["rlimit"]["maxpid"] == 32768
    [pod] = shown["pods"]
    assert pod["podRef"] == {"name": "p", "namespace": "ns", "uid": "u1"}
    assert pod["startTime"] == "2020-01-02T03:04:05Z"
    [container] = pod["containers"]
    assert list(container) == ["name", "startTime", "cpu", "memory", "rootfs", "logs"]
    assert container["cpu"]["usageCoreNanoSeconds"] == 5_000_000_000
    assert (
        container["memory"]["availableBytes"] == 56 << 20
        and container["memory"]["workingSetBytes"] == 8 << 20
    )
    assert container["rootfs"]["usedBytes"] == 4096 and container["rootfs"]["inodesUsed"] == 2
    logs = container["logs"]
    assert logs["usedBytes"] == harness.files.usage("/var/log/pods/ns_p_u1/c")[0] > 0
    assert pod["memory"]["availableBytes"] == 56 << 20 and pod["process_stats"] == {
        "process_count": 3
    }
    assert set(pod["network"]) == {
        "time",
        "name",
        "rxBytes",
        "rxErrors",
        "txBytes",
        "txErrors",
        "interfaces",
    }
    cache, keys = pod["volume"]
    assert (cache["name"], keys["name"]) == ("cache", "keys") and cache["usedBytes"] >= 1000
    assert keys["capacityBytes"] == harness.env.host.hardware.memory // 2
    storage = pod["ephemeral-storage"]
    assert storage["usedBytes"] == 4096 + logs["usedBytes"] + cache["usedBytes"]
    counted = 2 + cache["inodesUsed"] + (0 if runtime == "docker" else logs["inodesUsed"])
    assert storage["inodesUsed"] == counted


def test_windows_and_its_gaps() -> None:
    harness = ServerHarness("windows")
    harness.runtime.layer = None
    harness.runtime.nano_cores = None
    fill(harness)
    node = summary(harness)["node"]
    assert (
        "rlimit" not in node and set(node["fs"]) == DISK and set(node["runtime"]["imageFs"]) == DISK
    )
    assert (
        node["network"]["name"] == ""
        and "rxBytes" not in node["network"]
        and node["network"]["interfaces"]
    )
    assert (node["memory"]["rssBytes"], node["memory"]["pageFaults"]) == (0, 0)
    [pods] = node["systemContainers"]
    assert (
        pods["name"] == "pods"
        and "usageNanoCores" not in pods["cpu"]
        and "availableBytes" not in pods["memory"]
    )
    [pod] = summary(harness)["pods"]
    [container] = pod["containers"]
    assert set(container["memory"]) == {"time", "workingSetBytes"}
    assert "usageNanoCores" not in container["cpu"]
    assert set(container["rootfs"]) == DISK and container["rootfs"]["usedBytes"] == 0
    assert {**pod["memory"], "time": ""} == {
        **dict.fromkeys(MEMORY, 0),
        "workingSetBytes": 8 << 20,
        "time": "",
    }
    assert set(pod["network"]) == {"time", "name", "rxBytes", "txBytes", "interfaces"}
    assert "process_stats" not in pod
    assert all((v["inodes"], v["inodesFree"], v["inodesUsed"]) == (0, 0, 0) for v in pod["volume"])
    assert {v["capacityBytes"] for v in pod["volume"]} == {harness.env.host.hardware.disk}


def test_rates_are_measured_where_the_runtime_gives_none() -> None:
    harness = ServerHarness("windows", "containerd")
    harness.runtime.nano_cores = None
    stats = harness.runtime.container_stats

    def cores() -> int | None:
        return summary(harness)["pods"][0]["containers"][0]["cpu"].get("usageNanoCores")

    assert cores() is None
    harness.clock.advance(10)
    harness.runtime.container_stats = lambda uid="": [  # type: ignore[method-assign]
        s._replace(cpu=s.cpu._replace(core_nanoseconds=10_000_000_000)) for s in stats() if s.cpu
    ]
    assert cores() == 500_000_000
    harness.clock.advance(3)
    assert cores() == 500_000_000  # until the next period


def test_the_short_form_and_what_has_ended() -> None:
    harness = ServerHarness()
    short = summary(harness, "?only_cpu_and_memory=true")
    assert set(short["node"]) == {"nodeName", "systemContainers", "startTime", "cpu", "memory"}
    assert set(short["pods"][0]) == {"podRef", "startTime", "containers", "cpu", "memory"}
    harness.runtime.exit()
    assert summary(harness)["pods"][0]["containers"] is None
    harness = ServerHarness(runtime="containerd")
    harness.runtime.exit()
    assert summary(harness)["pods"] == []


def test_claims_are_measured_by_their_file_system() -> None:
    harness = ServerHarness()
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}
    harness.pod["spec"]["volumes"] = [
        claim,
        {"name": "host", "persistentVolumeClaim": {"claimName": "other"}},
    ]
    places = {
        "data": "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~local-volume/pv",
        "host": "/srv",
    }
    harness.server.stats.mounted = lambda uid: {
        name: SimpleNamespace(path=path, driver="") for name, path in places.items()
    }
    harness.env.host.files.mkdir(places["data"])
    [row] = summary(harness)["pods"][0]["volume"]
    disk = harness.env.host.disk()
    assert row["pvcRef"] == {"name": "claim", "namespace": "ns"} and row["usedBytes"] == disk.used
    line = (
        f'kubelet_volume_stats_capacity_bytes{{namespace="ns",persistentvolumeclaim="claim"}} '
        f"{format_number(disk.capacity)}\n"
    )
    assert line in harness.text("/metrics")[1]


@pytest.mark.parametrize("runtime", ["docker", "containerd"])
def test_collectors_get_what_they_read_of_the_short_form(
    runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = ServerHarness(runtime=runtime)
    stats = harness.server.stats
    whole = stats.cpu_and_memory()
    monkeypatch.setattr(type(harness.env.os), "system_containers", None)  # is not called
    found = stats.usage()
    assert found["pods"] == whole["pods"]
    assert found["node"] == {**whole["node"], "systemContainers": []}
    samples = read_stats_summary(found)
    assert samples == read_stats_summary(whole) and samples.node and samples.pods
