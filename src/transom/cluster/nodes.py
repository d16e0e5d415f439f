"""The machines of a cluster: what each node is, as the options and the cluster file say it, kept beside the cluster's state.

Pure data and its checks; `cluster.fleet` turns it into running nodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from transom.cluster.config import RELEASES, ClusterConfig
from transom.cluster.errors import ClusterError
from transom.kit.files import write_atomic
from transom.machinery.quantity import QuantityError, parse
from transom.windows import builds, releases

DEFAULT_BUILD = builds.DEFAULT.number
NODE_BUILDS = tuple(number for number in builds.BUILDS if 17763 <= number <= 20348)  # that nodes are made of
NETWORK_MODES = ("l2bridge", "l2tunnel", "overlay", "transparent", "nat")
# Runtime -> the version a node has when none is named.
RUNTIMES = {"docker": "19.3.14", "containerd": "1.4.3"}
_OLD_DOCKER = "18.9.9"  # of Windows nodes of the first releases
PRIORITY_CLASSES = tuple(
    f"{name}_PRIORITY_CLASS" for name in ("IDLE", "BELOW_NORMAL", "NORMAL", "ABOVE_NORMAL", "HIGH", "REALTIME")
)
WINDOWS_TAINT = {"key": "os", "value": "windows", "effect": "NoSchedule"}
_CONTROL_PLANE_TAINT = {"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}
_CONTROL_PLANE_LABELS = {"node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/master": ""}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PROXY = re.compile(r"https?://[^\s/]+/?")
_ADAPTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _-]{0,63}")
_MOST_NODES = 5000


@dataclass(frozen=True, slots=True)
class NodeSpec:
    name: str
    os: str = "linux"
    number: int = 0  # which of the cluster's node addresses it has
    build: int = 0  # of Windows; 0 on Linux
    cpus: int = 4
    memory: str = "8Gi"
    disk: str = "100Gi"
    engine: str = ""  # what runs its containers: sim, oci, the address of a containerd; "" for the cluster's
    runtime: str = ""
    runtime_version: str = ""
    kubelet_version: str = ""  # "" for the cluster's
    network_mode: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    eviction_hard: Mapping[str, str] | None = None
    eviction_soft: Mapping[str, str] = field(default_factory=dict)
    eviction_soft_grace_period: Mapping[str, str] = field(default_factory=dict)
    image_gc_high: int = 0  # percent of the disk from which on images without containers go; 0 for the usual
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    priority_class: str = ""
    pause_image: str = ""
    max_pods: int = 110
    static_pods: str = ""  # a folder of this machine
    adapter: str = ""  # what a Windows node's network adapter is called; "" for Ethernet
    mac_spoofing: bool = True  # whether the virtual machine's adapter lets out frames of pods
    proxy: str = ""  # the one that stands between the machine and registries
    csi_proxy: bool = False  # whether csi-proxy is installed, which storage drivers need on Windows
    stopped: bool = False

    @property
    def windows(self) -> bool:
        return self.os == "windows"


def demo(config: ClusterConfig, linux: int | None, windows: int | None, build: int | None, taint: bool) -> list[NodeSpec]:
    """The nodes of `transom up`: a control-plane node, and by default one Linux and two Windows workers."""
    nodes = [NodeSpec("control-plane", labels=_CONTROL_PLANE_LABELS, taints=(_CONTROL_PLANE_TAINT,))]
    nodes += [NodeSpec(f"linux-{i}") for i in range(1, (1 if linux is None else linux) + 1)]
    taints = (WINDOWS_TAINT,) if taint else ()
    for i in range(1, (2 if windows is None else windows) + 1):
        nodes.append(NodeSpec(f"windows-{i}", os="windows", build=build or DEFAULT_BUILD, taints=taints))
    return settle(config, nodes)


def settle(config: ClusterConfig, nodes: Iterable[NodeSpec], taken: Iterable[int] = ()) -> list[NodeSpec]:
    """Checks nodes and fills in what was left open: numbers, runtimes, versions."""
    used = set(taken)
    out: list[NodeSpec] = []
    names: set[str] = set()
    free = 1
    for node in nodes:
        _check(config, node)
        if node.name in names:
            raise ClusterError(f"two nodes have the name {node.name!r}", "each node needs a name of its own")
        names.add(node.name)
        if not node.number:
            while free in used:
                free += 1
            node = replace(node, number=free)
            used.add(free)
        runtime = node.runtime or _usual_runtime(config, node)
        old = node.windows and runtime == "docker" and _facts(config, node).docker == "18.09"
        version = node.runtime_version or (_OLD_DOCKER if old else RUNTIMES[runtime])
        out.append(replace(
            node, runtime=runtime, runtime_version=version,
            build=(node.build or DEFAULT_BUILD) if node.windows else 0,
        ))
    if len(out) > _MOST_NODES:
        raise ClusterError(f"{len(out)} nodes are more than the {_MOST_NODES} a cluster can have")
    return out


def _usual_runtime(config: ClusterConfig, node: NodeSpec) -> str:
    """Docker on Windows, but where pods are to have two addresses: the plugin that gives them needs what containerd has."""
    if not node.windows or (has_ipv6(config, node) and "containerd" in _facts(config, node).runtimes()):
        return "containerd"
    return "docker"


def has_ipv6(config: ClusterConfig, node: NodeSpec) -> bool:
    """Whether the node has addresses of IPv6, too."""
    if not config.network.dual_stack or not node.windows:
        return config.network.dual_stack
    from transom.network import modes

    build = node.build or DEFAULT_BUILD
    plan = modes.NodePlan(node.name, "windows", build, builds.BUILDS[build].ubr)
    return modes.has_ipv6(config.network.mode, plan, releases.parse(kubelet_version(config, node)))


def _check(config: ClusterConfig, node: NodeSpec) -> None:
    def refuse(problem: str, hint: str = "") -> ClusterError:
        return ClusterError(f"node {node.name!r}: {problem}", hint)

    if not _NAME.fullmatch(node.name):
        raise refuse("this cannot be the name of a node", "use lower case letters, digits, dashes and dots")
    if node.os not in ("linux", "windows"):
        raise refuse(f"unknown operating system {node.os!r}", "choose linux or windows")
    if node.windows and node.build and node.build not in NODE_BUILDS:
        raise refuse(f"unknown Windows build {node.build}", f"choose one of {', '.join(map(str, NODE_BUILDS))}")
    if node.windows and _CONTROL_PLANE_LABELS.keys() & node.labels.keys():
        raise refuse("the control plane runs on Linux", "make it a worker, or a Linux node")
    if not node.windows and node.build:
        raise refuse("only Windows nodes have a build", "leave it out, or set os: windows")
    if node.runtime and node.runtime not in RUNTIMES:
        raise refuse(f"unknown runtime {node.runtime!r}", f"choose one of {', '.join(RUNTIMES)}")
    if node.engine and node.engine not in ("sim", "oci") and "://" not in node.engine:
        raise refuse(f"unknown engine {node.engine!r}", "choose sim, oci, or an address like unix:///run/containerd/containerd.sock")
    if node.network_mode and node.network_mode not in NETWORK_MODES:
        raise refuse(f"unknown network mode {node.network_mode!r}", f"choose one of {', '.join(NETWORK_MODES)}")
    if node.priority_class and node.priority_class not in PRIORITY_CLASSES:
        raise refuse(
            f"unknown priority class {node.priority_class}, valid ones are available at "
            "https://docs.microsoft.com/en-us/windows/win32/procthread/scheduling-priorities",
            f"choose one of {', '.join(PRIORITY_CLASSES)}",
        )
    if not node.windows and (node.proxy or node.csi_proxy or not node.mac_spoofing):
        raise refuse("proxy, csiProxy and macSpoofing are for Windows nodes", "leave them out, or set os: windows")
    if node.adapter and (not node.windows or not _ADAPTER.fullmatch(node.adapter)):
        raise refuse(f"{node.adapter!r} cannot be its network adapter", 'Windows nodes have one like "Ethernet 2"')
    if node.proxy and not _PROXY.fullmatch(node.proxy):
        raise refuse(f"{node.proxy!r} is not the address of a proxy", "write it like http://proxy.example.com:80/")
    if not 1 <= node.cpus <= 1024:
        raise refuse(f"{node.cpus} CPUs", "a node has 1 to 1024 CPUs")
    if not 0 <= node.image_gc_high <= 100:
        raise refuse(f"imageGCHighThresholdPercent {node.image_gc_high}", "it is a percentage; at 100 no images are removed")
    for name in ("memory", "disk"):
        try:
            parse(getattr(node, name))
        except QuantityError as problem:
            raise refuse(f"{name}: {problem}", 'write a quantity, for example "8Gi"') from problem
    _check_skew(config, node, refuse)
    if node.windows and node.runtime:
        _check_runtime(config, node, refuse)


def _check_runtime(config: ClusterConfig, node: NodeSpec, refuse: Any) -> None:
    """Which runtimes Windows nodes can have depends on the kubelet's release."""
    facts = _facts(config, node)
    if node.runtime not in facts.runtimes():
        raise refuse(
            f"a Windows node of {releases.text(facts.release)} cannot have {node.runtime}",
            f"choose {' or '.join(facts.runtimes())}",
        )


def _facts(config: ClusterConfig, node: NodeSpec) -> releases.Facts:
    return releases.facts(releases.parse(kubelet_version(config, node)))


def _check_skew(config: ClusterConfig, node: NodeSpec, refuse: Any) -> None:
    """A kubelet may be up to two minor versions older than the API server, and never newer."""
    if not node.kubelet_version:
        return
    match = re.fullmatch(r"v?1\.(\d+)(\.\d+)?", node.kubelet_version)
    if match is None:
        raise refuse(f"{node.kubelet_version!r} is not the version of a kubelet", "write it like v1.19.16 or 1.19")
    minor, ours = int(match[1]), int(config.release.split(".")[1])
    if minor > ours or minor < ours - 2:
        raise refuse(
            f"a kubelet {node.kubelet_version} cannot join an API server of {config.release}: it must not be newer, and at"
            " most two minor versions older",
            f"choose a version from 1.{max(ours - 2, 0)} to 1.{ours}",
        )


def kubelet_version(config: ClusterConfig, node: NodeSpec) -> str:
    text = (node.kubelet_version or config.git_version).removeprefix("v")
    if text.count(".") == 1:
        return RELEASES.get(text, f"v{text}.0")
    return "v" + text


def pause_image(config: ClusterConfig, node: NodeSpec) -> str:
    """That of the kubelet's release if there is one for the node's build; "" for the usual one of the build."""
    if node.pause_image or not node.windows:
        return node.pause_image
    usual = _facts(config, node).pause
    return usual if node.build in releases.PAUSE_BUILDS.get(usual, ()) else ""


# ---- the cluster file ------------------------------------------------------------------------------------------------

_FILE_FIELDS = {  # as the file spells them
    "name": "name", "os": "os", "build": "build", "cpus": "cpus", "memory": "memory", "disk": "disk",
    "engine": "engine", "runtime": "runtime", "runtimeVersion": "runtime_version", "kubeletVersion": "kubelet_version",
    "networkMode": "network_mode", "labels": "labels", "taints": "taints", "kubeReserved": "kube_reserved",
    "systemReserved": "system_reserved", "evictionHard": "eviction_hard", "evictionSoft": "eviction_soft",
    "evictionSoftGracePeriod": "eviction_soft_grace_period", "featureGates": "feature_gates",
    "imageGCHighThresholdPercent": "image_gc_high", "priorityClass": "priority_class", "pauseImage": "pause_image",
    "maxPods": "max_pods", "staticPods": "static_pods",
    "macSpoofing": "mac_spoofing", "proxy": "proxy", "csiProxy": "csi_proxy", "adapter": "adapter",
    # As the guide to Windows spells the kubelet's flags:
    "kubeletReserve": "kube_reserved", "systemReserve": "system_reserved",
}  # fmt: skip
_MAPS = ("labels", "kube_reserved", "system_reserved", "eviction_hard", "eviction_soft", "eviction_soft_grace_period",
         "feature_gates")  # fmt: skip


def from_file(config: ClusterConfig, rows: Sequence[Any]) -> list[NodeSpec]:
    """The list `nodes` of a cluster file; a row with `count` stands for several nodes."""
    out = []
    for index, row in enumerate(rows):
        where = f"nodes[{index}]"
        if not isinstance(row, dict):
            raise ClusterError(f"{where} of the cluster file is not a mapping")
        unknown = sorted(set(row) - set(_FILE_FIELDS) - {"count", "role"})
        if unknown:
            raise ClusterError(
                f"{where} of the cluster file has the unknown field {unknown[0]!r}",
                f"known are {', '.join(sorted([*_FILE_FIELDS, 'count', 'role']))}",
            )
        out += _row(where, row)
    return settle(config, out)


def _row(where: str, row: Mapping[str, Any]) -> list[NodeSpec]:
    values: dict[str, Any] = {_FILE_FIELDS[k]: _value(where, k, v) for k, v in row.items() if k in _FILE_FIELDS}
    if row.get("role") == "control-plane":
        values["labels"] = {**_CONTROL_PLANE_LABELS, **values.get("labels", {})}
        values.setdefault("taints", (_CONTROL_PLANE_TAINT,))
    elif row.get("role", "worker") != "worker":
        raise ClusterError(f"{where}: unknown role {row['role']!r}", "choose control-plane or worker")
    count = row.get("count")
    name = values.pop("name", "")
    if not name:
        raise ClusterError(f"{where} of the cluster file has no name")
    if count is None:
        return [NodeSpec(name, **values)]
    if not isinstance(count, int) or not 1 <= count <= _MOST_NODES:
        raise ClusterError(f"{where}: count must be a number from 1 to {_MOST_NODES}")
    return [NodeSpec(f"{name}-{i}", **values) for i in range(1, count + 1)]


def _value(where: str, name: str, value: Any) -> Any:
    attribute = _FILE_FIELDS[name]
    if attribute in _MAPS:
        if not isinstance(value, dict):
            raise ClusterError(f"{where}.{name} of the cluster file must be a mapping")
        return {str(k): v if isinstance(v, bool) else str(v) for k, v in value.items()}
    if attribute == "taints":
        if not isinstance(value, list):
            raise ClusterError(f"{where}.taints of the cluster file must be a list")
        return tuple(_taint(where, taint) for taint in value)
    if attribute in ("build", "cpus", "max_pods", "image_gc_high"):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ClusterError(f"{where}.{name} of the cluster file must be a number")
        return value
    if attribute in ("mac_spoofing", "csi_proxy"):
        if not isinstance(value, bool):
            raise ClusterError(f"{where}.{name} of the cluster file must be true or false")
        return value
    return str(value)


def changed(config: ClusterConfig, node: NodeSpec, values: Mapping[str, Any]) -> NodeSpec:
    """The node with some of the options that can be changed while it runs, by their names in the file."""
    unknown = sorted(set(values) - set(CHANGEABLE))
    if unknown:
        raise ClusterError(f"{unknown[0]!r} of a running node cannot be set", f"what can: {', '.join(CHANGEABLE)}")
    out = replace(node, **{_FILE_FIELDS[name]: _value(f"node {node.name}", name, value) for name, value in values.items()})
    _check(config, out)
    return out


CHANGEABLE = ("csiProxy", "macSpoofing", "proxy")


def _taint(where: str, taint: Any) -> Mapping[str, str]:
    """As an object, or in kubectl's form key=value:Effect."""
    if isinstance(taint, str):
        match = re.fullmatch(r"([^=:]+)(?:=([^:]*))?:(NoSchedule|PreferNoSchedule|NoExecute)", taint)
        if match is None:
            raise ClusterError(f"{where}: {taint!r} is not a taint", "write it like os=windows:NoSchedule")
        return {"key": match[1], **({"value": match[2]} if match[2] else {}), "effect": match[3]}
    if not isinstance(taint, dict) or not {"key", "effect"} <= set(taint):
        raise ClusterError(f"{where}: a taint needs a key and an effect")
    return {str(k): str(v) for k, v in taint.items()}


# ---- what is kept ----------------------------------------------------------------------------------------------------


def save(config: ClusterConfig, nodes: Iterable[NodeSpec]) -> None:
    config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = json.dumps([asdict(node) for node in nodes], indent=1).encode() + b"\n"
    write_atomic(config.state / "nodes.json", content, 0o600)


def load(config: ClusterConfig) -> list[NodeSpec] | None:
    """The nodes of the last start; None before the first."""
    path = config.state / "nodes.json"
    try:
        rows = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ClusterError(f"{path} is damaged: {error}", "repair it, or remove it to start with new nodes") from error
    known = {f.name for f in fields(NodeSpec)}
    out = []
    for row in rows:
        values: dict[str, Any] = {k: tuple(v) if k == "taints" else v for k, v in row.items() if k in known}
        out.append(NodeSpec(**values))
    return out
