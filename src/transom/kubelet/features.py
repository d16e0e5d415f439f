"""What a kubelet of a release does with pods: feature gates and behaviours as named values.

Only this module of the kubelet reads feature gates by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from transom.kit.lazy_dataclass import dataclass
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.kubelet import kubelet_has
from transom.runtime.api import RuntimeVersion

_REPORTS_FEATURES: Final = 2  # the major version of containerd that reports handlers and features


@dataclass(frozen=True, slots=True)
class PodFeatures:
    """Everything is off in 1.20."""

    sidecars: bool = False
    restart_rules: bool = False  # of containers
    restart_all: bool = False  # a rule can restart all containers of a pod
    ready_to_start: bool = False  # the condition PodReadyToStartContainers
    observed_generation: bool = False
    host_ips: bool = False
    volume_mounts: bool = False  # in container statuses
    resize: bool = False
    pod_resize: bool = False  # of resources of the pod as a whole
    container_user: bool = False
    stop_signals: bool = False
    resource_health: bool = False  # of the devices of claims
    image_volumes: bool = False
    probe_grace_period: bool = False
    grace_before_hooks: bool = False  # the grace period of an eviction limits preStop hooks too
    evicted_status: bool = False  # evicted pods keep their container statuses
    disruption_target: bool = False  # the condition of evicted pods
    created_waits: bool = False
    failed_unready: bool = False
    lost_restart: bool = False
    lost_init_completed: bool = False
    terminal_phases: bool = False
    rejected_qos: bool = False
    short_hash: bool = False
    retries_after_backoff: bool = False  # of a crashed container, not every ten seconds
    any_variable_names: bool = False  # in the environment from config maps and secrets


NO_FEATURES = PodFeatures()


def pod_features(release: tuple[int, int], gates: Mapping[str, bool]) -> PodFeatures:
    return _pod_features(Release(*release), frozenset(gates.items()))


@lru_cache(maxsize=64)
def _pod_features(release: Release, gates: frozenset[tuple[str, bool]]) -> PodFeatures:
    enabled = FeatureSet(release, dict(gates)).enabled
    return PodFeatures(
        sidecars=enabled("SidecarContainers"),
        restart_rules=enabled("ContainerRestartRules"),
        restart_all=enabled("RestartAllContainersOnContainerExits"),
        ready_to_start=enabled("PodReadyToStartContainersCondition"),
        observed_generation=enabled("PodObservedGenerationTracking"),
        host_ips=enabled("PodHostIPs"),
        volume_mounts=enabled("RecursiveReadOnlyMounts"),
        resize=enabled("InPlacePodVerticalScaling"),
        pod_resize=enabled("InPlacePodLevelResourcesVerticalScaling"),
        container_user=enabled("SupplementalGroupsPolicy"),
        stop_signals=enabled("ContainerStopSignals"),
        resource_health=enabled("ResourceHealthStatus"),
        image_volumes=enabled("ImageVolume"),
        probe_grace_period=enabled("ProbeTerminationGracePeriod"),
        grace_before_hooks=kubelet_has(release, "GraceBeforeHooks"),
        evicted_status=kubelet_has(release, "EvictedStatus"),
        disruption_target=enabled("PodDisruptionConditions"),
        created_waits=kubelet_has(release, "CreatedContainersWait"),
        failed_unready=kubelet_has(release, "FailedPodsAreUnready"),
        lost_restart=kubelet_has(release, "LostContainersRestart"),
        lost_init_completed=kubelet_has(release, "LostInitContainersCompleted"),
        rejected_qos=kubelet_has(release, "RejectedQos"),
        terminal_phases=kubelet_has(release, "TerminalPhases"),
        short_hash=kubelet_has(release, "HashesNameAndImage"),
        retries_after_backoff=kubelet_has(release, "RetriesAfterBackOff"),
        any_variable_names=kubelet_has(release, "AnyVariableNames"),
    )


def serving_certificates(release: tuple[int, int], gates: Mapping[str, bool]) -> bool:
    """Whether a kubelet can request its serving certificate."""
    return FeatureSet(Release(*release), gates).enabled("RotateKubeletServerCertificate")


def has_consistent_http_get(release: tuple[int, int], gates: Mapping[str, bool]) -> bool:
    """Whether httpGet hooks make the same requests as httpGet probes."""
    return FeatureSet(Release(*release), gates).enabled("ConsistentHTTPGetHandlers")


def crash_loop_backoff(
    release: tuple[int, int], gates: Mapping[str, bool], longest: float | None
) -> tuple[float, float]:
    """The first and the longest delay of containers that crash. `longest` is the setting
    crashLoopBackOff.maxContainerRestartPeriod.
    """
    enabled = FeatureSet(Release(*release), gates).enabled
    first, most = 10.0, 300.0
    if enabled("ReduceDefaultCrashLoopBackOffDecay"):
        first, most = 1.0, 60.0
    if longest is not None and enabled("KubeletCrashLoopBackOffMax"):
        first, most = min(first, longest), longest
    return first, most


def has_dynamic_resources(release: tuple[int, int], gates: Mapping[str, bool]) -> bool:
    """Whether the kubelet calls the drivers of resource claims."""
    known = Release(*release)
    return kubelet_has(known, "ClaimsV1") and FeatureSet(known, gates).enabled(
        "DynamicResourceAllocation"
    )


def has_cpu_manager(release: tuple[int, int], gates: Mapping[str, bool]) -> bool:
    return FeatureSet(Release(*release), gates).enabled("CPUManager")


@dataclass(frozen=True, slots=True)
class MemoryFeatures:
    """Swap and memory QoS of a release. The defaults are those of the newest one."""

    node_swap: bool
    memory_qos: bool
    swap_only_with_gate: bool  # otherwise containers have no swap
    unlimited_by_default: bool  # containers can use all swap unless it is limited
    critical_pods_without_swap: bool
    throttles_above_request: bool  # memory.high is between request and limit
    throttles_best_effort: bool
    tiered_reservation: bool  # what is protected depends on memoryReservationPolicy
    throttling_factor: float | None  # the default


def memory_features(release: tuple[int, int], gates: Mapping[str, bool]) -> MemoryFeatures:
    known = Release(*release)
    enabled = FeatureSet(known, gates).enabled
    above_request = kubelet_has(known, "ThrottlesAboveRequest")
    optional = kubelet_has(known, "OptionalThrottling")
    return MemoryFeatures(
        node_swap=enabled("NodeSwap"),
        memory_qos=enabled("MemoryQoS"),
        swap_only_with_gate=not kubelet_has(known, "LimitsSwap"),
        unlimited_by_default=not kubelet_has(known, "NoSwapByDefault"),
        critical_pods_without_swap=kubelet_has(known, "CriticalPodsWithoutSwap"),
        throttles_above_request=above_request,
        throttles_best_effort=optional,
        tiered_reservation=kubelet_has(known, "MemoryReservationPolicy"),
        throttling_factor=None if optional else 0.9 if above_request else 0.8,
    )


def has_memory_manager(release: tuple[int, int], gates: Mapping[str, bool]) -> bool:
    return FeatureSet(Release(*release), gates).enabled("MemoryManager")


def has_windows_affinity(release: tuple[int, int], gates: Mapping[str, bool]) -> bool:
    """Whether kubelets of Windows nodes manage CPUs and memory."""
    return FeatureSet(Release(*release), gates).enabled("WindowsCPUAndMemoryAffinity")


def has_custom_quota_period(release: tuple[int, int], gates: Mapping[str, bool]) -> bool:
    """Whether cpuCFSQuotaPeriod can be changed. The gate has another name in 1.32."""
    enabled = FeatureSet(Release(*release), gates).enabled
    return enabled("CustomCPUCFSQuotaPeriod") or enabled("CPUCFSQuotaPeriod")


def disables_exclusive_quota(release: tuple[int, int], gates: Mapping[str, bool]) -> bool:
    """Whether containers with exclusive CPUs have no CPU quota."""
    return FeatureSet(Release(*release), gates).enabled("DisableCPUQuotaWithExclusiveCPUs")


@dataclass(frozen=True, slots=True)
class ResizeFeatures:
    """Which Guaranteed pods can be resized where a manager has the static policy."""

    exclusive_cpus: bool
    exclusive_memory: bool


def resize_features(release: tuple[int, int], gates: Mapping[str, bool]) -> ResizeFeatures:
    enabled = FeatureSet(Release(*release), gates).enabled
    return ResizeFeatures(
        enabled("InPlacePodVerticalScalingExclusiveCPUs"),
        enabled("InPlacePodVerticalScalingExclusiveMemory"),
    )


def pull_record_version(release: tuple[int, int], gates: Mapping[str, bool]) -> str:
    """The version of the kubelet's records about pulled images; empty if it keeps none."""
    known = Release(*release)
    if not FeatureSet(known, gates).enabled("KubeletEnsureSecretPulledImages"):
        return ""
    return "v1beta1" if kubelet_has(known, "PullRecordsV1Beta1") else "v1alpha1"


@dataclass(frozen=True, slots=True)
class CredentialProviderFeatures:
    """`versions`: of the configuration and of the calls; empty if the kubelet calls no providers."""

    versions: tuple[str, ...]
    tokens: bool  # providers can receive service account tokens
    cache_types: bool  # the configuration defines how credentials for a token are cached


def credential_provider_features(
    release: tuple[int, int], gates: Mapping[str, bool]
) -> CredentialProviderFeatures:
    known = Release(*release)
    enabled = FeatureSet(known, gates).enabled
    versions = ["v1alpha1"]
    if kubelet_has(known, "CredentialProvidersV1Beta1"):
        versions.append("v1beta1")
    if kubelet_has(known, "CredentialProvidersV1"):
        versions.append("v1")
    return CredentialProviderFeatures(
        tuple(versions) if enabled("KubeletCredentialProviders") else (),
        enabled("KubeletServiceAccountTokenForCredentialProviders"),
        kubelet_has(known, "CredentialCacheTypes"),
    )


def runtime_reports_features(runtime: RuntimeVersion) -> bool:
    """Whether the CRI status of the runtime has handlers and features."""
    major = runtime.version.partition(".")[0]
    return runtime.name == "containerd" and major.isdigit() and int(major) >= _REPORTS_FEATURES


def serves_pod_resources(release: tuple[int, int], gates: Mapping[str, bool]) -> bool:
    known = Release(*release)
    return kubelet_has(known, "PodResourcesWithoutGates") or FeatureSet(known, gates).enabled(
        "KubeletPodResources"
    )


@dataclass(frozen=True, slots=True)
class PodResourcesFeatures:
    """The pod resources API of a release."""

    has_allocatable: bool  # the method exists
    allocatable: bool  # and is on
    has_get: bool
    get: bool
    memory: bool
    claims: bool
    active_only: bool  # pods that have ended are not listed
    counts_methods: bool  # metrics count requests by method


def pod_resources_features(
    release: tuple[int, int], gates: Mapping[str, bool]
) -> PodResourcesFeatures:
    known = Release(*release)
    enabled = FeatureSet(known, gates).enabled
    by_method = kubelet_has(known, "PodResourcesByMethod")
    return PodResourcesFeatures(
        has_allocatable=by_method,
        allocatable=kubelet_has(known, "PodResourcesWithoutGates")
        or enabled("KubeletPodResourcesGetAllocatable"),
        has_get=kubelet_has(known, "PodResourcesGet"),
        get=enabled("KubeletPodResourcesGet"),
        memory=kubelet_has(known, "PodResourcesMemory"),
        claims=enabled("KubeletPodResourcesDynamicResources"),
        active_only=enabled("KubeletPodResourcesListUseActivePods"),
        counts_methods=by_method,
    )
