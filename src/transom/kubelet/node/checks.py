"""Why a kubelet with the given settings refuses to start on the given machine. The texts are
Kubernetes' own.
"""

from __future__ import annotations

from transom.kit.durations import format_duration
from transom.kit.goquote import go_quote
from transom.kubelet import allocatable
from transom.kubelet.admission.sysctls import Sysctls
from transom.kubelet.cgroup_units import CPU_PERIOD
from transom.kubelet.cm.settings import manager_configuration_problems
from transom.kubelet.config import KubeletConfig
from transom.kubelet.eviction import thresholds
from transom.kubelet.features import has_custom_quota_period, pull_record_version
from transom.kubelet.node_shutdown import shutdown_configuration_problems
from transom.kubelet.osrules import OsRules
from transom.kubelet.pull_records import VERIFICATION_POLICIES, allowlist_pattern
from transom.machinery.releases.kubelet import kubelet_has
from transom.machines.api import Host
from transom.machines.cpus import format_cpuset, machine_topology, parse_cpuset

_KUBERNETES = ("kubernetes.io", "k8s.io")
_LABEL_PREFIXES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_LABELS = (
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
_ENFORCEABLE = ("pods", "system-reserved", "kube-reserved", "none")
_HIGH, _LOW = (
    "imageGCHighThresholdPercent (--image-gc-high-threshold)",
    "imageGCLowThresholdPercent (--image-gc-low-threshold)",
)


def check_node_configuration(config: KubeletConfig, rules: OsRules, host: Host) -> list[str]:
    """All errors; empty when the kubelet starts."""
    wrong = [*_labels(config), *_configuration(config), *rules.check_config(config)]
    return wrong or _resources(config, rules, host)


def _labels(config: KubeletConfig) -> list[str]:
    unknown = sorted(
        name for name in config.node_labels if _kubernetes(name) and not _allowed(name)
    )
    if not unknown:
        return []
    return [
        "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: "
        f"[{' '.join(unknown)}]\n"
        "--node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix "
        f"({', '.join(_LABEL_PREFIXES)}) "
        f"or be in the specifically allowed set ({', '.join(_LABELS)})"
    ]


def _kubernetes(label: str) -> bool:
    return _within(label, _KUBERNETES)


def _allowed(label: str) -> bool:
    return label in _LABELS or _within(label, _LABEL_PREFIXES)


def _within(label: str, domains: tuple[str, ...]) -> bool:
    prefix, slash, _ = label.partition("/")
    return bool(slash) and any(
        prefix == domain or prefix.endswith("." + domain) for domain in domains
    )


def _configuration(config: KubeletConfig) -> list[str]:
    high, low = config.image_gc_high_threshold_percent, config.image_gc_low_threshold_percent
    rules = (
        (
            config.node_lease_duration_seconds <= 0,
            "nodeLeaseDurationSeconds must be greater than 0",
        ),
        (
            not config.cgroups_per_qos and bool(config.enforce_node_allocatable),
            "enforceNodeAllocatable (--enforce-node-allocatable) is not supported unless "
            "cgroupsPerQOS (--cgroups-per-qos) "
            "is set to true",
        ),
        (
            config.event_burst < 0,
            f"eventBurst (--event-burst) {config.event_burst} must not be a negative number",
        ),
        (
            config.event_record_qps < 0,
            (
                f"eventRecordQPS (--event-qps) {config.event_record_qps:g} must not be a "
                "negative number"
            ),
        ),
        (not 0 <= high <= 100, f"{_HIGH} {high} must be between 0 and 100, inclusive"),
        (not 0 <= low <= 100, f"{_LOW} {low} must be between 0 and 100, inclusive"),
        (low >= high, f"{_LOW} {low} must be less than {_HIGH} {high}"),
        (
            config.max_pods < 0,
            f"maxPods (--max-pods) {config.max_pods} must not be a negative number",
        ),
        (
            config.pods_per_core < 0,
            f"podsPerCore (--pods-per-core) {config.pods_per_core} must not be a negative number",
        ),
        (
            not 1 <= config.port <= 65535,
            f"port (--port) {config.port} must be between 1 and 65535, inclusive",
        ),
        (
            config.registry_burst < 0,
            (
                f"registryBurst (--registry-burst) {config.registry_burst} must not be a "
                "negative number"
            ),
        ),
        (
            config.registry_pull_qps < 0,
            (
                f"registryPullQPS (--registry-qps) {config.registry_pull_qps:g} must not be a "
                "negative number"
            ),
        ),
        (
            config.max_parallel_image_pulls is not None and config.max_parallel_image_pulls < 1,
            f"maxParallelImagePulls {config.max_parallel_image_pulls} must be a positive number",
        ),
        (
            config.serialize_image_pulls and (config.max_parallel_image_pulls or 0) > 1,
            "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls "
            "(--serialize-image-pulls) is set to false",
        ),
        (
            config.container_log_max_files <= 1,
            "containerLogMaxFiles must be greater than 1",
        ),
        *(
            (
                entry not in _ENFORCEABLE,
                f'option "{entry}" specified for enforceNodeAllocatable '
                '(--enforce-node-allocatable). Valid options are "pods", '
                '"system-reserved", "kube-reserved", or "none"',
            )
            for entry in config.enforce_node_allocatable
        ),
        (
            "none" in config.enforce_node_allocatable and len(config.enforce_node_allocatable) > 1,
            "enforceNodeAllocatable (--enforce-node-allocatable) may not contain additional "
            "enforcements when 'none' is "
            "specified",
        ),
    )
    wrong = [text for broken, text in rules if broken]
    wrong += shutdown_configuration_problems(config)
    wrong += manager_configuration_problems(config)
    wrong += _quota_period(config)
    wrong += _credential_verification(config)
    return [f"invalid configuration: {text}" for text in wrong]


def _quota_period(config: KubeletConfig) -> list[str]:
    release, period = config.release, config.cpu_cfs_quota_period
    flag, text = " (--cpu-cfs-quota-period)", f"{{{format_duration(period)}}}"
    if not has_custom_quota_period(release, config.feature_gates):
        flag = flag if kubelet_has(release, "QuotaPeriodErrorsNameFlag") else ""
        gate = f"cpuCFSQuotaPeriod{flag} {text} requires feature gate CustomCPUCFSQuotaPeriod"
        return [gate] if config.cpu_period != CPU_PERIOD else []
    milliseconds = kubelet_has(release, "QuotaPeriodInMilliseconds")
    least, shown = (0.001, "1ms") if milliseconds else (0.000001, "1usec")
    if least <= period <= 1:
        return []
    return [f"cpuCFSQuotaPeriod{flag} {text} must be between {shown} and 1sec, inclusive"]


def _credential_verification(config: KubeletConfig) -> list[str]:
    policy = config.image_pull_credentials_verification_policy
    allowlist = config.preloaded_images_verification_allowlist
    if not pull_record_version(config.release, config.feature_gates):
        unset = "must not be set if KubeletEnsureSecretPulledImages feature gate is not enabled"
        given = {
            "imagePullCredentialsVerificationPolicy": policy,
            "preloadedImagesVerificationAllowlist": allowlist,
        }
        return [f"`{field}` {unset}" for field, value in given.items() if value]
    wrong = []
    if policy and policy not in VERIFICATION_POLICIES:
        first, second, third, last = map(go_quote, VERIFICATION_POLICIES)
        wrong.append(
            f"option {go_quote(policy)} specified for imagePullCredentialsVerificationPolicy. "
            f"Valid options are {first}, {second}, {third} or {last}"
        )
    if allowlist and policy != "NeverVerifyAllowlistedImages":
        wrong.append(
            "can't set `preloadedImagesVerificationAllowlist` if "
            '`imagePullCredentialsVertificationPolicy` is not "NeverVerifyAllowlistedImages"'
        )
        return wrong
    try:
        for pattern in allowlist:
            allowlist_pattern(pattern)
    except ValueError as problem:
        wrong.append(f"invalid image pattern in `preloadedImagesVerificationAllowlist`: {problem}")
    return wrong


def _resources(config: KubeletConfig, rules: OsRules, host: Host) -> list[str]:
    """Checks that run in sequence once the configuration itself is valid: the first error ends
    them.
    """
    try:
        for part in (config.kube_reserved, config.system_reserved):
            allocatable.parse_reserved(part)
        thresholds.configured_thresholds(config, rules)
        _check_reserved_cpus(config, host)
        Sysctls(config.allowed_unsafe_sysctls, config.release)
    except ValueError as problem:
        return [str(problem)]
    if not rules.refuses_overcommitment():
        return []
    machine = allocatable.machine_capacity(host, rules)
    problem_text = allocatable.overcommitted(
        machine, allocatable.node_reservation(config, rules, machine)
    )
    return [problem_text] if problem_text else []


def _check_reserved_cpus(config: KubeletConfig, host: Host) -> None:
    online = machine_topology(host.hardware).all
    if not parse_cpuset(config.reserved_system_cpus) <= online:
        raise ValueError(
            f"reserved-cpus: {config.reserved_system_cpus} is not a subset of online-cpus: "
            f"{format_cpuset(online)}"
        )
