"""kube-proxy's settings: KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1) or flags,
validated like kube-proxy 1.20.

With a file, all flags except --hostname-override are ignored. Settings without an equivalent here
(IPVS, conntrack sizes) are accepted and ignored. This module also selects a node's proxy mode; the
modes are implemented elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final, Literal

from transom.kit.durations import DurationError, format_duration, parse_duration
from transom.kit.ip_addresses import is_ip_address, is_ip_network
from transom.kit.lazy_dataclass import dataclass
from transom.machinery import goyaml
from transom.machinery.field import FieldError
from transom.machinery.releases import Release as KubernetesRelease
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.kube_proxy import proxy_has
from transom.proxy.winkernel.options import WinkernelOptions
from transom.windows.records import Release
from transom.windows.releases import DEFAULT

log = logging.getLogger("transom.proxy")

Os = Literal["linux", "windows"]
Mode = Literal["userspace", "iptables", "ipvs", "kernelspace"]
API_VERSION: Final = "kubeproxy.config.k8s.io/v1alpha1"
KIND: Final = "KubeProxyConfiguration"
_ROOT: Final = "KubeProxyConfiguration"


class ProxyConfigError(Exception):
    """kube-proxy does not start; the text is its message."""


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    mode: str = ""
    hostname_override: str = ""
    kubeconfig: str = ""
    bind_address: str = "0.0.0.0"
    healthz_bind_address: str = "0.0.0.0:10256"
    metrics_bind_address: str = "127.0.0.1:10249"
    cluster_cidr: str = ""
    sync_period: float = 30.0  # of iptables, and of all modes on Windows
    min_sync_period: float = 1.0
    masquerade_all: bool = False
    masquerade_bit: int = 14
    udp_idle_timeout: float = 0.25
    config_sync_period: float = 900.0
    node_port_addresses: tuple[str, ...] = ()
    gates: Mapping[str, bool] = field(default_factory=dict)
    network_name: str = ""  # of winkernel, like the next two
    source_vip: str = ""
    enable_dsr: bool = False
    root_endpoint: str = "cbr0"
    forward_health_checks: bool = False
    run_as_service: bool = False

    def winkernel(
        self,
        environment: Mapping[str, str],
        *,
        node_ip: str,
        release: Release = DEFAULT,
        ipv6: bool = False,
    ) -> WinkernelOptions:
        healthz = self.healthz_bind_address.rpartition(":")[2]
        return WinkernelOptions(
            network_name=self.network_name,
            environment=environment,
            source_vip=self.source_vip,
            enable_dsr=self.enable_dsr,
            root_endpoint=self.root_endpoint,
            forward_health_checks=self.forward_health_checks,
            healthz_port=int(healthz) if healthz.isdigit() else 0,
            gates=self.gates,
            release=release,
            node_ip=node_ip,
            cluster_cidr=self.cluster_cidr,
            sync_period=self.sync_period,
            min_sync_period=self.min_sync_period,
            ipv6=ipv6,
        )

    def document(self) -> dict[str, Any]:
        """As shown by /configz and written by --write-config-to."""
        out: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
        for path, (name, kind) in _FIELDS.items():
            at = out
            *above, last = path.split(".")
            for part in above:
                at = at.setdefault(part, {})
            value = getattr(self, name)
            at[last] = (
                format_duration(value) if kind is float else list(value) if kind is tuple else value
            )
        return out


# The target and type of each field of the file; float stands for a duration, tuple for a list of
# strings.
_FIELDS: Final[dict[str, tuple[str, type]]] = {
    "bindAddress": ("bind_address", str),
    "clientConnection.kubeconfig": ("kubeconfig", str),
    "clusterCIDR": ("cluster_cidr", str),
    "configSyncPeriod": ("config_sync_period", float),
    "featureGates": ("gates", dict),
    "healthzBindAddress": ("healthz_bind_address", str),
    "hostnameOverride": ("hostname_override", str),
    "iptables.masqueradeAll": ("masquerade_all", bool),
    "iptables.masqueradeBit": ("masquerade_bit", int),
    "iptables.minSyncPeriod": ("min_sync_period", float),
    "iptables.syncPeriod": ("sync_period", float),
    "metricsBindAddress": ("metrics_bind_address", str),
    "mode": ("mode", str),
    "nodePortAddresses": ("node_port_addresses", tuple),
    "udpIdleTimeout": ("udp_idle_timeout", float),
    "winkernel.enableDSR": ("enable_dsr", bool),
    "winkernel.forwardHealthCheckVip": ("forward_health_checks", bool),
    "winkernel.networkName": ("network_name", str),
    "winkernel.rootHnsEndpointName": ("root_endpoint", str),
    "windowsRunAsService": ("run_as_service", bool),
    "winkernel.sourceVip": ("source_vip", str),
}
# Fields of kube-proxy without an effect here.
_TAKEN: Final = frozenset(
    {
        "apiVersion",
        "kind",
        "bindAddressHardFail",
        "conntrack",
        "detectLocalMode",
        "enableProfiling",
        "ipvs",
        "oomScoreAdj",
        "portRange",
        "showHiddenMetricsForVersion",
    }
)
_CLIENT: Final = frozenset({"acceptContentTypes", "burst", "contentType", "qps"})
FLAGS: Final[dict[str, tuple[str, type]]] = {
    "bind-address": ("bind_address", str),
    "cluster-cidr": ("cluster_cidr", str),
    "config-sync-period": ("config_sync_period", float),
    "enable-dsr": ("enable_dsr", bool),
    "feature-gates": ("gates", dict),
    "forward-healthcheck-vip": ("forward_health_checks", bool),
    "healthz-bind-address": ("healthz_bind_address", str),
    "hostname-override": ("hostname_override", str),
    "iptables-masquerade-bit": ("masquerade_bit", int),
    "iptables-min-sync-period": ("min_sync_period", float),
    "iptables-sync-period": ("sync_period", float),
    "kubeconfig": ("kubeconfig", str),
    "masquerade-all": ("masquerade_all", bool),
    "metrics-bind-address": ("metrics_bind_address", str),
    "network-name": ("network_name", str),
    "nodeport-addresses": ("node_port_addresses", tuple),
    "proxy-mode": ("mode", str),
    "root-hnsendpoint-name": ("root_endpoint", str),
    "source-vip": ("source_vip", str),
    "udp-timeout": ("udp_idle_timeout", float),
}


# ---- reading ----


def load_proxy_config(path: Path) -> ProxyConfig:
    try:
        document = goyaml.load_yaml(path.read_bytes())
    except (OSError, goyaml.YamlError) as problem:
        raise ProxyConfigError(f"failed complete: {problem}") from problem
    return read_proxy_config(document)


def read_proxy_config(document: Any) -> ProxyConfig:
    """Parses the content of a configuration file. An unknown field is logged, and is not an
    error.
    """
    if not isinstance(document, dict):
        raise ProxyConfigError(
            "failed complete: couldn't get version/kind; json parse error: not an object"
        )
    if (document.get("apiVersion"), document.get("kind")) != (API_VERSION, KIND):
        raise ProxyConfigError(
            f'failed complete: no kind "{document.get("kind", "")}" is registered for version '
            f'"{document.get("apiVersion", "")}" in scheme '
            '"k8s.io/kubernetes/pkg/proxy/apis/config/scheme/scheme.go:29"'
        )
    values: dict[str, Any] = {}
    for path, value in _flat(document):
        if path in _FIELDS:
            name, kind = _FIELDS[path]
            if value not in (None, "", 0, {}, []):  # an empty value is the default
                values[name] = _typed(path, value, kind)
        elif (
            path.partition(".")[0] not in _TAKEN
            and path.removeprefix("clientConnection.") not in _CLIENT
        ):
            log.warning(
                (
                    "using lenient decoding as strict decoding failed: strict decoder error: "
                    'unknown field "%s"'
                ),
                path,
            )
    return ProxyConfig(**_completed(values))


def proxy_config_from_flags(flags: Mapping[str, str], file: Path | None = None) -> ProxyConfig:
    """Flags by name, without dashes; with a file only --hostname-override is used."""
    override = flags.get("hostname-override", "")
    if override and not override.strip():
        raise ProxyConfigError("failed complete: empty hostname-override is invalid")
    if file is not None:
        config = load_proxy_config(file)
        return replace(config, hostname_override=override.strip().lower()) if override else config
    values: dict[str, Any] = {}
    for flag, value in flags.items():
        name, kind = FLAGS[flag]
        values[name] = _from_text(flag, value, kind)
    values["hostname_override"] = override.strip().lower()
    return ProxyConfig(**_completed(values))


def _flat(document: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = []
    for name, value in document.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and path != "featureGates" and name not in _TAKEN:
            out += _flat(value, f"{path}.")
        else:
            out.append((path, value))
    return out


def _typed(path: str, value: Any, kind: type) -> Any:
    if kind is float:
        return _seconds(path, value)
    wanted: Any = list if kind is tuple else kind
    if not isinstance(value, wanted) or (kind is int and isinstance(value, bool)):
        raise ProxyConfigError(
            f"failed complete: json: cannot unmarshal {type(value).__name__} into field {path}"
        )
    return tuple(str(each) for each in value) if kind is tuple else value


def _from_text(flag: str, text: str, kind: type) -> Any:
    try:
        if kind is bool:
            return {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}[
                text.lower()
            ]
        if kind is int:
            return int(text)
        if kind is float:
            return _seconds(flag, text)
        if kind is tuple:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if kind is dict:
            return _gates(text)
    except (KeyError, ValueError) as problem:
        raise ProxyConfigError(f'invalid argument "{text}" for "--{flag}" flag') from problem
    return text


def _gates(text: str) -> dict[str, bool]:
    gates = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = pair.partition("=")
        gates[name.strip()] = {"true": True, "false": False}[value.strip().lower()]
    return gates


def _seconds(path: str, value: Any) -> float:
    try:
        return parse_duration(str(value))
    except DurationError as error:
        raise ProxyConfigError(f"failed complete: {error} of {path}") from error


def _completed(values: dict[str, Any]) -> dict[str, Any]:
    """Adds the default ports to the serving addresses, which follow the IP family of the bind
    address.
    """
    six = ":" in values.get("bind_address", "")
    for name, port, usual in (
        ("healthz_bind_address", 10256, "[::]" if six else "0.0.0.0"),
        ("metrics_bind_address", 10249, "[::1]" if six else "127.0.0.1"),
    ):
        given = values.get(name, "")
        if not given:
            values[name] = f"{usual}:{port}"
        elif is_ip_address(given):
            values[name] = f"[{given}]:{port}" if ":" in given else f"{given}:{port}"
    return values


# ---- checks ----


def _modes(os: Os, release: Release, gates: Mapping[str, bool]) -> tuple[list[str], str]:
    """The modes of a release, and the text about the usual one."""
    if os == "windows":
        if proxy_has(release, "NoUserspaceMode"):
            return ["kernelspace"], "most-available proxy [currently 'kernelspace']"
        later = (
            "(will be 'kernelspace' in a future release)"
            if proxy_has(release, "KernelspaceAnnounced")
            else ""
        )
        return ["kernelspace", "userspace"], f"most-available proxy [currently userspace{later}]"
    modes = ["iptables", "ipvs"]
    features = FeatureSet(KubernetesRelease(*release), gates)
    if proxy_has(release, "NftablesMode") and features.enabled("NFTablesProxyMode"):
        modes.append("nftables")
    if not proxy_has(release, "NoUserspaceMode"):
        modes.append("userspace")
    return modes, "best-available proxy [currently iptables]"


def usual_mode(os: Os, release: Release) -> str:
    """The mode of a kube-proxy that names none."""
    if os == "linux":
        return "iptables"
    return "kernelspace" if proxy_has(release, "NoUserspaceMode") else "userspace"


def validate_proxy_config(
    config: ProxyConfig, os: Os, release: Release = DEFAULT
) -> list[FieldError]:
    errors: list[FieldError] = []

    def invalid(where: str, value: Any, text: str) -> None:
        errors.append(FieldError("Invalid", f"{_ROOT}.{where}", value, text))

    tables = "KubeProxyIPTablesConfiguration"
    if not 0 <= config.masquerade_bit <= 31:
        invalid(
            f"{tables}.MasqueradeBit", config.masquerade_bit, "must be within the range [0, 31]"
        )
    if config.sync_period <= 0:
        invalid(
            f"{tables}.SyncPeriod", format_duration(config.sync_period), "must be greater than 0"
        )
    if config.min_sync_period > config.sync_period:
        text = f"must be greater than or equal to {_ROOT}.{tables}.MinSyncPeriod"
        invalid(f"{tables}.SyncPeriod", format_duration(config.min_sync_period), text)
    modes, usual = _modes(os, release, config.gates)
    comma = ", " if proxy_has(release, "SpacedModeLists") else ","
    if config.mode and config.mode not in modes:
        invalid(
            "Mode.ProxyMode",
            config.mode,
            f"must be {comma.join(modes)} or blank (blank means the {usual})",
        )
    for where, value in (
        ("UDPIdleTimeout", config.udp_idle_timeout),
        ("ConfigSyncPeriod", config.config_sync_period),
    ):
        if value <= 0:
            invalid(where, format_duration(value), "must be greater than 0")
    if not is_ip_address(config.bind_address):
        invalid(
            "BindAddress",
            config.bind_address,
            "not a valid textual representation of an IP address",
        )
    _check_host_port("HealthzBindAddress", config.healthz_bind_address, invalid)
    _check_host_port("MetricsBindAddress", config.metrics_bind_address, invalid)
    if config.cluster_cidr:
        _check_cidrs(config, invalid)
    for index, block in enumerate(config.node_port_addresses):
        if not _is_network(block):
            invalid(f"NodePortAddresses[{index}]", block, "must be a valid CIDR")
    return errors


def check_proxy_config(config: ProxyConfig, os: Os, release: Release = DEFAULT) -> None:
    errors = validate_proxy_config(config, os, release)
    if errors:
        texts = [str(error) for error in errors]
        raise ProxyConfigError(
            f"failed validate: {texts[0] if len(texts) == 1 else '[' + ', '.join(texts) + ']'}"
        )


def host_port(text: str) -> tuple[str, int]:
    """The address and port of a validated configuration."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _check_host_port(where: str, value: str, invalid: Any) -> None:
    host, found, port = value.rpartition(":")
    if not found or (":" in host and not host.startswith("[")):
        invalid(where, value, "must be IP:port")
        return
    if not is_ip_address(host.strip("[]")):
        invalid(where, host.strip("[]"), "must be a valid IP")
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        invalid(where, port, "must be a valid port")


def _check_cidrs(config: ProxyConfig, invalid: Any) -> None:
    cidrs = config.cluster_cidr.split(",")
    dual = config.gates.get("IPv6DualStack", False)
    example = "(e.g. 10.100.0.0/16,fde4:8dba:82e1::/48)"
    text = ""
    if dual and len(cidrs) > 2:
        text = f"only one CIDR allowed or a valid DualStack CIDR {example}"
    elif dual and len(cidrs) == 2:
        if not all(map(_is_network, cidrs)) or len({":" in cidr for cidr in cidrs}) < 2:
            text = f"must be a valid DualStack CIDR {example}"
    elif len(cidrs) > 1:
        text = "only one CIDR allowed (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)"
    elif not _is_network(cidrs[0]):
        text = "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)"
    if text:
        invalid("ClusterCIDR", config.cluster_cidr, text)


def _is_network(text: str) -> bool:
    return "/" in text and is_ip_network(text)


# ---- modes ----


def windows_mode(wanted: str, *, compatible: bool = True) -> Mode:
    """`compatible`: the host networking service lists its policies. The kernel mode is used only if
    requested.
    """
    if wanted == "kernelspace":
        if compatible:
            log.info("Using Kernelspace Proxier.")
            return "kernelspace"
        log.error(
            "Can't determine whether to use windows kernel proxy, using userspace proxier: %s",
            "Windows kernel is not compatible for Kernel mode",
        )
    log.info("Using userspace Proxier.")
    return "userspace"


def linux_mode(wanted: str) -> Mode:
    """All of kube-proxy's Linux modes result in the same rules here: those of iptables, written as
    nftables.
    """
    if wanted not in ("userspace", "iptables", "ipvs", "nftables"):
        log.warning('Unknown proxy mode "%s", assuming iptables proxy', wanted)
    elif wanted != "iptables":
        log.warning("the mode %s is not here; using the rules of iptables", wanted)
    log.info("Using iptables Proxier.")
    return "iptables"
