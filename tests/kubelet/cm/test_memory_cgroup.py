"""Swap and memory QoS: what kubelets of each release write to the cgroups of containers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kubelet.test_kubelet import log, phase, shell

from transom.client.resources import NODES
from transom.kubelet.cm.memory_cgroup import memory_cgroup_files
from transom.kubelet.config import KubeletConfig
from transom.kubelet.kubelet import BadConfiguration
from transom.machinery.releases import Release
from transom.machines.api import Hardware

GI, MI = 1 << 30, 1 << 20
MACHINE = Hardware(memory=8 * GI, swap=4 * GI)
ALLOCATABLE = 7 * GI


def files(release: str, request: str, limit: str, priority: int = 0, **settings: Any) -> Any:
    config = KubeletConfig("node1", "10.0.0.1", version=f"v{release}.0", **settings)
    amounts = {"requests": {"memory": request}, "limits": {"memory": limit}}
    resources = {kind: found for kind, found in amounts.items() if found["memory"]}
    container = {"name": "c", "resources": resources}
    same = request and request == limit
    qos = "Guaranteed" if same else "Burstable" if request or limit else "BestEffort"
    pod = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [container], "priority": priority},
        "status": {"qosClass": qos},
    }
    return memory_cgroup_files(pod, container, config, MACHINE, ALLOCATABLE)


SWAP, QOS = {"NodeSwap": True}, {"MemoryQoS": True}
LIMITED = {"swap_behavior": "LimitedSwap"}


@pytest.mark.parametrize(
    ("release", "request_and_limit", "settings", "swap"),
    [
        ("1.20", ("1Gi", "2Gi"), {}, None),
        ("1.24", ("1Gi", "2Gi"), {}, None),
        ("1.24", ("1Gi", "2Gi"), {"feature_gates": SWAP}, "0"),
        ("1.24", ("1Gi", ""), {"feature_gates": SWAP}, None),
        ("1.24", ("1Gi", ""), {"feature_gates": SWAP, "swap_behavior": "UnlimitedSwap"}, "max"),
        ("1.28", ("1Gi", "2Gi"), {}, "0"),
        ("1.28", ("1Gi", "2Gi"), {"feature_gates": SWAP}, "max"),
        ("1.28", ("1Gi", "2Gi"), {"feature_gates": SWAP, **LIMITED}, str(GI // 2)),
        ("1.30", ("1Gi", "2Gi"), {}, "0"),
        ("1.36", ("1Gi", "2Gi"), {}, "0"),
        ("1.36", ("1Gi", "2Gi"), {"swap_behavior": "NoSwap"}, "0"),
        ("1.36", ("1Gi", "2Gi"), LIMITED, str(GI // 2)),
        ("1.36", ("1Gi", ""), LIMITED, str(GI // 2)),
        ("1.36", ("100Mi", "2Gi"), LIMITED, str(50 * MI)),
        ("1.36", ("1Gi", "1Gi"), LIMITED, "0"),
        ("1.36", ("", ""), LIMITED, "0"),
        ("1.36", ("9Gi", ""), LIMITED, "0"),
    ],
)
def test_the_swap_of_a_container(
    release: str, request_and_limit: tuple[str, str], settings: Any, swap: str | None
) -> None:
    assert files(release, *request_and_limit, **settings).get("memory.swap.max") == swap


@pytest.mark.parametrize(("release", "swap"), [("1.30", str(GI // 2)), ("1.31", "0")])
def test_critical_pods_have_no_swap(release: str, swap: str) -> None:
    found = files(release, "1Gi", "2Gi", 2_000_000_000, **LIMITED)
    assert found["memory.swap.max"] == swap


def high(request: int, most: int, factor: float) -> str:
    return str(int((request + (most - request) * factor) // 4096) * 4096)


TIERED = {"memory_reservation_policy": "TieredReservation"}


@pytest.mark.parametrize(
    ("release", "request_and_limit", "settings", "expected"),
    [
        ("1.24", ("1Gi", "2Gi"), {}, {"min": str(GI), "high": str(int(2 * GI * 0.8))}),
        ("1.24", ("1Gi", "1Gi"), {}, {"min": str(GI)}),
        ("1.24", ("", ""), {}, {"high": str(int(ALLOCATABLE * 0.8))}),
        ("1.27", ("1Gi", "2Gi"), {}, {"min": str(GI), "high": high(GI, 2 * GI, 0.9)}),
        ("1.27", ("1Gi", ""), {}, {"min": str(GI), "high": high(GI, ALLOCATABLE, 0.9)}),
        ("1.27", ("1Gi", "1Gi"), {}, {"min": str(GI)}),
        ("1.27", ("", ""), {}, {}),
        (
            "1.35",
            ("1Gi", "2Gi"),
            {"memory_throttling_factor": 0.5},
            {"min": str(GI), "high": str(3 * GI // 2)},
        ),
        ("1.36", ("1Gi", "2Gi"), {}, {"min": "0", "low": "0", "high": high(GI, 2 * GI, 0.9)}),
        ("1.36", ("1Gi", "2Gi"), TIERED, {"low": str(GI), "high": high(GI, 2 * GI, 0.9)}),
        ("1.36", ("1Gi", "1Gi"), TIERED, {"min": str(GI)}),
        ("1.37", ("1Gi", "2Gi"), {}, {"min": "0", "low": "0"}),
        (
            "1.37",
            ("", ""),
            {"memory_throttling_factor": 0.5},
            {"min": "0", "low": "0", "high": str(7 * GI // 2)},
        ),
    ],
)
def test_the_protected_and_throttled_memory_of_a_container(
    release: str, request_and_limit: tuple[str, str], settings: Any, expected: dict[str, str]
) -> None:
    found = files(release, *request_and_limit, feature_gates=QOS, **settings)
    found.pop("memory.swap.max", None)
    assert found == {f"memory.{name}": text for name, text in expected.items()}


def test_memory_qos_needs_its_gate() -> None:
    assert files("1.36", "1Gi", "2Gi") == {"memory.swap.max": "0"}
    assert "memory.min" in files("1.37", "1Gi", "2Gi")


async def test_a_container_and_the_node_show_the_swap(node: Any) -> None:
    script = (
        "cat /sys/fs/cgroup/memory.swap.max /sys/fs/cgroup/memory.high; "
        "grep SwapTotal /proc/meminfo; wc -l < /proc/swaps; sleep 1000"
    )
    settings = {"fail_swap_on": False, "feature_gates": QOS, **LIMITED}
    machine = {"hardware": MACHINE}
    async with node(
        "linux", release=Release(1, 36), flavour="containerd", machine=machine, **settings
    ) as node:
        resources = {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}
        await node.create("p", containers=[shell(script, resources=resources)])
        shown = log(node, await phase(node, "p", "Running")).split("\n")
        assert shown[:2] == [str(GI // 2), high(GI, 2 * GI, 0.9)]
        assert shown[2].split() == ["SwapTotal:", str(4 << 20), "kB"] and shown[3] == "2"
        info = (await node.client.get(NODES, "", "node1"))["status"]["nodeInfo"]
        assert info["swap"] == {"capacity": 4 * GI}


@pytest.mark.parametrize(("limit", "shown"), [("250m", "25000 100000"), ("", "max 100000")])
async def test_a_container_shows_its_cpu_limit(node: Any, limit: str, shown: str) -> None:
    async with node("linux", release=Release(1, 36), flavour="containerd") as node:
        resources = {"limits": {"cpu": limit}} if limit else {}
        script = "cat /sys/fs/cgroup/cpu.max; sleep 1000"
        await node.create("p", containers=[shell(script, resources=resources)])
        assert log(node, await phase(node, "p", "Running")).split("\n")[0] == shown


@pytest.mark.parametrize(
    ("release", "settings", "problem"),
    [
        (
            (1, 36),
            {},
            "running with swap on is not supported, please disable swap or set --fail-swap-on "
            "flag to false",
        ),
        (
            (1, 20),
            {},
            "running with swap on is not supported, please disable swap! or set --fail-swap-on "
            "flag to false. /proc/swaps contained: [Filename\t\t\t\tType\t\tSize\t\tUsed\t\t"
            "Priority /swap.img                               file\t\t4194304\t\t0\t\t-2]",
        ),
        (
            (1, 36),
            {"swap_behavior": "UnlimitedSwap"},
            'invalid configuration: memorySwap.swapBehavior "UnlimitedSwap" must be one of: "", '
            '"LimitedSwap" or "NoSwap"',
        ),
        (
            (1, 28),
            {"swap_behavior": "NoSwap", "feature_gates": SWAP},
            'invalid configuration: memorySwap.swapBehavior "NoSwap" must be one of: "", '
            '"LimitedSwap", or "UnlimitedSwap"',
        ),
        (
            (1, 28),
            LIMITED,
            "invalid configuration: memorySwap.swapBehavior cannot be set when NodeSwap feature "
            "flag is disabled",
        ),
        (
            (1, 36),
            {"memory_throttling_factor": 1.5},
            "invalid configuration: memoryThrottlingFactor 1.5 must be greater than 0 and less "
            "than or equal to 1.0",
        ),
        (
            (1, 36),
            TIERED,
            'invalid configuration: memoryReservationPolicy "TieredReservation" requires MemoryQoS '
            "feature gate to be enabled",
        ),
        (
            (1, 36),
            {"memory_reservation_policy": "Some"},
            'invalid configuration: option "Some" specified for memoryReservationPolicy. Valid '
            'options are "None" or "TieredReservation"',
        ),
    ],
)
async def test_a_kubelet_refuses_wrong_settings(
    node: Any, release: tuple[int, int], settings: Any, problem: str
) -> None:
    machine = {"hardware": MACHINE}
    with pytest.raises(BadConfiguration) as failure:
        async with node("linux", release=Release(*release), machine=machine, **settings):
            pass
    assert str(failure.value) == problem
