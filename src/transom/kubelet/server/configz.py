"""A kubelet's settings as /configz shows them: KubeletConfiguration of
kubelet.config.k8s.io/v1beta1 with defaults.

Fields without a setting in this kubelet show Kubernetes' default.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from transom.kit.durations import format_duration
from transom.kubelet.cm.memory_cgroup import throttling_factor
from transom.kubelet.config import KubeletConfig
from transom.kubelet.features import memory_features
from transom.kubelet.osrules import OsRules
from transom.kubelet.pull_records import DEFAULT_POLICY
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.kubelet import kubelet_has

_MI = 1 << 20


def kubelet_configuration(config: KubeletConfig, os: OsRules) -> Object:
    hard = (
        os.default_eviction(config.release)
        if config.eviction_hard is None
        else config.eviction_hard
    )
    fields: dict[str, Any] = {
        "enableServer": True,
        "staticPodPath": config.static_pod_path,
        "syncFrequency": format_duration(config.sync_frequency),
        "fileCheckFrequency": "20s",
        "httpCheckFrequency": "20s",
        "address": "0.0.0.0",
        "port": config.port,
        "rotateCertificates": True,
        **({"serverTLSBootstrap": True} if config.server_tls_bootstrap else {}),
        "authentication": {
            "x509": {},
            "webhook": {"enabled": True, "cacheTTL": "2m0s"},
            "anonymous": {"enabled": config.anonymous_auth},
        },
        "authorization": {
            "mode": "Webhook",
            "webhook": {"cacheAuthorizedTTL": "5m0s", "cacheUnauthorizedTTL": "30s"},
        },
        "registryPullQPS": int(config.registry_pull_qps),
        "registryBurst": config.registry_burst,
        "eventRecordQPS": int(config.event_record_qps),
        "eventBurst": config.event_burst,
        "enableDebuggingHandlers": config.enable_debugging_handlers,
        "healthzPort": config.healthz_port,
        "healthzBindAddress": config.healthz_bind_address,
        "oomScoreAdj": -999,
        "clusterDomain": config.cluster_domain,
        "clusterDNS": list(config.cluster_dns),
        "streamingConnectionIdleTimeout": "4h0m0s",
        "nodeStatusUpdateFrequency": format_duration(config.node_status_update_frequency),
        "nodeStatusReportFrequency": format_duration(config.node_status_report_frequency),
        "nodeLeaseDurationSeconds": config.node_lease_duration_seconds,
        "imageMinimumGCAge": format_duration(config.image_minimum_gc_age),
        "imageGCHighThresholdPercent": config.image_gc_high_threshold_percent,
        "imageGCLowThresholdPercent": config.image_gc_low_threshold_percent,
        "volumeStatsAggPeriod": "1m0s",
        "cgroupsPerQOS": config.cgroups_per_qos,
        "cgroupDriver": "cgroupfs",
        "cpuManagerPolicy": config.cpu_manager_policy,
        "cpuManagerPolicyOptions": dict(config.cpu_manager_policy_options),
        "cpuManagerReconcilePeriod": format_duration(config.cpu_manager_reconcile_period),
        "reservedSystemCPUs": config.reserved_system_cpus,
        "topologyManagerPolicy": config.topology_manager_policy,
        "topologyManagerPolicyOptions": dict(config.topology_manager_policy_options),
        "topologyManagerScope": config.topology_manager_scope,
        "runtimeRequestTimeout": "2m0s",
        "hairpinMode": "promiscuous-bridge",
        "maxPods": config.max_pods,
        "podPidsLimit": -1,
        "resolvConf": config.resolv_conf,
        "cpuCFSQuota": config.cpu_cfs_quota,
        "cpuCFSQuotaPeriod": format_duration(config.cpu_cfs_quota_period),
        "nodeStatusMaxImages": 50,
        "maxOpenFiles": 1_000_000,
        "contentType": "application/vnd.kubernetes.protobuf",
        "kubeAPIQPS": 5,
        "kubeAPIBurst": 10,
        "serializeImagePulls": config.serialize_image_pulls,
        "evictionHard": dict(hard),
        "evictionSoft": dict(config.eviction_soft),
        "evictionSoftGracePeriod": dict(config.eviction_soft_grace_period),
        "evictionPressureTransitionPeriod": format_duration(
            config.eviction_pressure_transition_period
        ),
        "evictionMaxPodGracePeriod": config.eviction_max_pod_grace_period,
        "evictionMinimumReclaim": dict(config.eviction_minimum_reclaim),
        "podsPerCore": config.pods_per_core,
        "enableControllerAttachDetach": True,
        "makeIPTablesUtilChains": config.make_iptables_util_chains,
        "iptablesMasqueradeBit": 14,
        "iptablesDropBit": 15,
        "featureGates": dict(config.feature_gates),
        "failSwapOn": config.fail_swap_on,
        "containerLogMaxSize": f"{config.container_log_max_size // _MI}Mi",
        "containerLogMaxFiles": config.container_log_max_files,
        "configMapAndSecretChangeDetectionStrategy": "Watch",
        "systemReserved": dict(config.system_reserved),
        "kubeReserved": dict(config.kube_reserved),
        "enforceNodeAllocatable": list(config.enforce_node_allocatable),
        "allowedUnsafeSysctls": list(config.allowed_unsafe_sysctls),
        "volumePluginDir": "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
        "providerID": config.provider_id,
        "logging": {"format": "text"},
        "enableSystemLogHandler": config.enable_system_log_handler,
        "shutdownGracePeriod": format_duration(config.shutdown_grace_period),
        "shutdownGracePeriodCriticalPods": format_duration(
            config.shutdown_grace_period_critical_pods
        ),
        **_newer_fields(config),
    }
    shown = (
        "cgroupsPerQOS",
        "cpuCFSQuota",
        "makeIPTablesUtilChains",
        "serializeImagePulls",
        "registryPullQPS",
        "eventRecordQPS",
        "enableDebuggingHandlers",
        "enableSystemLogQuery",
        "failSwapOn",
        "memorySwap",
    )
    return {
        name: value
        for name, value in fields.items()
        if value not in ("", 0, False, [], {}) or name in shown
    }


def _newer_fields(config: KubeletConfig) -> Object:
    """Fields that 1.20 does not have."""
    enabled = FeatureSet(Release(*config.release), config.feature_gates).enabled
    has = partial(kubelet_has, config.release)
    out: Object = {}
    memory = memory_features(config.release, config.feature_gates)
    if has("ConfigReservedMemory"):
        out["memoryManagerPolicy"] = config.memory_manager_policy
        out["reservedMemory"] = [
            {"numaNode": node, "limits": dict(limits)} for node, limits in config.reserved_memory
        ]
    if has("ConfigMemorySwap"):
        out["memorySwap"] = {"swapBehavior": config.swap_behavior} if config.swap_behavior else {}
        factor = throttling_factor(config, memory)
        out["memoryThrottlingFactor"] = 0 if factor is None else factor
    if has("ConfigRegisterWithTaints"):
        out["registerWithTaints"] = [dict(taint) for taint in config.register_with_taints]
    if has("ConfigParallelPulls") and config.max_parallel_image_pulls is not None:
        out["maxParallelImagePulls"] = config.max_parallel_image_pulls
    if has("ConfigPodLogsDir"):
        out["podLogsDir"] = config.pod_logs_dir
    if has("ConfigSingleProcessOomKill") and config.single_process_oom_kill is not None:
        out["singleProcessOOMKill"] = config.single_process_oom_kill
    if has("ConfigUserNamespaces") and config.user_namespace_ids is not None:
        out["userNamespaces"] = {"idsPerPod": config.user_namespace_ids}
    if memory.tiered_reservation:
        out["memoryReservationPolicy"] = config.memory_reservation_policy or "None"
    if enabled("GracefulNodeShutdownBasedOnPodPriority"):
        out["shutdownGracePeriodByPodPriority"] = [
            {"priority": priority, "shutdownGracePeriodSeconds": seconds}
            for priority, seconds in config.shutdown_grace_period_by_pod_priority
        ]
    if enabled("ImageMaximumGCAge"):
        out["imageMaximumGCAge"] = format_duration(config.image_maximum_gc_age)
    if enabled("NodeLogQuery"):
        out["enableSystemLogQuery"] = config.enable_system_log_query
    if enabled("KubeletCrashLoopBackOffMax"):
        longest = format_duration(config.crash_loop_backoff[1])
        out["crashLoopBackOff"] = {"maxContainerRestartPeriod": longest}
    if enabled("KubeletEnsureSecretPulledImages"):
        out["imagePullCredentialsVerificationPolicy"] = (
            config.image_pull_credentials_verification_policy or DEFAULT_POLICY
        )
        out["preloadedImagesVerificationAllowlist"] = list(
            config.preloaded_images_verification_allowlist
        )
    return out
