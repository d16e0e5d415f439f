"""A kubelet's settings, with the names and defaults of Kubernetes' KubeletConfiguration where it
has them.

Pure data; `check` returns the errors with which a kubelet refuses to start, which differ by
operating system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.kubelet.features import (
    PodFeatures,
    crash_loop_backoff,
    pod_features,
    serving_certificates,
)

DEFAULT_PRIORITY_CLASS = "NORMAL_PRIORITY_CLASS"
IDS_PER_POD = 65536  # of a pod with a user namespace
DEFAULT_EVICTION_LINUX = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
}
DEFAULT_EVICTION_WINDOWS = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "imagefs.available": "15%",
}


@cache
def _minor_version(version: str) -> tuple[int, int]:
    """A node asks for it about sixty times while it starts."""
    major, minor = version.removeprefix("v").split(".")[:2]
    return int(major), int(minor.rstrip("+"))


class MemoryReservation(NamedTuple):
    """Memory of a NUMA node that containers cannot get, by type."""

    numa_node: int
    limits: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ProviderTokenAttributes:
    """The service account token that a provider receives."""

    audience: str
    require_service_account: bool
    required_annotations: tuple[str, ...]
    optional_annotations: tuple[str, ...]
    cache_type: str


@dataclass(frozen=True, slots=True)
class CredentialProviderConfig:
    """A program of the node that gives credentials of registries."""

    name: str
    program: str
    api_version: str
    match_images: tuple[str, ...]
    cache_seconds: float
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    token: ProviderTokenAttributes | None = None


@dataclass(frozen=True, slots=True)
class KubeletConfig:
    node_name: str
    node_ip: str
    version: str = "v1.20.15"
    node_labels: Mapping[str, str] = field(default_factory=dict)
    register_with_taints: tuple[Mapping[str, str], ...] = ()
    register_schedulable: bool = True
    provider_id: str = ""
    max_pods: int = 110
    pods_per_core: int = 0
    root_dir: str = "/var/lib/kubelet"
    pod_logs_dir: str = "/var/log/pods"
    static_pod_path: str = ""
    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = "cluster.local"
    resolv_conf: str = "/etc/resolv.conf"
    pod_infra_image: str = ""  # "" for the operating system's default
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    eviction_hard: Mapping[str, str] | None = None  # None for the operating system's defaults
    eviction_soft: Mapping[str, str] = field(default_factory=dict)
    eviction_soft_grace_period: Mapping[str, str] = field(default_factory=dict)
    eviction_pressure_transition_period: float = 300.0
    eviction_max_pod_grace_period: int = 0
    eviction_minimum_reclaim: Mapping[str, str] = field(default_factory=dict)
    cgroups_per_qos: bool = True
    enforce_node_allocatable: tuple[str, ...] = ("pods",)
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    secondary_node_ip: str = ""  # the second address of --node-ip, of the other family
    windows_priorityclass: str = DEFAULT_PRIORITY_CLASS
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    serialize_image_pulls: bool = True
    max_parallel_image_pulls: int | None = None  # None for no limit, if they are not serialized
    image_pull_progress_deadline: float = 60.0  # seconds; used with docker only
    enable_debugging_handlers: bool = True
    registry_pull_qps: float = 5.0
    registry_burst: int = 10
    event_record_qps: float = 5.0
    event_burst: int = 10
    image_gc_high_threshold_percent: int = 85
    image_gc_low_threshold_percent: int = 80
    image_minimum_gc_age: float = 120.0
    container_log_max_size: int = 10 << 20
    container_log_max_files: int = 5
    node_status_update_frequency: float = 10.0
    node_status_report_frequency: float = 300.0
    node_lease_duration_seconds: int = 40
    sync_frequency: float = 60.0
    port: int = 10250
    healthz_port: int = 10248  # 0: not served
    healthz_bind_address: str = "127.0.0.1"
    anonymous_auth: bool = False
    make_iptables_util_chains: bool = True
    enable_system_log_handler: bool = True
    enable_system_log_query: bool = False
    image_maximum_gc_age: float = 0.0  # seconds; 0: unused images stay
    shutdown_grace_period: float = 0.0
    shutdown_grace_period_critical_pods: float = 0.0
    # pairs of priority and seconds
    shutdown_grace_period_by_pod_priority: tuple[tuple[int, int], ...] = ()
    server_tls_bootstrap: bool = False
    cpu_cfs_quota: bool = True  # containers with a limit have a quota
    cpu_cfs_quota_period: float = 0.1
    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: Mapping[str, str] = field(default_factory=dict)
    cpu_manager_reconcile_period: float = 10.0
    reserved_system_cpus: str = ""  # replaces the reserved amounts of cpu
    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"
    topology_manager_policy_options: Mapping[str, str] = field(default_factory=dict)
    memory_manager_policy: str = "None"
    reserved_memory: tuple[MemoryReservation, ...] = ()
    fail_swap_on: bool = True
    swap_behavior: str = ""
    memory_throttling_factor: float | None = None  # None for the release's default
    memory_reservation_policy: str = ""  # "" for the default, None
    image_pull_credentials_verification_policy: str = ""  # "" for the release's default
    preloaded_images_verification_allowlist: tuple[str, ...] = ()
    credential_providers: tuple[CredentialProviderConfig, ...] = ()
    single_process_oom_kill: bool | None = None
    user_namespace_ids: int | None = None  # of each pod; None for the default
    max_container_restart_period: float | None = None  # seconds; None for the release's default

    @property
    def node_ips(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.node_ip, self.secondary_node_ip)))

    @property
    def release(self) -> tuple[int, int]:
        """The kubelet's minor version: (1, 20) for v1.20.15."""
        return _minor_version(self.version)

    @property
    def pod_features(self) -> PodFeatures:
        return pod_features(self.release, self.feature_gates)

    @property
    def requests_serving_certificate(self) -> bool:
        return self.server_tls_bootstrap and serving_certificates(self.release, self.feature_gates)

    @property
    def cpu_period(self) -> int:
        """The period of CPU quotas in microseconds."""
        return round(self.cpu_cfs_quota_period * 1_000_000)

    @property
    def crash_loop_backoff(self) -> tuple[float, float]:
        return crash_loop_backoff(
            self.release, self.feature_gates, self.max_container_restart_period
        )
