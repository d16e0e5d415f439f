"""The names, labels and buckets of metrics that differ between releases.

A metric that a release deprecates is hidden from the next release on.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.machinery.releases.release import Release

_REQUEST_SECONDS: Final = (
    0.001,
    0.002,
    0.004,
    0.008,
    0.016,
    0.032,
    0.064,
    0.128,
    0.256,
    0.512,
)


class MetricRules(NamedTuple):
    """The rules of 1.20; each field that changed has an entry in `_CHANGES`."""

    scheduler_attempt: tuple[str, ...] = ("e2e_scheduling_duration_seconds",)
    scheduler_pod: tuple[str, ...] = ("pod_scheduling_duration_seconds",)
    scheduler_binding: bool = True  # binding_duration_seconds
    scheduler_cache: str = "scheduler_cache_size"
    scheduler_stability: str = "ALPHA"
    scheduler_gated: bool = False  # pending_pods counts gated pods separately
    queue_events: Mapping[str, str] = MappingProxyType({})  # changed labels of events
    workqueue_stability: str = "ALPHA"
    rest_client_host: bool = False  # requests are timed by host, not by URL
    rest_client_buckets: tuple[float, ...] = _REQUEST_SECONDS
    request_sli: bool = False  # apiserver_request_sli_duration_seconds
    build_info_stability: str = "ALPHA"
    storage_status: bool = False  # storage_operation_duration_seconds by status and migration
    storage_errors: bool = True  # storage_operation_errors_total and ..._status_count
    storage_stability: str = "ALPHA"
    resource_managers: tuple[str, ...] = ()  # managers of the kubelet that have metrics
    started_containers: bool = False  # kubelet_started_containers_total, ..._pods_total
    started_host_process: bool = False  # kubelet_started_host_process_containers_total
    resource_stability: str = "ALPHA"  # of /metrics/resource, except for swap
    scrape_errors: Mapping[str, str] = MappingProxyType({"scrape_error": "[ALPHA]"})
    container_starts: bool = False  # container_start_time_seconds
    swap_usage: bool = False
    swap_limit: bool = False  # container_swap_limit_bytes


_CHANGES: Final[tuple[tuple[Release, dict[str, object]], ...]] = (
    (Release(1, 21), {"scheduler_binding": False, "storage_status": True}),
    (Release(1, 22), {"started_containers": True, "container_starts": True}),
    (
        Release(1, 23),
        {
            "started_host_process": True,
            "scheduler_attempt": (
                "e2e_scheduling_duration_seconds",
                "scheduling_attempt_duration_seconds",
            ),
            "scheduler_stability": "STABLE",
            "storage_errors": False,
        },
    ),
    (
        Release(1, 24),
        {
            "scheduler_attempt": ("scheduling_attempt_duration_seconds",),
            "rest_client_host": True,
            "rest_client_buckets": (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60),
        },
    ),
    (
        Release(1, 26),
        {"request_sli": True, "scheduler_gated": True, "resource_managers": ("cpu",)},
    ),
    (Release(1, 27), {"resource_managers": ("cpu", "topology")}),
    (Release(1, 28), {"swap_usage": True}),
    (
        Release(1, 29),
        {
            "resource_stability": "STABLE",
            "scrape_errors": {
                "resource_scrape_error": "[STABLE]",
                "scrape_error": "[ALPHA] (Deprecated since 1.29.0)",
            },
            "scheduler_pod": (
                "pod_scheduling_duration_seconds",
                "pod_scheduling_sli_duration_seconds",
            ),
        },
    ),
    (
        Release(1, 30),
        {
            "scrape_errors": {"resource_scrape_error": "[STABLE]"},
            "scheduler_pod": ("pod_scheduling_sli_duration_seconds",),
            "resource_managers": ("cpu", "topology", "memory"),
        },
    ),
    (
        Release(1, 32),
        {
            "queue_events": MappingProxyType(
                {
                    "PodAdd": "UnschedulablePodAdd",
                    "PodUpdate": "UnschedulablePodUpdate",
                    "NodeSpecUnschedulableChange": "NodeUpdateNodeTaint",
                    "NodeAllocatableChange": "NodeUpdateNodeAllocatable",
                    "NodeLabelChange": "NodeUpdateNodeLabel",
                    "NodeTaintChange": "NodeUpdateNodeTaint",
                    "NodeConditionChange": "NodeUpdateNodeCondition",
                    "PvAdd": "PersistentVolumeAdd",
                    "PvUpdate": "PersistentVolumeUpdate",
                    "PvcAdd": "PersistentVolumeClaimAdd",
                    "PvcUpdate": "PersistentVolumeClaimUpdate",
                    "StorageClassAdd": "storage.k8s.io/StorageClassAdd",
                    "CSINodeAdd": "storage.k8s.io/CSINodeAdd",
                    "CSINodeUpdate": "storage.k8s.io/CSINodeUpdate",
                }
            )
        },
    ),
    (Release(1, 33), {"scheduler_cache": "cache_size"}),
    (Release(1, 34), {"swap_limit": True}),
    (Release(1, 36), {"workqueue_stability": "BETA", "build_info_stability": "BETA"}),
    (Release(1, 37), {"storage_stability": "BETA"}),
)


def metric_rules(release: Release) -> MetricRules:
    changed: dict[str, object] = {}
    for since, fields in _CHANGES:
        if release >= since:
            changed |= fields
    return MetricRules(**changed)  # type: ignore[arg-type]
