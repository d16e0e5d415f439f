"""Node specifications, from the options, the cluster file or `transom node add`. Pure data and its
checks; `node.pool` creates the nodes. Light to import.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from transom.kit.lazy import lazy_import, lazy_pattern
from transom.kit.lazy_dataclass import dataclass, replace
from transom.kit.user_errors import UserError
from transom.kubelet.configuration_fields import (
    configuration_settings,
    is_configuration_field,
)
from transom.machinery.quantity import parse_quantity
from transom.machinery.releases import Release, parse_release
from transom.machinery.releases.kubelet import kubelet_has, linux_pause_image, oldest_kubelet
from transom.machinery.releases.node_roles import (
    CONTROL_PLANE_LABELS,
    control_plane_labels,
    control_plane_taints,
)
from transom.node import spec_checks
from transom.node.settings import RELEASES, ClusterSettings
from transom.windows import builds, releases
from transom.windows.records import ALL_NETWORKS, Runtime

if TYPE_CHECKING:
    from transom.network import modes
else:
    modes = lazy_import("transom.network.modes")

NODE_BUILDS = tuple(number for number in builds.BUILDS if number >= 17763)  # that nodes are made of
RUNTIMES: tuple[Runtime, ...] = ("docker", "containerd")
PRIORITY_CLASSES = tuple(
    f"{name}_PRIORITY_CLASS"
    for name in ("IDLE", "BELOW_NORMAL", "NORMAL", "ABOVE_NORMAL", "HIGH", "REALTIME")
)
WINDOWS_TAINT = {"key": "os", "value": "windows", "effect": "NoSchedule"}
_NAME = lazy_pattern(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PROXY = lazy_pattern(r"https?://[^\s/]+/?")
_ADAPTER = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9 _-]{0,63}")
_MOST_NODES = 5000
SMALL_NODE_CPUS = 4  # CPU is reserved by default only on larger nodes
_SYSTEM_MEMORY = "2Gi"  # reserved by default on Windows nodes that have at least twice as much


@dataclass(frozen=True, slots=True)
class NodeSpec:
    name: str
    os: str = "linux"
    number: int = 0  # the index of its node address in the cluster's range
    build: int = 0  # of Windows; 0 on Linux
    revision: int = 0  # the patch level (UBR) of the build; 0 for the default one
    cpus: int = 4
    threads_per_core: int = 1
    numa_nodes: int = 1
    memory: str = "8Gi"
    disk: str = "100Gi"
    swap: str = "0"  # of Linux nodes
    engine: str = (
        ""  # what runs its containers: sim, oci, the address of a containerd; "" for the cluster's
    )
    runtime: str = ""
    runtime_version: str = ""
    kubelet_version: str = ""  # "" for the cluster's
    network_mode: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    system_reserved: Mapping[str, str] | None = (
        None  # None: complete_specs() fills in the default of the operating system
    )
    eviction_hard: Mapping[str, str] | None = None
    eviction_soft: Mapping[str, str] = field(default_factory=dict)
    eviction_soft_grace_period: Mapping[str, str] = field(default_factory=dict)
    image_gc_high: int = (
        0  # disk usage in percent that triggers image garbage collection; 0 for the default
    )
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    kubelet_config: Mapping[str, Any] = field(default_factory=dict)  # of KubeletConfiguration
    priority_class: str = ""
    pause_image: str = ""
    max_pods: int = 110
    static_pods: str = ""  # a folder of this machine
    volume_plugins: str = (
        ""  # a folder of this machine with FlexVolume drivers; "" for the cluster's own
    )
    adapter: str = ""  # the name of a Windows node's network adapter; "" for Ethernet
    # whether the virtual machine's adapter allows frames of pods (MAC spoofing)
    mac_spoofing: bool = True
    proxy: str = ""  # the proxy between the machine and registries
    user_namespaces: bool | None = (
        None  # whether pods of real containers have user namespaces; None: if possible
    )
    csi_proxy: bool = False  # whether csi-proxy is installed, which storage drivers need on Windows
    flex_drivers: bool = (
        False  # whether the FlexVolume drivers microsoft.com/smb.cmd and iscsi.cmd are installed
    )
    stopped: bool = False

    @property
    def windows(self) -> bool:
        return self.os == "windows"

    @property
    def control_plane(self) -> bool:
        return not self.windows and bool(CONTROL_PLANE_LABELS & self.labels.keys())


def is_control_plane(node: NodeSpec) -> bool:
    return not CONTROL_PLANE_LABELS.isdisjoint(node.labels)


def demo_specs(
    settings: ClusterSettings,
    linux: int | None,
    windows: int | None,
    build: int | None,
    taint: bool,
    control_planes: int = 1,
    revision: int = 0,
) -> list[NodeSpec]:
    """The nodes of `transom up`: a control-plane node for each API server, and by default one Linux
    and two Windows workers.
    """
    release = parse_release(settings.release)
    numbers = range(1, control_planes + 1)
    names = ["control-plane"] if control_planes == 1 else [f"control-plane-{i}" for i in numbers]
    nodes = [
        NodeSpec(name, labels=control_plane_labels(release), taints=control_plane_taints(release))
        for name in names
    ]
    nodes += [NodeSpec(f"linux-{i}") for i in range(1, (1 if linux is None else linux) + 1)]
    taints = (WINDOWS_TAINT,) if taint else ()
    for i in range(1, (2 if windows is None else windows) + 1):
        name = f"windows-{i}"
        nodes.append(
            NodeSpec(name, os="windows", build=build or 0, revision=revision, taints=taints)
        )
    return complete_specs(settings, nodes)


def add_control_planes(
    settings: ClusterSettings, nodes: Sequence[NodeSpec], servers: int
) -> list[NodeSpec]:
    """The nodes of a cluster that gets more API servers: one control-plane node for each of them."""
    release = parse_release(settings.release)
    names = {node.name for node in nodes}
    missing = servers - len(control_plane_nodes(nodes))
    free = (name for i in itertools.count(2) if (name := f"control-plane-{i}") not in names)
    added = [
        NodeSpec(name, labels=control_plane_labels(release), taints=control_plane_taints(release))
        for name in itertools.islice(free, max(missing, 0))
    ]
    return [*nodes, *complete_specs(settings, added, [node.number for node in nodes])]


def complete_specs(
    settings: ClusterSettings, nodes: Iterable[NodeSpec], taken: Iterable[int] = ()
) -> list[NodeSpec]:
    """Checks nodes and fills in defaults: numbers, runtimes, versions."""
    used = set(taken)
    out: list[NodeSpec] = []
    names: set[str] = set()
    free = 1
    for node in nodes:
        _check(settings, node)
        if node.name in names:
            raise UserError(
                f"two nodes have the name {node.name!r}", "each node needs a name of its own"
            )
        names.add(node.name)
        if not node.number:
            while free in used:
                free += 1
            node = replace(node, number=free)
            used.add(free)
        runtime = node.runtime or _usual_runtime(settings, node)
        version = node.runtime_version or releases.node_runtime_version(
            releases.parse_release_version(kubelet_version(settings, node)),
            "docker" if runtime == "docker" else "containerd",
            windows=node.windows,
        )
        out.append(
            replace(
                node,
                runtime=runtime,
                runtime_version=version,
                build=_usual_build(settings, node) if node.windows else 0,
                system_reserved=_system_reserved(node),
            )
        )
    if len(out) > _MOST_NODES:
        raise UserError(f"{len(out)} nodes are more than the {_MOST_NODES} a cluster can have")
    return out


def _system_reserved(node: NodeSpec) -> Mapping[str, str]:
    """The documentation's recommendation for Windows: 2 GB, and on larger nodes a share of the
    CPUs. The documentation's own manifests request whole CPUs, so a small node reserves none.
    """
    if node.system_reserved is not None:
        return node.system_reserved
    if (
        not node.windows
        or node.kube_reserved
        or parse_quantity(node.memory).value() < 2 * parse_quantity(_SYSTEM_MEMORY).value()
    ):
        return {}
    cpu = {"cpu": recommended_cpu(node.cpus)} if node.cpus > SMALL_NODE_CPUS else {}
    return {**cpu, "memory": _SYSTEM_MEMORY}


def recommended_cpu(cpus: int) -> str:
    """The CPU that a Windows node with this many processors should reserve for the system: 5 %."""
    return f"{cpus * 50}m"


def _usual_runtime(settings: ClusterSettings, node: NodeSpec) -> str:
    """Docker on Windows while the release supports it, except for dual-stack pods: their plugin
    needs containerd.
    """
    if not node.windows:
        return "containerd"
    supported = _facts(settings, node).runtimes()
    if "docker" not in supported or (node_has_ipv6(settings, node) and "containerd" in supported):
        return "containerd"
    return "docker"


def _usual_build(settings: ClusterSettings, node: NodeSpec) -> int:
    """What the kubelet's release recommends, if no other one is asked for."""
    release = releases.parse_release_version(kubelet_version(settings, node))
    return node.build or releases.node_build(release)


def windows_build(node: NodeSpec) -> builds.WindowsBuild:
    """The build of a Windows node, at its patch level."""
    return builds.build_with_revision(node.build, node.revision)


def node_has_ipv6(settings: ClusterSettings, node: NodeSpec) -> bool:
    """Whether the node also has IPv6 addresses."""
    if not settings.network.dual_stack or not node.windows:
        return settings.network.dual_stack
    release = releases.parse_release_version(kubelet_version(settings, node))
    build = builds.build_with_revision(_usual_build(settings, node), node.revision)
    plan = modes.NodePlan(node.name, "windows", build.number, build.ubr)
    return modes.mode_has_ipv6(settings.network.mode, plan, release)


_Refuse = Callable[[str, str], UserError]


def _check(settings: ClusterSettings, node: NodeSpec) -> None:
    def refuse(problem: str, hint: str) -> UserError:
        return UserError(f"node {node.name!r}: {problem}", hint)

    _check_os(node, refuse)
    _check_choices(settings, node, refuse)
    _check_windows_fields(node, refuse)
    _check_resources(node, refuse)
    _check_skew(settings, node, refuse)
    if node.windows and node.runtime:
        _check_runtime(settings, node, refuse)


def _check_os(node: NodeSpec, refuse: _Refuse) -> None:
    if not _NAME.fullmatch(node.name):
        raise refuse(
            "this cannot be the name of a node", "use lower case letters, digits, dashes and dots"
        )
    if node.os not in ("linux", "windows"):
        raise refuse(f"unknown operating system {node.os!r}", "choose linux or windows")
    if node.windows and node.build and node.build not in NODE_BUILDS:
        raise refuse(
            f"unknown Windows build {node.build}",
            f"choose one of {', '.join(map(str, NODE_BUILDS))}",
        )
    if node.windows and CONTROL_PLANE_LABELS & node.labels.keys():
        raise refuse("the control plane runs on Linux", "make it a worker, or a Linux node")
    if not node.windows and (node.build or node.revision):
        raise refuse(
            "only Windows nodes have a build",
            "leave it out, or make it a Windows node (os: windows, --os windows)",
        )


def _check_choices(settings: ClusterSettings, node: NodeSpec, refuse: _Refuse) -> None:
    if node.runtime and node.runtime not in RUNTIMES:
        raise refuse(f"unknown runtime {node.runtime!r}", f"choose one of {', '.join(RUNTIMES)}")
    if node.engine and node.engine not in ("sim", "oci") and "://" not in node.engine:
        raise refuse(
            f"unknown engine {node.engine!r}",
            "choose sim, oci, or an address like unix:///run/containerd/containerd.sock",
        )
    if node.network_mode and node.network_mode not in ALL_NETWORKS:
        raise refuse(
            f"unknown network mode {node.network_mode!r}",
            f"choose one of {', '.join(ALL_NETWORKS)}",
        )
    if node.priority_class and node.priority_class not in PRIORITY_CLASSES:
        raise refuse(
            f"unknown priority class {node.priority_class}, valid ones are available at "
            "https://docs.microsoft.com/en-us/windows/win32/procthread/scheduling-priorities",
            f"choose one of {', '.join(PRIORITY_CLASSES)}",
        )
    if (
        node.priority_class
        and node.windows
        and not kubelet_has(_facts(settings, node).release, "WindowsPriorityClass")
    ):
        raise refuse(
            "priorityClass needs a kubelet of 1.19 or later (--windows-priorityclass)",
            "leave it out",
        )


def _check_windows_fields(node: NodeSpec, refuse: _Refuse) -> None:
    if not node.windows and (
        node.proxy or node.csi_proxy or node.flex_drivers or not node.mac_spoofing
    ):
        raise refuse(
            "proxy, csiProxy, flexDrivers and macSpoofing are for Windows nodes",
            "leave them out, or set os: windows",
        )
    if node.adapter and (not node.windows or not _ADAPTER.fullmatch(node.adapter)):
        raise refuse(
            f"{node.adapter!r} cannot be its network adapter",
            'Windows nodes have one like "Ethernet 2"',
        )
    if node.proxy and not _PROXY.fullmatch(node.proxy):
        raise refuse(
            f"{node.proxy!r} is not the address of a proxy",
            "write it like http://proxy.example.com:80/",
        )


def _check_resources(node: NodeSpec, refuse: _Refuse) -> None:
    if not 1 <= node.cpus <= 1024:
        raise refuse(f"{node.cpus} CPUs", "a node has 1 to 1024 CPUs")
    if node.threads_per_core not in (1, 2) or not 1 <= node.numa_nodes <= 8:
        raise refuse(
            f"threadsPerCore {node.threads_per_core}, numaNodes {node.numa_nodes}",
            "a core has 1 or 2 threads, a node 1 to 8 NUMA nodes",
        )
    if node.cpus % (node.threads_per_core * node.numa_nodes):
        raise refuse(
            f"{node.cpus} CPUs cannot be divided into {node.numa_nodes} NUMA nodes with "
            f"{node.threads_per_core} threads per core",
            "every NUMA node has the same number of cores",
        )
    if not 0 <= node.image_gc_high <= 100:
        raise refuse(
            f"imageGCHighThresholdPercent {node.image_gc_high}",
            "it is a percentage; at 100 no images are removed",
        )
    _check_values(node, refuse)


def _check_values(node: NodeSpec, refuse: _Refuse) -> None:
    spec_checks.check_labels(node.labels, refuse)
    spec_checks.check_taints(node.taints or (), refuse)
    spec_checks.check_positive_quantity("memory", node.memory, refuse)
    spec_checks.check_positive_quantity("disk", node.disk, refuse)
    spec_checks.check_swap(node.swap, node.windows, refuse)
    capacity = {"cpu": str(node.cpus), "memory": node.memory}
    spec_checks.check_reservation("kubeReserved", node.kube_reserved, capacity, refuse)
    spec_checks.check_reservation("systemReserved", node.system_reserved or {}, capacity, refuse)
    spec_checks.check_eviction("evictionHard", node.eviction_hard or {}, refuse)
    spec_checks.check_eviction("evictionSoft", node.eviction_soft or {}, refuse)
    if node.max_pods < 0:
        raise refuse(f"maxPods {node.max_pods}", "a node has 1 or more pods")


def _check_runtime(settings: ClusterSettings, node: NodeSpec, refuse: _Refuse) -> None:
    """The kubelet's release determines which runtimes Windows nodes can have."""
    facts = _facts(settings, node)
    if node.runtime not in facts.runtimes():
        raise refuse(
            f"a Windows node of {releases.release_text(facts.release)} cannot have {node.runtime}",
            f"choose {' or '.join(facts.runtimes())}",
        )


def _facts(settings: ClusterSettings, node: NodeSpec) -> releases.ReleaseFacts:
    return releases.release_facts(releases.parse_release_version(kubelet_version(settings, node)))


_SKEWS = {2: "two", 3: "three"}


def _check_skew(settings: ClusterSettings, node: NodeSpec, refuse: _Refuse) -> None:
    """A kubelet may be a few minor versions older than the API server, and never newer."""
    if not node.kubelet_version:
        return
    match = re.fullmatch(r"v?1\.(\d+)(\.\d+)?", node.kubelet_version)
    if match is None:
        raise refuse(
            f"{node.kubelet_version!r} is not the version of a kubelet",
            "write it like v1.19.16 or 1.19",
        )
    minor, ours = int(match[1]), int(settings.release.split(".")[1])
    skew = oldest_kubelet(parse_release(settings.release))
    if minor > ours or minor < ours - skew:
        raise refuse(
            f"a kubelet {node.kubelet_version} cannot join an API server of {settings.release}: it must not be newer, and at"
            f" most {_SKEWS[skew]} minor versions older",
            f"choose a version from 1.{max(ours - skew, 0)} to 1.{ours}",
        )


def kubelet_version(settings: ClusterSettings, node: NodeSpec) -> str:
    text = (node.kubelet_version or settings.git_version).removeprefix("v")
    if text.count(".") == 1:
        return RELEASES.get(text, f"v{text}.0")
    return "v" + text


def pause_image(settings: ClusterSettings, node: NodeSpec) -> str:
    """The pause image of the kubelet's release if it supports the node's build; "" for the build's
    default.
    """
    if node.pause_image:
        return node.pause_image
    if not node.windows:
        release = releases.parse_release_version(kubelet_version(settings, node))
        return linux_pause_image(Release(*release))
    return releases.node_pause_image(_facts(settings, node).release, node.build)


# ---- the cluster file ----

_FILE_FIELDS = {  # as the file spells them
    "name": "name",
    "os": "os",
    "build": "build",
    "revision": "revision",
    "cpus": "cpus",
    "threadsPerCore": "threads_per_core",
    "numaNodes": "numa_nodes",
    "memory": "memory",
    "disk": "disk",
    "swap": "swap",
    "engine": "engine",
    "runtime": "runtime",
    "runtimeVersion": "runtime_version",
    "kubeletVersion": "kubelet_version",
    "networkMode": "network_mode",
    "labels": "labels",
    "taints": "taints",
    "kubeReserved": "kube_reserved",
    "systemReserved": "system_reserved",
    "evictionHard": "eviction_hard",
    "evictionSoft": "eviction_soft",
    "evictionSoftGracePeriod": "eviction_soft_grace_period",
    "featureGates": "feature_gates",
    "imageGCHighThresholdPercent": "image_gc_high",
    "kubeletConfig": "kubelet_config",
    "priorityClass": "priority_class",
    "pauseImage": "pause_image",
    "maxPods": "max_pods",
    "staticPods": "static_pods",
    "volumePlugins": "volume_plugins",
    "macSpoofing": "mac_spoofing",
    "proxy": "proxy",
    "csiProxy": "csi_proxy",
    "flexDrivers": "flex_drivers",
    "adapter": "adapter",
    "userNamespaces": "user_namespaces",
    # The Windows guide's spelling of the kubelet's flags:
    "kubeletReserve": "kube_reserved",
    "systemReserve": "system_reserved",
}
_NUMBERS = ("revision", "cpus", "threads_per_core", "numa_nodes", "max_pods", "image_gc_high")
_MAPS = (
    "labels",
    "kube_reserved",
    "system_reserved",
    "eviction_hard",
    "eviction_soft",
    "eviction_soft_grace_period",
    "feature_gates",
)


def specs_from_file(settings: ClusterSettings, rows: Sequence[Any]) -> list[NodeSpec]:
    """The list `nodes` of a cluster file, which must include a Linux control-plane node."""
    nodes = specs_from_rows(settings, rows)
    if not any(node.control_plane for node in nodes):
        linux = next((node.name for node in nodes if not node.windows), "")
        raise UserError(
            "the cluster file has no Linux control-plane node: the control plane runs on Linux only, Windows nodes are"
            " workers (WIN-OS-003)",
            f"add `role: control-plane` to node {linux!r} (with `taints: []` it also runs ordinary pods)"
            if linux
            else "add a node: {name: control-plane, role: control-plane}",
        )
    return nodes


def control_plane_node(nodes: Iterable[NodeSpec]) -> NodeSpec | None:
    """The node that serves the API server and cluster DNS; None if there is no node."""
    return min(
        nodes, key=lambda node: (not node.control_plane, node.windows, node.number), default=None
    )


def control_plane_nodes(nodes: Iterable[NodeSpec]) -> list[NodeSpec]:
    """All control-plane nodes, by number."""
    return sorted((node for node in nodes if node.control_plane), key=lambda node: node.number)


def specs_from_rows(settings: ClusterSettings, rows: Sequence[Any]) -> list[NodeSpec]:
    """Nodes as in the cluster file and `node add`; a row with `count` stands for several nodes."""
    out = []
    for index, row in enumerate(rows):
        where = f"nodes[{index}]"
        if not isinstance(row, dict):
            raise UserError(f"{where} of the cluster file is not a mapping")
        unknown = sorted(set(row) - set(_FILE_FIELDS) - {"count", "role"})
        if unknown:
            raise UserError(
                f"{where} of the cluster file has the unknown field {unknown[0]!r}",
                f"known are {', '.join(sorted([*_FILE_FIELDS, 'count', 'role']))}",
            )
        out += _row(where, row, parse_release(settings.release))
    return complete_specs(settings, out)


def _row(where: str, row: Mapping[str, Any], release: Release) -> list[NodeSpec]:
    values: dict[str, Any] = {
        _FILE_FIELDS[k]: _value(where, k, v)
        for k, v in row.items()
        if k in _FILE_FIELDS and k != "build"
    }
    if "build" in row:
        values |= _build_fields(where, row["build"])
    if row.get("role") == "control-plane":
        values["labels"] = {**control_plane_labels(release), **values.get("labels", {})}
        values.setdefault("taints", control_plane_taints(release))
    elif row.get("role", "worker") != "worker":
        raise UserError(f"{where}: unknown role {row['role']!r}", "choose control-plane or worker")
    count = row.get("count")
    name = values.pop("name", "")
    if not name:
        raise UserError(f"{where} of the cluster file has no name")
    if count is None:
        return [NodeSpec(name, **values)]
    if not isinstance(count, int) or not 1 <= count <= _MOST_NODES:
        raise UserError(f"{where}: count must be a number from 1 to {_MOST_NODES}")
    return [NodeSpec(f"{name}-{i}", **values) for i in range(1, count + 1)]


def _value(where: str, name: str, value: Any) -> Any:
    attribute = _FILE_FIELDS[name]
    if attribute in _MAPS:
        if not isinstance(value, dict):
            raise UserError(f"{where}.{name} of the cluster file must be a mapping")
        return {str(k): v if isinstance(v, bool) else str(v) for k, v in value.items()}
    if attribute == "kubelet_config":
        return _kubelet_config(where, value)
    if attribute == "taints":
        if not isinstance(value, list):
            raise UserError(f"{where}.taints of the cluster file must be a list")
        return tuple(_taint(where, taint) for taint in value)
    if attribute in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int):
            raise UserError(f"{where}.{name} of the cluster file must be a number")
        return value
    if attribute in ("mac_spoofing", "csi_proxy", "flex_drivers", "user_namespaces"):
        if not isinstance(value, bool):
            raise UserError(f"{where}.{name} of the cluster file must be true or false")
        return value
    return str(value)


def _kubelet_config(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{where}.kubeletConfig of the cluster file must be a mapping")
    unknown = next((name for name in value if not is_configuration_field(str(name))), None)
    if unknown is not None:
        raise UserError(f"{where}.kubeletConfig: {unknown!r} cannot be set")
    try:
        configuration_settings(value)
    except ValueError as problem:
        raise UserError(f"{where}.kubeletConfig: {problem}") from problem
    return value


def _build_fields(where: str, value: Any) -> dict[str, int]:
    """A build as a number, a version with or without its revision, or a name."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"build": value}
    found = builds.parse_node_build(value) if isinstance(value, str) else None
    if found is None:
        raise UserError(
            f"{where}: unknown Windows build {value!r}",
            "write it like 20348, 10.0.17763.1697 or ltsc2022",
        )
    return {"build": found[0], "revision": found[1]}


def changed_spec(settings: ClusterSettings, node: NodeSpec, values: Mapping[str, Any]) -> NodeSpec:
    """The node with changes to options that can change while it runs, by their names in the
    file.
    """
    unknown = sorted(set(values) - set(CHANGEABLE))
    if unknown:
        raise UserError(
            f"{unknown[0]!r} of a running node cannot be set", f"what can: {', '.join(CHANGEABLE)}"
        )
    out = replace(
        node,
        **{
            _FILE_FIELDS[name]: _value(f"node {node.name}", name, value)
            for name, value in values.items()
        },
    )
    _check(settings, out)
    return out


CHANGEABLE = ("csiProxy", "flexDrivers", "macSpoofing", "proxy")


def _taint(where: str, taint: Any) -> Mapping[str, str]:
    """Parses an object, or kubectl's form key=value:Effect."""
    if isinstance(taint, str):
        match = re.fullmatch(
            r"([^=:]+)(?:=([^:]*))?:(NoSchedule|PreferNoSchedule|NoExecute)", taint
        )
        if match is None:
            raise UserError(
                f"{where}: {taint!r} is not a taint", "write it like os=windows:NoSchedule"
            )
        return {"key": match[1], **({"value": match[2]} if match[2] else {}), "effect": match[3]}
    if not isinstance(taint, dict) or not {"key", "effect"} <= set(taint):
        raise UserError(f"{where}: a taint needs a key and an effect")
    return {str(k): str(v) for k, v in taint.items()}
