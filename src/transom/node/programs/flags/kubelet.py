"""The kubelet's command line: the flags that its release has, and those with an effect on a
simulated node.

As long as there is dockershim, spellings from the documentation are accepted too: --service for
--windows-service, --kubelet-reserve for --kube-reserved, --system-reserve for --system-reserved,
--enforce-node-allocable for --enforce-node-allocatable, and --allow-privileged, which kubelets
removed in 1.15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from transom.kit.goquote import go_quote
from transom.kit.lazy_dataclass import dataclass, replace
from transom.kubelet.config import KubeletConfig
from transom.machinery.quantity import QuantityError
from transom.machinery.quantity import parse_quantity as quantity
from transom.machinery.releases import Release
from transom.machinery.releases.kubelet_flags import deprecated_flag_text, kubelet_accepts
from transom.node.programs.flags import klog
from transom.node.programs.flags.golang import (
    ADDRESS,
    BOOL,
    BOOL_MAP,
    COLON_MAP,
    DURATION,
    FLOAT,
    INT32,
    INT64,
    LABELS,
    LANGLE_MAP,
    STRING,
    STRING_MAP,
    STRINGS,
    TAINTS,
    FlagError,
    FlagKind,
    ParsedFlags,
    Table,
    parse_pflag,
)

_BOOLS: Final = """
anonymous-auth authentication-token-webhook cgroups-per-qos contention-profiling cpu-cfs-quota enable-cadvisor-json-endpoints
enable-controller-attach-detach enable-debugging-handlers enable-server exit-on-lock-contention
experimental-allocatable-ignore-eviction experimental-check-node-capabilities-before-mount
experimental-kernel-memcg-notification experimental-logging-sanitization fail-cgroupv1 fail-swap-on help
keep-terminated-pod-volumes kernel-memcg-notification local-storage-capacity-isolation log-json-split-stream
log-text-split-stream
make-iptables-util-chains protect-kernel-defaults really-crash-for-testing
redirect-container-streaming register-node register-schedulable rotate-certificates rotate-server-certificates runonce
seccomp-default serialize-image-pulls windows-service
"""
_STRINGS: Final = """
authorization-mode azure-container-registry-config bootstrap-kubeconfig cert-dir cgroup-driver cgroup-root client-ca-file
cloud-config cloud-provider cluster-domain cni-bin-dir cni-cache-dir cni-conf-dir config config-dir container-log-max-size
container-runtime container-runtime-endpoint cpu-manager-policy docker-endpoint dynamic-config-dir
experimental-bootstrap-kubeconfig experimental-dockershim-root-directory experimental-mounter-path hairpin-mode
hostname-override image-credential-provider-bin-dir image-credential-provider-config image-service-endpoint
kube-api-content-type kube-reserved-cgroup kubeconfig kubelet-cgroups lock-file
log-json-info-buffer-size log-text-info-buffer-size logging-format manifest-url
memory-manager-policy
master-service-namespace network-plugin node-ip non-masquerade-cidr pod-cidr pod-infra-container-image pod-manifest-path
provider-id reserved-cpus reserved-memory
resolv-conf root-dir runtime-cgroups seccomp-profile-root system-cgroups system-reserved-cgroup
tls-cert-file tls-min-version tls-private-key-file topology-manager-policy topology-manager-scope volume-plugin-dir
windows-priorityclass
"""
_NUMBERS: Final = """
container-log-max-files event-burst event-qps eviction-max-pod-grace-period healthz-port image-gc-high-threshold
image-gc-low-threshold iptables-drop-bit iptables-masquerade-bit kube-api-burst kube-api-qps max-pods maximum-dead-containers
maximum-dead-containers-per-container network-plugin-mtu node-status-max-images oom-score-adj pods-per-core port read-only-port
registry-burst registry-qps
"""
_DURATIONS: Final = """
authentication-token-webhook-cache-ttl authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl
cpu-cfs-quota-period cpu-manager-reconcile-period eviction-pressure-transition-period file-check-frequency http-check-frequency
image-pull-progress-deadline minimum-container-ttl-duration minimum-image-ttl-duration node-status-update-frequency
runtime-request-timeout streaming-connection-idle-timeout sync-frequency volume-stats-agg-period
"""
TABLE: Final[Table] = {
    **klog.TABLE,
    **dict.fromkeys(_BOOLS.split(), BOOL),
    **dict.fromkeys(_STRINGS.split(), STRING),
    **dict.fromkeys(_NUMBERS.split(), INT32),
    **dict.fromkeys(_DURATIONS.split(), DURATION),
    **dict.fromkeys(("max-open-files", "pod-max-pids"), INT64),
    **dict.fromkeys(
        ("allowed-unsafe-sysctls", "cluster-dns", "enforce-node-allocatable", "tls-cipher-suites"),
        STRINGS,
    ),
    **dict.fromkeys(
        (
            "cpu-manager-policy-options",
            "eviction-minimum-reclaim",
            "eviction-soft-grace-period",
            "kube-reserved",
            "qos-reserved",
            "system-reserved",
            "topology-manager-policy-options",
        ),
        STRING_MAP,
    ),
    **dict.fromkeys(("eviction-hard", "eviction-soft"), LANGLE_MAP),
    **dict.fromkeys(("address", "healthz-bind-address"), ADDRESS),
    "chaos-chance": FLOAT,
    "feature-gates": BOOL_MAP,
    "manifest-url-header": COLON_MAP,
    "node-labels": LABELS,
    "register-with-taints": TAINTS,
    "version": FlagKind("version[=true]", str, alone="true"),
}
_DOCUMENT_SPELLINGS: Final[Mapping[str, str]] = {
    "kubelet-reserve": "kube-reserved",
    "system-reserve": "system-reserved",
    "enforce-node-allocable": "enforce-node-allocatable",
}
_OF_THE_DOCUMENTS: Final[Table] = {
    "service": BOOL,
    "allow-privileged": BOOL,
    **{spelling: TABLE[name] for spelling, name in _DOCUMENT_SPELLINGS.items()},
}
_WINDOWS_ONLY: Final = frozenset(("service", "windows-priorityclass", "windows-service"))
_RUNTIME_FLAG: Final = "container-runtime"

_IN_THE_FILE: Final = (
    "This parameter should be set via the config file specified by the Kubelet's --config "
    "flag. See "
    "https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ for more information."
)
# Flags that map directly to fields of the kubelet's configuration.
_FIELDS: Final = {
    "allowed-unsafe-sysctls": "allowed_unsafe_sysctls",
    "anonymous-auth": "anonymous_auth",
    "cgroups-per-qos": "cgroups_per_qos",
    "cluster-dns": "cluster_dns",
    "cluster-domain": "cluster_domain",
    "container-log-max-files": "container_log_max_files",
    "cpu-cfs-quota": "cpu_cfs_quota",
    "cpu-cfs-quota-period": "cpu_cfs_quota_period",
    "cpu-manager-policy": "cpu_manager_policy",
    "cpu-manager-reconcile-period": "cpu_manager_reconcile_period",
    "enable-debugging-handlers": "enable_debugging_handlers",
    "rotate-server-certificates": "server_tls_bootstrap",
    "enforce-node-allocatable": "enforce_node_allocatable",
    "event-burst": "event_burst",
    "event-qps": "event_record_qps",
    "eviction-hard": "eviction_hard",
    "eviction-max-pod-grace-period": "eviction_max_pod_grace_period",
    "eviction-minimum-reclaim": "eviction_minimum_reclaim",
    "eviction-pressure-transition-period": "eviction_pressure_transition_period",
    "eviction-soft": "eviction_soft",
    "eviction-soft-grace-period": "eviction_soft_grace_period",
    "fail-swap-on": "fail_swap_on",
    "feature-gates": "feature_gates",
    "healthz-bind-address": "healthz_bind_address",
    "healthz-port": "healthz_port",
    "image-gc-high-threshold": "image_gc_high_threshold_percent",
    "image-gc-low-threshold": "image_gc_low_threshold_percent",
    "image-pull-progress-deadline": "image_pull_progress_deadline",
    "kube-reserved": "kube_reserved",
    "memory-manager-policy": "memory_manager_policy",
    "make-iptables-util-chains": "make_iptables_util_chains",
    "max-pods": "max_pods",
    "minimum-image-ttl-duration": "image_minimum_gc_age",
    "node-labels": "node_labels",
    "node-status-update-frequency": "node_status_update_frequency",
    "pod-infra-container-image": "pod_infra_image",
    "pods-per-core": "pods_per_core",
    "port": "port",
    "provider-id": "provider_id",
    "register-schedulable": "register_schedulable",
    "register-with-taints": "register_with_taints",
    "registry-burst": "registry_burst",
    "registry-qps": "registry_pull_qps",
    "reserved-cpus": "reserved_system_cpus",
    "resolv-conf": "resolv_conf",
    "serialize-image-pulls": "serialize_image_pulls",
    "sync-frequency": "sync_frequency",
    "system-reserved": "system_reserved",
    "topology-manager-policy": "topology_manager_policy",
    "topology-manager-scope": "topology_manager_scope",
    "windows-priorityclass": "windows_priorityclass",
}
_PATHS: Final = {"pod-manifest-path": "static_pod_path", "root-dir": "root_dir"}
_ELSEWHERE: Final = frozenset(
    (
        "allow-privileged",
        "cni-bin-dir",
        "cni-conf-dir",
        "config",
        "config-dir",
        "container-log-max-size",
        _RUNTIME_FLAG,
        "container-runtime-endpoint",
        "hairpin-mode",
        "help",
        "hostname-override",
        "image-credential-provider-bin-dir",
        "image-credential-provider-config",
        "kubeconfig",
        "network-plugin",
        "node-ip",
        "service",
        "version",
        "windows-service",
    )
)
# The flags above that are not part of the configuration file; the others are deprecated in favour
# of the file.
_FLAGS_ONLY: Final = frozenset(
    (
        "image-pull-progress-deadline",
        "node-labels",
        "pod-infra-container-image",
        "register-with-taints",
        "root-dir",
        "windows-priorityclass",
    )
)
_DEPRECATED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        {*_FIELDS, *_PATHS, "container-log-max-size", "hairpin-mode"} - _FLAGS_ONLY, _IN_THE_FILE
    ),
    "allow-privileged": "it is the document's, and kubelets since 1.15 do not have it; nothing changes",
    "register-schedulable": "will be removed in a future version",
    "redirect-container-streaming": "Container streaming redirection has been removed from the kubelet as of v1.20, and this "
    "flag will be removed in v1.22",
}
_EFFECTIVE: Final = frozenset((*_FIELDS, *_PATHS, *_ELSEWHERE, *klog.TABLE))
HAIRPIN: Final = ("none", "hairpin-veth", "promiscuous-bridge")


@dataclass(frozen=True, slots=True)
class KubeletFlags:
    """The settings of a command line that are not in the kubelet's configuration."""

    logging: klog.KlogSettings
    service: bool = False
    help: bool = False
    version: bool = False
    kubeconfig: str = ""
    config_file: str = ""
    config_dir: str = ""
    runtime: str = "docker"
    endpoint: str = ""
    network_plugin: str = ""
    cni_bin_dir: str = "/opt/cni/bin"
    cni_conf_dir: str = "/etc/cni/net.d"
    deprecated: tuple[str, ...] = ()  # warnings about flags, printed before anything else
    unused: tuple[str, ...] = ()  # flags without an effect on a simulated node


class UnknownCommandError(FlagError):
    """The command line has a word that is not a flag."""

    def __init__(self, word: str) -> None:
        super().__init__(f"unknown command: {word}")
        self.word = word


@cache
def kubelet_flag_table(release: tuple[int, int], *, windows: bool = True) -> Table:
    """The flags that the kubelet of a release has, as its help lists them."""
    return {
        name: kind
        for name, kind in TABLE.items()
        if kubelet_accepts(Release(*release), name) and (windows or name not in _WINDOWS_ONLY)
    }


@cache
def _accepted(release: tuple[int, int], *, windows: bool) -> Table:
    table = kubelet_flag_table(release, windows=windows)
    if not windows or not has_dockershim(release):
        return table
    return {**table, **_OF_THE_DOCUMENTS}


def refused_flags(release: tuple[int, int]) -> frozenset[str]:
    """The flags of other releases and of the documentation that a Windows kubelet refuses."""
    return frozenset({*TABLE, *_OF_THE_DOCUMENTS} - {*_accepted(release, windows=True)})


def has_dockershim(release: tuple[int, int]) -> bool:
    return kubelet_accepts(Release(*release), "network-plugin")


def parse_kubelet_flags(
    argv: Sequence[str], release: tuple[int, int] = (1, 20), *, windows: bool = True
) -> ParsedFlags:
    """Raises FlagError."""
    parsed = parse_pflag(_accepted(release, windows=windows), argv)
    if parsed.arguments:
        raise UnknownCommandError(parsed.arguments[0])
    for spelling, name in _DOCUMENT_SPELLINGS.items():
        if spelling in parsed.values:
            value, text = parsed.values.pop(spelling), parsed.texts.pop(spelling)
            parsed.values[name], parsed.texts[name] = value, text
    return parsed


def kubelet_flags(parsed: ParsedFlags, release: tuple[int, int] = (1, 20)) -> KubeletFlags:
    get = parsed.get
    usual = "docker" if has_dockershim(release) else "remote"
    warnings = {name: _deprecation(release, name) for name in parsed.texts}
    return KubeletFlags(
        logging=klog.logging_of(parsed),
        service=get("windows-service", False) or get("service", False),
        help=get("help", False),
        version=get("version", "false") != "false",
        kubeconfig=get("kubeconfig", ""),
        config_file=get("config", ""),
        config_dir=get("config-dir", ""),
        runtime=get(_RUNTIME_FLAG, usual),
        endpoint=get("container-runtime-endpoint", ""),
        network_plugin=get("network-plugin", ""),
        cni_bin_dir=get("cni-bin-dir", "/opt/cni/bin"),
        cni_conf_dir=get("cni-conf-dir", "/etc/cni/net.d"),
        deprecated=tuple(
            f"Flag --{name} has been deprecated, {text}" for name, text in warnings.items() if text
        ),
        unused=tuple(name for name in parsed.texts if name not in _EFFECTIVE),
    )


def _deprecation(release: tuple[int, int], name: str) -> str:
    return deprecated_flag_text(Release(*release), name) or _DEPRECATED.get(name, "")


def kubelet_config_from_flags(
    parsed: ParsedFlags, base: KubeletConfig, path: Callable[[str], str]
) -> KubeletConfig:
    """`base` has the values without a flag: version, the machine's name and addresses. `path`
    converts a path to one of the machine. Raises FlagError with the reason why the kubelet would
    refuse the flags; checks that depend on the operating system are elsewhere.
    """
    values: dict[str, Any] = {
        field: parsed.values[name] for name, field in _FIELDS.items() if name in parsed.values
    }
    values |= {
        field: path(parsed.values[name]) for name, field in _PATHS.items() if name in parsed.values
    }
    if parsed.values.get("hostname-override"):
        name = parsed.values["hostname-override"].strip().lower()
        if not name:
            raise FlagError("failed to run Kubelet: empty hostname is invalid")
        values["node_name"] = name
    addresses = [part.strip() for part in str(parsed.get("node-ip", "")).split(",") if part.strip()]
    if addresses:
        values["node_ip"], values["secondary_node_ip"] = (*addresses, "")[:2]
    if "container-log-max-size" in parsed.values:
        try:
            values["container_log_max_size"] = quantity(
                parsed.values["container-log-max-size"]
            ).value()
        except QuantityError as problem:
            raise FlagError(
                f"failed to run Kubelet: failed to parse container log max size: {problem}"
            ) from None
    hairpin = parsed.get("hairpin-mode", "promiscuous-bridge")
    if hairpin not in HAIRPIN:
        options = ", ".join(go_quote(mode) for mode in HAIRPIN[:2])
        raise FlagError(
            f"invalid configuration: option {go_quote(hairpin)} specified for hairpinMode "
            "(--hairpin-mode). "
            f"Valid options are {options} or {go_quote(HAIRPIN[2])}"
        )
    return replace(base, **values)
