"""Fields of KubeletConfiguration without a flag, as settings of `KubeletConfig`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from transom.kit.durations import parse_duration
from transom.kit.lazy import lazy_import
from transom.machinery.quantity import parse_quantity

if TYPE_CHECKING:
    from transom.kubelet import config as kubelet_config
    from transom.kubelet.config import MemoryReservation
else:
    kubelet_config = lazy_import("transom.kubelet.config")


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _shutdown_periods(value: Any) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise ValueError("must be a list of priorities and periods")
    return tuple(
        (int(entry.get("priority", 0)), int(entry.get("shutdownGracePeriodSeconds", 0)))
        for entry in value
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("must be a mapping")
    return {str(name): _text(text) for name, text in value.items()}


def _list(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list")
    return tuple(map(_text, value))


def _factor(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("must be a number")
    return float(value)


def _reserved_memory(value: Any) -> tuple[MemoryReservation, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise ValueError("must be a list of NUMA nodes and limits")
    out = []
    for entry in value:
        limits = entry.get("limits") or {}
        if not isinstance(limits, Mapping):
            raise ValueError("limits: must be a mapping")
        read = {str(name): str(parse_quantity(str(text))) for name, text in limits.items()}
        out.append(kubelet_config.MemoryReservation(int(entry.get("numaNode", 0)), read))
    return tuple(out)


def _size(value: Any) -> int:
    return parse_quantity(str(value)).value()


def _taints(value: Any) -> tuple[Mapping[str, str], ...]:
    if not isinstance(value, list) or not all(isinstance(taint, Mapping) for taint in value):
        raise ValueError("must be a list of taints")
    return tuple({str(key): _text(text) for key, text in taint.items()} for taint in value)


# The setting and how to read it.
CONFIGURATION_FIELDS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "allowedUnsafeSysctls": ("allowed_unsafe_sysctls", _list),
    "containerLogMaxFiles": ("container_log_max_files", int),
    "containerLogMaxSize": ("container_log_max_size", _size),
    "cpuCFSQuota": ("cpu_cfs_quota", _flag),
    "cpuCFSQuotaPeriod": ("cpu_cfs_quota_period", parse_duration),
    "cpuManagerPolicy": ("cpu_manager_policy", _text),
    "cpuManagerPolicyOptions": ("cpu_manager_policy_options", _texts),
    "cpuManagerReconcilePeriod": ("cpu_manager_reconcile_period", parse_duration),
    "enableSystemLogHandler": ("enable_system_log_handler", _flag),
    "enableSystemLogQuery": ("enable_system_log_query", _flag),
    "eventBurst": ("event_burst", int),
    "eventRecordQPS": ("event_record_qps", float),
    "evictionMaxPodGracePeriod": ("eviction_max_pod_grace_period", int),
    "evictionMinimumReclaim": ("eviction_minimum_reclaim", _texts),
    "evictionPressureTransitionPeriod": ("eviction_pressure_transition_period", parse_duration),
    "failSwapOn": ("fail_swap_on", _flag),
    "imageGCHighThresholdPercent": ("image_gc_high_threshold_percent", int),
    "imageGCLowThresholdPercent": ("image_gc_low_threshold_percent", int),
    "imageMaximumGCAge": ("image_maximum_gc_age", parse_duration),
    "imageMinimumGCAge": ("image_minimum_gc_age", parse_duration),
    "imagePullCredentialsVerificationPolicy": (
        "image_pull_credentials_verification_policy",
        _text,
    ),
    "makeIPTablesUtilChains": ("make_iptables_util_chains", _flag),
    "maxParallelImagePulls": ("max_parallel_image_pulls", int),
    "memoryManagerPolicy": ("memory_manager_policy", _text),
    "memoryReservationPolicy": ("memory_reservation_policy", _text),
    "memoryThrottlingFactor": ("memory_throttling_factor", _factor),
    "nodeLeaseDurationSeconds": ("node_lease_duration_seconds", int),
    "nodeStatusReportFrequency": ("node_status_report_frequency", parse_duration),
    "nodeStatusUpdateFrequency": ("node_status_update_frequency", parse_duration),
    "podLogsDir": ("pod_logs_dir", _text),
    "preloadedImagesVerificationAllowlist": (
        "preloaded_images_verification_allowlist",
        _list,
    ),
    "registerWithTaints": ("register_with_taints", _taints),
    "registryBurst": ("registry_burst", int),
    "registryPullQPS": ("registry_pull_qps", float),
    "reservedMemory": ("reserved_memory", _reserved_memory),
    "reservedSystemCPUs": ("reserved_system_cpus", _text),
    "serializeImagePulls": ("serialize_image_pulls", _flag),
    "serverTLSBootstrap": ("server_tls_bootstrap", _flag),
    "shutdownGracePeriod": ("shutdown_grace_period", parse_duration),
    "shutdownGracePeriodByPodPriority": (
        "shutdown_grace_period_by_pod_priority",
        _shutdown_periods,
    ),
    "shutdownGracePeriodCriticalPods": (
        "shutdown_grace_period_critical_pods",
        parse_duration,
    ),
    "singleProcessOOMKill": ("single_process_oom_kill", _flag),
    "syncFrequency": ("sync_frequency", parse_duration),
    "topologyManagerPolicy": ("topology_manager_policy", _text),
    "topologyManagerPolicyOptions": ("topology_manager_policy_options", _texts),
    "topologyManagerScope": ("topology_manager_scope", _text),
}
# Fields of objects in the configuration.
_NESTED_FIELDS: Final[dict[tuple[str, ...], tuple[str, Callable[[Any], Any]]]] = {
    ("authentication", "anonymous", "enabled"): ("anonymous_auth", _flag),
    ("crashLoopBackOff", "maxContainerRestartPeriod"): (
        "max_container_restart_period",
        parse_duration,
    ),
    ("memorySwap", "swapBehavior"): ("swap_behavior", _text),
    ("userNamespaces", "idsPerPod"): ("user_namespace_ids", int),
}


def configuration_settings(content: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in a configuration; other fields are left out. Raises ValueError."""
    out: dict[str, Any] = {}
    for field, (setting, read) in CONFIGURATION_FIELDS.items():
        if content.get(field) is not None:
            out[setting] = _read(field, content[field], read)
    for (*parents, field), (setting, read) in _NESTED_FIELDS.items():
        fields: Any = content
        for parent in parents:
            fields = fields.get(parent) or {}
            if not isinstance(fields, Mapping):
                raise ValueError(f"{parent}: must be a mapping")
        if fields.get(field) is not None:
            out[setting] = _read(".".join((*parents, field)), fields[field], read)
    if out.get("max_parallel_image_pulls", 1) > 1:
        out.setdefault("serialize_image_pulls", False)
    return out


def is_configuration_field(name: str) -> bool:
    return name in CONFIGURATION_FIELDS or any(name == path[0] for path in _NESTED_FIELDS)


def _read(field: str, value: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(value)
    except (AttributeError, TypeError, ValueError) as problem:
        raise ValueError(f"{field}: {problem}") from problem
