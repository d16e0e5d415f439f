"""Builds a cluster's configuration and nodes from the options of `transom up` and the cluster file,
with all checks that need no running cluster.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING

from transom.cluster.access import check_access, choose_access
from transom.cluster.cluster_file import ClusterFile, WindowsOptions, read_cluster_file
from transom.cluster.config import ClusterConfig, check_cluster_name, load_nodes
from transom.cluster.protection import Protection
from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import dataclass
from transom.kit.user_errors import EXIT_USAGE, UserError
from transom.machinery.releases import features, has_tables, parse_release
from transom.machinery.releases.features import Gate
from transom.machinery.releases.release import NEWEST
from transom.node import network_settings
from transom.node.network_settings import NetworkOptions, NetworkSettings
from transom.node.runtimes import check_engine, choose_engines
from transom.node.settings import (
    DEFAULT_NAME,
    DEFAULT_POD_CIDR,
    DEFAULT_RELEASE,
    ENGINES,
    RELEASES,
    cidr_of_family,
    name_option,
    split_cidrs,
)
from transom.node.spec import NodeSpec, add_control_planes, demo_specs, specs_from_file
from transom.node.support_warnings import node_warnings
from transom.windows.policy import UnknownRecord, WarningPolicy
from transom.windows.policy import parse_record_patterns as parse_policy

if TYPE_CHECKING:
    from transom.machinery import kinds
    from transom.machinery.releases import served
    from transom.machinery.validation import names
    from transom.node import network_checks
    from transom.store.etcd import client as etcd_client
else:
    kinds = lazy_import("transom.machinery.kinds")
    served = lazy_import("transom.machinery.releases.served")
    names = lazy_import("transom.machinery.validation.names")
    network_checks = lazy_import("transom.node.network_checks")
    etcd_client = lazy_import("transom.store.etcd.client")

_NODES_OF_DEFAULT_RANGE = 250  # each node gets a /24 of it
LARGE_POD_CIDR = "10.128.0.0/9"
DUAL_STACK_GATE = "IPv6DualStack"
# IPv6: unique local addresses; for external addresses, the documentation and benchmarking ranges.
IPV6_POD_CIDR = "fd00:10:244::/56"  # each node gets a /64 of it
LARGE_IPV6_POD_CIDR = "fd00:10:128::/48"
IPV6_SERVICE_CIDR = "fd00:10:96::/112"
IPV6_NODE_CIDR = "fd00:172:20::/64"
IPV6_LOAD_BALANCER_CIDR = "2001:2::/112"
_LARGEST_SERVICES = {
    4: 12,
    6: 108,
}  # the shortest prefix: the allocator does not support larger ranges
_NODE_MASK, _MOST_BITS = {4: 24, 6: 64}, 16
_SMALLEST_SERVICES = {4: 28, 6: 124}  # the tenth address is the name server's
_RANGE_FIELDS = {"pod_cidr": "podCIDR", "service_cidr": "serviceCIDR"}
_OTHER_RANGES = ("node_cidr", "load_balancer_cidr")  # no options, but part of what is saved
_DUAL_STACK_HINT = (
    "use --dual-stack, or set dualStack: true in the part network of the cluster file"
)
# The feature gates that clusters of 1.20 and older support, and what they enable. Later releases
# know those of Kubernetes.
KNOWN_FEATURE_GATES = {
    "AnyVolumeDataSource": "PersistentVolumeClaims can use any kind of data source",
    "CSIServiceAccountToken": "CSI drivers can request service account tokens",
    "CSIStorageCapacity": "CSI drivers can publish their capacity",
    "HPAContainerMetrics": "autoscalers can use the resources of one container",
    "IPv6DualStack": "nodes can have a pod CIDR of each IP family",
    "TTLAfterFinished": "finished Jobs are deleted after ttlSecondsAfterFinished",
}
_WITHOUT_GATE_TABLE = tuple(name for name in RELEASES if not has_tables(parse_release(name)))
_GATE_VALUES = {"true": True, "false": False}

ReportProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """By default the nodes of the last start, or the demo nodes."""

    linux: int | None = None
    windows: int | None = None
    build: tuple[int, int] | None = None  # and its revision, 0 for the default one
    taint_windows: bool = False
    file: Path | None = None

    @property
    def given(self) -> bool:
        return self != NodeOptions()


@dataclass(frozen=True, slots=True)
class ServerSetOptions:
    """One of several API servers, or all of them on this machine."""

    servers: int | None = None
    bind_address: str | None = None
    advertise_address: str | None = None
    cert_dir: Path | None = None
    cert_extra_sans: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class TemporaryOptions:
    """A cluster for the duration of a test. `home` is the folder for its files."""

    home: str = ""
    in_memory: bool = False
    virtual_time: bool = False


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The options of `transom up`. None keeps the value of the last start, or the default."""

    name: str = DEFAULT_NAME
    port: int | None = None
    release: str | None = None
    nodes: bool | None = None
    kubeconfig: Path | None = None
    protection: Protection = field(default_factory=Protection)
    feature_gates: tuple[str, ...] | None = None
    runtime_config: tuple[str, ...] | None = None
    machines: NodeOptions = field(default_factory=NodeOptions)
    windows: WindowsOptions = field(default_factory=WindowsOptions)
    network: NetworkOptions = field(default_factory=NetworkOptions)
    engine: str | None = None
    loop_budget: str | None = None
    store: str | None = None  # etcd://..., or sqlite
    server_set: ServerSetOptions = field(default_factory=ServerSetOptions)
    temporary: TemporaryOptions | None = None
    virtual_time: bool | None = None
    access: Mapping[str, str] = field(
        default_factory=dict
    )  # flags of authentication and authorization


def choose_config(
    before: ClusterConfig | None,
    options: UpOptions,
    file: ClusterFile,
    kubeconfig_file: str,
    report_progress: ReportProgress,
) -> tuple[ClusterConfig, list[NodeSpec] | None]:
    """The configuration, and the requested nodes if they differ from those of the last start."""
    try:
        config, machines = _apply_options(before, options, file, kubeconfig_file)
    except UserError as error:
        if options.machines.file is None and error.code == 1:  # then the command line is wrong
            error.code = EXIT_USAGE
        raise
    _check_families(before, config)
    if not config.no_nodes:
        config = _check_engine(config, machines, report_progress)
        _check_network(config, machines, report_progress)
        for warning in node_warnings(config, machines or ()):
            report_progress(f"note: {warning}")
    return config, machines


def _apply_options(
    before: ClusterConfig | None, options: UpOptions, file: ClusterFile, kubeconfig_file: str
) -> tuple[ClusterConfig, list[NodeSpec] | None]:
    config = before or ClusterConfig(name=check_cluster_name(options.name))
    if options.temporary is not None:
        config = replace(config, **asdict(options.temporary))
    release = options.release or file.release
    if release is not None:
        if release not in RELEASES:
            raise UserError(f"unknown release {release!r}", f"choose one of {', '.join(RELEASES)}")
        config = replace(config, release=release)
    if options.port is not None:
        config = replace(config, port=options.port)
    if options.nodes is not None:
        config = replace(config, no_nodes=not options.nodes)
    if options.loop_budget is not None:
        config = replace(config, loop_budget=options.loop_budget)
    if options.store is not None:
        config = replace(config, store=_choose_store(options.store))
    if options.virtual_time is not None:
        config = replace(config, virtual_time=options.virtual_time)
    config = _choose_servers(before, config, options.server_set)
    if config.virtual_time and config.store:
        raise UserError(
            "virtual time needs a cluster in one process",
            "use --virtual-time without --store and --servers",
            EXIT_USAGE,
        )
    config = _choose_addresses(config, options.server_set)
    feature_gates = (
        options.feature_gates if options.feature_gates is not None else file.feature_gates
    )
    if feature_gates is not None:
        config = replace(config, feature_gates=feature_gates)
    if options.runtime_config is not None:
        config = replace(config, runtime_config=options.runtime_config)
    gates = parse_feature_gates(config.feature_gates, config.release)
    parse_runtime_config(config.runtime_config)
    config = choose_access(config, file.api_server, options.access)
    check_access(config.access_flags, config.release, gates)
    config = replace(
        config,
        kubeconfig=kubeconfig_file,
        pod_cidr=file.pod_cidr or config.pod_cidr,
        service_cidr=file.service_cidr or config.service_cidr,
        images=str(file.images or config.images),
    )
    config = _engine(config, options.engine or file.engine)
    config = apply_windows_options(config, options.windows, file.windows)
    config = replace(
        config,
        network=network_settings.choose_network_settings(
            config.network, options.network, file.network
        ),
    )
    config = enable_dual_stack(config)
    machines = _choose_nodes(before, config, options.machines, file)
    large = machines is not None and len(machines) > _NODES_OF_DEFAULT_RANGE
    if large and config.pod_cidr == DEFAULT_POD_CIDR:
        config = replace(config, pod_cidr=LARGE_POD_CIDR)
    return add_ipv6_ranges(config, large=large), machines


def _choose_store(wanted: str) -> str:
    if wanted == "sqlite":
        return ""
    try:
        etcd_client.parse_etcd_address(wanted)
    except etcd_client.EtcdAddressError as problem:
        raise UserError(
            f"--store: {problem}", "use etcd://HOST:PORT[,HOST:PORT...][/PREFIX], or sqlite"
        ) from problem
    return wanted


def _choose_servers(
    before: ClusterConfig | None, config: ClusterConfig, options: ServerSetOptions
) -> ClusterConfig:
    """One server may have a file; several share an etcd, and their number may change."""
    wanted = config.servers if options.servers is None else options.servers
    wanted = 0 if wanted == 1 else wanted
    if before is not None and before.servers and config.store != before.store:
        raise UserError(
            f"the {before.servers} API servers of cluster {config.name!r} use another etcd",
            f"move its objects: transom migrate --to STORE{name_option(config.name)}",
        )
    has_own_store = before is not None and (not before.store or bool(before.etcd_ports))
    if before is not None and has_own_store and bool(wanted) != bool(before.servers):
        change = f"--servers {wanted}" if wanted else "--to sqlite"
        raise UserError(
            f"cluster {config.name!r} was created with {before.servers or 1} API servers",
            f"to change that: transom migrate {change}{name_option(config.name)}",
            EXIT_USAGE,
        )
    return replace(config, servers=wanted)


def _choose_addresses(config: ClusterConfig, options: ServerSetOptions) -> ClusterConfig:
    if options.bind_address is not None:
        _check_address("--bind-address", options.bind_address)
        config = replace(config, bind=options.bind_address)
    if options.advertise_address is not None:
        address = _check_address("--advertise-address", options.advertise_address)
        if address.is_loopback or address.is_unspecified:
            raise UserError(
                f"--advertise-address: {address} cannot be reached from other machines",
                "give an address of this machine that nodes and pods can reach",
            )
        config = replace(config, advertise_address=str(address))
    elif config.no_nodes and config.store and not config.advertise_address:
        bind = ipaddress.ip_address(config.bind)
        if not (bind.is_loopback or bind.is_unspecified):
            config = replace(config, advertise_address=config.bind)
    if options.cert_extra_sans is not None:
        found = tuple(_check_certificate_name(name) for name in options.cert_extra_sans if name)
        config = replace(config, cert_extra_sans=found)
    return config


def _check_certificate_name(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        if names.is_dns1123_subdomain(name.removeprefix("*.")):  # what is wrong with it
            raise UserError(
                f"--apiserver-cert-extra-sans: {name!r} is neither an IP address nor a DNS name",
                "use for example 10.0.0.10,api.example.com",
                EXIT_USAGE,
            ) from None
        return name


def _check_address(option: str, text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError as problem:
        raise UserError(f"{option}: {problem}", "write it as 10.0.0.1") from problem


def cluster_file(options: UpOptions) -> ClusterFile:
    file = options.machines.file
    return ClusterFile() if file is None else read_cluster_file(file)


def _choose_nodes(
    before: ClusterConfig | None, config: ClusterConfig, options: NodeOptions, file: ClusterFile
) -> list[NodeSpec] | None:
    """The nodes to start with, if they differ from those of the last start."""
    if config.no_nodes:
        return None
    counted = (options.linux, options.windows, options.build) != (None, None, None)
    if file.nodes is not None:
        if counted:
            raise UserError(
                "the cluster file already lists the nodes",
                "leave out --linux, --windows and --build",
            )
        return specs_from_file(config, file.nodes)
    known = load_nodes(config)
    if options.given or known is None:
        build, revision = options.build or (None, 0)
        return demo_specs(
            config,
            options.linux,
            options.windows,
            build,
            options.taint_windows,
            max(1, config.servers),
            revision,
        )
    if before is not None and config.servers > before.servers:
        return add_control_planes(config, known, config.servers)
    return None


def _check_families(before: ClusterConfig | None, config: ClusterConfig) -> None:
    """A node keeps the ranges it was assigned when it joined."""
    if before is not None and before.network.dual_stack != config.network.dual_stack:
        made, wanted = ("one family", "both families")[:: 1 if config.network.dual_stack else -1]
        raise UserError(
            f"cluster {config.name!r} was made for {made} of addresses",
            f"to use {wanted}, delete it first (transom delete), or create another cluster (--name)",
        )


def _engine(config: ClusterConfig, wanted: str | None) -> ClusterConfig:
    if wanted is not None and wanted not in ENGINES:
        raise UserError(f"unknown runtime {wanted!r}", f"choose one of {', '.join(ENGINES)}")
    return config if wanted is None else replace(config, engine=wanted)


def _check_engine(
    config: ClusterConfig, machines: list[NodeSpec] | None, report_progress: ReportProgress
) -> ClusterConfig:
    """Real containers need the kernel's data plane."""
    wanted = machines if machines is not None else load_nodes(config) or []
    chosen = choose_engines(config, wanted)
    for note in chosen.notes:
        report_progress(note)
    for node in wanted:
        check_engine(node, chosen.of(node))
    if any(chosen.of(node) == "oci" for node in wanted):
        report_progress(
            "note: real containers are processes of this machine, with control groups below "
            f"/transom/{config.name} and "
            f"mounts below {config.state}; transom down stops them, transom delete removes everything"
        )
        config = replace(config, network=replace(config.network, dataplane="kernel"))
    if config.network.dataplane == "kernel":
        report_progress(
            "note: the kernel data plane creates network namespaces on this machine and removes "
            "them with the cluster; it does not change nftables, routes and links of the machine "
            "itself"
        )
    return config


def _check_network(
    config: ClusterConfig, machines: list[NodeSpec] | None, report_progress: ReportProgress
) -> None:
    """The default network works with all nodes and needs no check."""
    wanted = machines if machines is not None else load_nodes(config) or []
    four = cidr_of_family(config.pod_cidr, 4) and cidr_of_family(config.service_cidr, 4)
    if config.network != NetworkSettings() or not four or any(node.network_mode for node in wanted):
        gates = parse_feature_gates(config.feature_gates, config.release)
        for warning in network_checks.check_network(config, gates, wanted):
            report_progress(f"note: {warning}")


# ---- feature gates ----


def parse_feature_gates(settings: Iterable[str], release: str = DEFAULT_RELEASE) -> dict[str, bool]:
    """Parses settings of the form `Name=true`; raises an error for a name that the release does not
    know, for a wrong value, and for a gate that it has locked.
    """
    out = {}
    for setting in settings:
        name, _, value = setting.strip().partition("=")
        gate = _find_gate(name, release)
        if value.lower() not in _GATE_VALUES:
            raise UserError(
                f"invalid value of {name}: {value!r}",
                f"write {name}=true or {name}=false",
                EXIT_USAGE,
            )
        out[name] = _GATE_VALUES[value.lower()]
        if gate is not None and gate.locked and out[name] is not gate.default:
            locked = str(gate.default).lower()
            raise UserError(
                f"cannot set feature gate {name} to {value.lower()}, feature is locked to {locked}",
                f"leave out {name}",
                EXIT_USAGE,
            )
    return out


def _find_gate(name: str, release: str) -> Gate | None:
    """The gate in a release with a table; raises UserError if the release does not know it."""
    if release in _WITHOUT_GATE_TABLE:
        if name not in KNOWN_FEATURE_GATES:
            raise UserError(
                f"unrecognized feature gate: {name}",
                f"known are: {', '.join(KNOWN_FEATURE_GATES)}",
                EXIT_USAGE,
            )
        return None
    gate = features.feature_gates(parse_release(release)).get(name)
    if gate is None:
        raise UserError(
            f"unrecognized feature gate: {name}",
            f"see the feature gates of Kubernetes {release}",
            EXIT_USAGE,
        )
    return gate


def _api_groups() -> set[str]:
    of_tables = {row.group for row in served.resource_rows(NEWEST)}
    return of_tables | {kind.group for kind in kinds.BY_KEY.values()}


_RUNTIME_NAMES = ("api/all", "api/ga", "api/beta", "api/alpha", "api/legacy", "api/v1")


def parse_runtime_config(settings: Iterable[str]) -> dict[str, bool]:
    """Parses settings of the form `batch/v1beta1=true` or `api/beta=true`; a name alone turns it
    on.
    """
    out = {}
    for setting in settings:
        name, equals, value = setting.strip().partition("=")
        if not name or (equals and value.lower() not in _GATE_VALUES):
            raise UserError(
                f"invalid runtime config: {setting!r}",
                "write GROUP/VERSION=true, GROUP/VERSION/RESOURCE=false or api/beta=true",
                EXIT_USAGE,
            )
        group = name.partition("/")[0]
        if name not in _RUNTIME_NAMES and group != "v1" and group not in _api_groups():
            raise UserError(
                f"unknown api groups {group}",
                "write GROUP/VERSION=true, GROUP/VERSION/RESOURCE=false or api/beta=true",
                EXIT_USAGE,
            )
        out[name] = _GATE_VALUES[value.lower()] if equals else True
    return out


# ---- dual stack ----


def enable_dual_stack(config: ClusterConfig) -> ClusterConfig:
    """Adds the feature gate that the address families need; raises UserError for conflicting
    options.
    """
    for name in _RANGE_FIELDS:
        _check_ranges(config, name)
    for name in _OTHER_RANGES:
        _parse_ranges(name, getattr(config, name))
    both = any(len(split_cidrs(getattr(config, name))) == 2 for name in _RANGE_FIELDS)
    known = parse_feature_gates(config.feature_gates, config.release)
    # the gate and ranges match kubeadm's
    dual = config.network.dual_stack or (both and known.get(DUAL_STACK_GATE, False))
    if both and not dual:
        raise UserError(
            "ranges of both IP families need dual stack, which is off for this cluster",
            _DUAL_STACK_HINT,
        )
    if not dual:
        return config
    if known.get(DUAL_STACK_GATE) is False:
        raise UserError(
            f"dual stack needs the feature gate {DUAL_STACK_GATE}, which is turned off",
            f"leave out {DUAL_STACK_GATE}=false",
        )
    if config.release in ("1.14", "1.15"):
        raise UserError(
            f"Kubernetes {config.release} has no dual stack", "choose a release from 1.16 on"
        )
    on = DUAL_STACK_GATE in known or features.is_enabled(
        parse_release(config.release), DUAL_STACK_GATE
    )
    gate = () if on else (f"{DUAL_STACK_GATE}=true",)
    return replace(
        config,
        network=replace(config.network, dual_stack=True),
        feature_gates=(*config.feature_gates, *gate),
    )


def add_ipv6_ranges(config: ClusterConfig, *, large: bool) -> ClusterConfig:
    """Adds ranges for both families if the cluster is dual-stack; larger ones for many nodes."""
    if not config.network.dual_stack:
        return config
    return replace(
        config,
        pod_cidr=_with_ipv6(config.pod_cidr, LARGE_IPV6_POD_CIDR if large else IPV6_POD_CIDR),
        service_cidr=_with_ipv6(config.service_cidr, IPV6_SERVICE_CIDR),
        node_cidr=_with_ipv6(config.node_cidr, IPV6_NODE_CIDR),
        load_balancer_cidr=_with_ipv6(config.load_balancer_cidr, IPV6_LOAD_BALANCER_CIDR),
    )


def _with_ipv6(ranges: str, other: str) -> str:
    return ranges if cidr_of_family(ranges, 6) else f"{ranges},{other}"


def _check_ranges(config: ClusterConfig, name: str) -> None:
    field = _RANGE_FIELDS[name]
    _check_sizes(field, name, _parse_ranges(field, getattr(config, name)))


def _parse_ranges(field: str, text: str) -> list[IPv4Network | IPv6Network]:
    networks: list[IPv4Network | IPv6Network] = []
    for part in split_cidrs(text):
        try:
            networks.append(ipaddress.ip_network(part))
        except ValueError as problem:
            raise UserError(
                f"{field}: {problem}", "write it as 10.1.0.0/16, or 10.1.0.0/16,fd00:1::/56"
            ) from problem
    versions = [network.version for network in networks]
    if len(versions) > 2 or len(set(versions)) != len(versions) or not versions:
        raise UserError(
            f"{field}: {text!r} must be one range, or one of each IP family",
            "for example 10.1.0.0/16,fd00:1::/56",
        )
    if versions == [6, 4]:
        raise UserError(
            f"{field}: the IPv4 range must come first",
            f"write {','.join(reversed(split_cidrs(text)))}",
        )
    return networks


def _check_sizes(field: str, name: str, networks: list[IPv4Network | IPv6Network]) -> None:
    for network in networks:
        version = network.version
        if name == "service_cidr" and network.prefixlen < _LARGEST_SERVICES[version]:
            raise UserError(
                f"{field}: {network} is too large; for {network.max_prefixlen}-bit "
                "addresses, the mask must be >= "
                f"{_LARGEST_SERVICES[version]}"
            )
        if name == "service_cidr" and network.prefixlen > _SMALLEST_SERVICES[version]:
            raise UserError(
                f"{field}: {network} is too small",
                f"the mask must be <= {_SMALLEST_SERVICES[version]}: the name server has the tenth "
                "address",
            )
        mask = _NODE_MASK[version]
        if (
            name == "pod_cidr"
            and not mask - (_MOST_BITS if version == 6 else mask) <= network.prefixlen <= mask
        ):
            why = "small" if network.prefixlen > mask else "large"
            raise UserError(f"{field}: {network} is too {why}: each node gets a /{mask} of it")


# ---- Windows ----


def apply_windows_options(
    config: ClusterConfig, wanted: WindowsOptions, file: WindowsOptions
) -> ClusterConfig:
    """Merges the given options into the configuration; options take precedence over the file."""
    warn = wanted.warn if wanted.warn is not None else file.warn
    if warn is not None:
        config = replace(config, warn_windows=warn)
    reject = wanted.reject if wanted.reject is not None else file.reject
    if reject is not None:
        try:
            config = replace(config, reject_windows=parse_policy(reject))
        except UnknownRecord as problem:
            raise UserError(str(problem), problem.hint, EXIT_USAGE) from problem
    return config


def windows_policy(config: ClusterConfig) -> WarningPolicy | None:
    """A control plane without nodes emits no warnings, unless it is configured to reject pods."""
    if config.no_nodes and not config.reject_windows:
        return None
    if not config.warn_windows and not config.reject_windows:
        return None
    return WarningPolicy(config.warn_windows, config.reject_windows)
