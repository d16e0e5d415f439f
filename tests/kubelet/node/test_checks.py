from __future__ import annotations

from typing import Any

import pytest

from transom.kubelet import os_linux, os_windows
from transom.kubelet.config import KubeletConfig
from transom.kubelet.node.checks import check_node_configuration
from transom.machines.api import Hardware

from .conftest import WINDOWS, FakeHost

WINDOWS_OK: dict[str, Any] = {"cgroups_per_qos": False, "enforce_node_allocatable": ()}
UNKNOWN_LABELS = (
    "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [a.k8s.io/x "
    "node-role.kubernetes.io/master]\n"
    "--node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix "
    "(kubelet.kubernetes.io, "
    "node.kubernetes.io) or be in the specifically allowed set (beta.kubernetes.io/arch, "
    "beta.kubernetes.io/instance-type, "
    "beta.kubernetes.io/os, failure-domain.beta.kubernetes.io/region, "
    "failure-domain.beta.kubernetes.io/zone, "
    "kubernetes.io/arch, kubernetes.io/hostname, kubernetes.io/os, "
    "node.kubernetes.io/instance-type, "
    "topology.kubernetes.io/region, topology.kubernetes.io/zone)"
)
PRIORITIES = "https://docs.microsoft.com/en-us/windows/win32/procthread/scheduling-priorities"


@pytest.mark.parametrize(
    ("windows", "settings", "wrong"),
    [
        (False, {}, []),
        (True, WINDOWS_OK, []),
        (
            True,
            {},
            [
                (
                    "invalid configuration: CgroupsPerQOS (--cgroups-per-qos) true is not "
                    "supported on Windows"
                ),
                (
                    "invalid configuration: EnforceNodeAllocatable (--enforce-node-allocatable) "
                    "[pods] is not supported on Windows"
                ),
            ],
        ),
        (
            True,
            {**WINDOWS_OK, "windows_priorityclass": "FAST"},
            [
                f"unknown priority class FAST, valid ones are available at {PRIORITIES}",
            ],
        ),
        (False, {"windows_priorityclass": "FAST"}, []),
        *(
            (False, {"version": version, "cpu_cfs_quota_period": seconds, **gates}, wrong)
            for gate in ({"CustomCPUCFSQuotaPeriod": True},)
            for version, seconds, gates, wrong in (
                (
                    "v1.20.15",
                    0.2,
                    {},
                    [
                        "invalid configuration: cpuCFSQuotaPeriod {200ms} requires feature gate "
                        "CustomCPUCFSQuotaPeriod"
                    ],
                ),
                (
                    "v1.35.0",
                    0.2,
                    {},
                    [
                        "invalid configuration: cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {200ms} "
                        "requires feature gate CustomCPUCFSQuotaPeriod"
                    ],
                ),
                ("v1.35.0", 0.2, {"feature_gates": gate}, []),
                ("v1.36.0", 0.2, {}, []),
                ("v1.25.0", 0.0001, {"feature_gates": gate}, []),
                (
                    "v1.36.0",
                    0.0001,
                    {},
                    [
                        "invalid configuration: cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {100µs} "
                        "must be between 1ms and 1sec, inclusive"
                    ],
                ),
                (
                    "v1.25.0",
                    2.0,
                    {"feature_gates": gate},
                    [
                        "invalid configuration: cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {2s} "
                        "must be between 1usec and 1sec, inclusive"
                    ],
                ),
            )
        ),
        (
            False,
            {
                "node_labels": {
                    "a.k8s.io/x": "",
                    "node-role.kubernetes.io/master": "",
                    "x.node.kubernetes.io/y": "1",
                    "b": "",
                }
            },
            [UNKNOWN_LABELS],
        ),
        (False, {"kube_reserved": {"pods": "1"}}, ['cannot reserve "pods" resource']),
        (
            False,
            {"system_reserved": {"cpu": "-1"}},
            ['resource quantity for "cpu" cannot be negative: -1'],
        ),
        (
            False,
            {"eviction_hard": {"memory.free": "1"}},
            ["unsupported eviction signal memory.free"],
        ),
        (
            False,
            {"eviction_hard": {"memory.available": "-1%"}},
            ["eviction percentage threshold memory.available must be >= 0%: -1%"],
        ),
        (
            False,
            {"eviction_hard": {"memory.available": "0"}},
            ["eviction threshold memory.available must be positive: 0"],
        ),
        (
            False,
            {"eviction_soft": {"memory.available": "1Gi"}},
            ["grace period must be specified for the soft eviction threshold memory.available"],
        ),
        (
            False,
            {"cgroups_per_qos": False},
            [
                "invalid configuration: enforceNodeAllocatable (--enforce-node-allocatable) "
                "is not supported unless cgroupsPerQOS "
                "(--cgroups-per-qos) is set to true"
            ],
        ),
        (
            False,
            {"image_gc_low_threshold_percent": 90},
            [
                "invalid configuration: imageGCLowThresholdPercent "
                "(--image-gc-low-threshold) 90 must be less than "
                "imageGCHighThresholdPercent (--image-gc-high-threshold) 85"
            ],
        ),
        (
            False,
            {"kube_reserved": {"memory": "8Gi"}},
            [
                'invalid Node Allocatable configuration. Resource "memory" has an '
                "allocatable of {{8694792192 0} {<nil>}  BinarySI}, "
                "capacity of {{-104857600 0} {<nil>}  BinarySI}"
            ],
        ),
        (True, {**WINDOWS_OK, "kube_reserved": {"memory": "80Gi"}}, []),
    ],
)
def test_what_keeps_a_kubelet_from_starting(
    windows: bool, settings: dict[str, Any], wrong: list[str]
) -> None:
    host: Any = FakeHost(WINDOWS, Hardware()) if windows else FakeHost()
    rules = os_windows.RULES if windows else os_linux.RULES
    assert (
        check_node_configuration(
            KubeletConfig(node_name="n1", node_ip="10.0.0.1", **settings), rules, host
        )
        == wrong
    )
