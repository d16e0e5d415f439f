"""Network modes of Windows nodes: which solutions implement them on both sides of a cluster, and
which combinations do not work.

Everything is a table, and `check_network_plan` checks a cluster's plan against it before anything
is created. Findings cite the records of Windows limitations (`transom.windows`), with their texts
and remedies; the module depends on no node, plugin or network.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, Literal

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.kit.versions import version_numbers
from transom.network.cni.windows import DEFAULT_RELEASE, windows_plugin_versions
from transom.network.cni.windows.netconf import Release as PluginsRelease
from transom.windows.match import record_holds
from transom.windows.records import ALL_NETWORKS, NodeTarget, Record, Release, WindowsLimit
from transom.windows.records import Network as ModeName
from transom.windows.registry import RECORDS
from transom.windows.releases import GATES

Severity = Literal["error", "warning", "info"]
VNI: Final = 4096
VXLAN_PORT: Final = 4789
# flannel's defaults on Linux: the kernel's VXLAN port predates the standard one.
LINUX_VNI: Final = 1
LINUX_VXLAN_PORT: Final = 8472


@dataclass(frozen=True, slots=True)
class NetworkSolution:
    """An implementation of a mode: what runs on Windows nodes, and on Linux nodes beside them."""

    mode: ModeName
    plugin: str  # its name in a cluster's settings
    windows: tuple[str, ...]  # types of plugins, the last one creates the endpoint
    linux: tuple[str, ...]
    ipam: tuple[str, ...]  # IPAM plugins of Windows nodes, the default first; "" is HNS' own
    # of flannel's net-conf.json, for both sides
    backend: Mapping[str, Any] = field(default_factory=dict)
    record: str = ""


_HOST_GW: Final = {"Type": "host-gw"}
_VXLAN: Final = {"Type": "vxlan", "VNI": VNI, "Port": VXLAN_PORT}
SOLUTIONS: Final = (
    NetworkSolution(
        "l2bridge",
        "flannel",
        ("flannel", "win-bridge"),
        ("flannel", "bridge"),
        ("host-local",),
        _HOST_GW,
        "SUP-NET-009",
    ),
    NetworkSolution(
        "l2bridge",
        "win-bridge",
        ("win-bridge",),
        ("bridge",),
        ("host-local", ""),
        record="SUP-NET-009",
    ),
    NetworkSolution(
        "l2bridge",
        "sdnbridge",
        ("sdnbridge",),
        ("bridge",),
        ("host-local", ""),
        record="SUP-NET-009",
    ),
    NetworkSolution(
        "l2bridge",
        "azure",
        ("azure-vnet",),
        ("azure-vnet",),
        ("azure-vnet-ipam",),
        record="SUP-NET-009",
    ),
    NetworkSolution(
        "l2tunnel",
        "azure",
        ("azure-vnet",),
        ("azure-vnet",),
        ("azure-vnet-ipam",),
        record="SUP-NET-010",
    ),
    NetworkSolution(
        "overlay",
        "flannel",
        ("flannel", "win-overlay"),
        ("flannel", "bridge"),
        ("host-local",),
        _VXLAN,
        "SUP-NET-012",
    ),
    NetworkSolution(
        "transparent",
        "ovn",
        ("ovn-k8s-cni-overlay",),
        ("ovn-k8s-cni-overlay",),
        ("",),
        record="SUP-NET-014",
    ),
    NetworkSolution("nat", "nat", ("nat",), (), ("",), record="SUP-NET-016"),
)


def network_solution(mode: str, plugin: str = "") -> NetworkSolution | None:
    """Without a plugin, the mode's default solution."""
    return next((s for s in SOLUTIONS if s.mode == mode and plugin in ("", s.plugin)), None)


def flannel_backend(mode: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The `Backend` of flannel's net-conf.json for a cluster with Windows nodes: the mode's
    requirements, overridden by `given`.
    """
    usual = network_solution(mode, "flannel")
    return {**(usual.backend if usual is not None else {}), **given}


class NodePlan(NamedTuple):
    name: str
    os: Literal["linux", "windows"]
    build: int | None = None
    revision: int | None = None  # UBR; None for a current one


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """A cluster's network settings before it is created."""

    mode: str = "l2bridge"
    plugin: str = ""
    nodes: tuple[NodePlan, ...] = ()
    release: Release = (1, 20)
    # flannel's settings, which override the mode's
    backend: Mapping[str, Any] = field(default_factory=dict)
    linux_backend: Mapping[str, Any] | None = (
        None  # if Linux nodes differ: what it omits is Linux' default
    )
    pod_cidrs: tuple[str, ...] = ()
    service_cidrs: tuple[str, ...] = ()
    dual_stack: bool = False
    cni_version: str = ""
    ipam: str | None = None  # None: the default one
    plugins_release: PluginsRelease = DEFAULT_RELEASE
    flannel_version: str = "0.13.0"
    # feature gates that are enabled beyond the release's defaults
    gates: frozenset[str] = frozenset()
    off: frozenset[str] = frozenset()  # and those that are disabled against its defaults

    @property
    def windows(self) -> tuple[NodePlan, ...]:
        return tuple(node for node in self.nodes if node.os == "windows")

    @property
    def linux(self) -> tuple[NodePlan, ...]:
        return tuple(node for node in self.nodes if node.os == "linux")

    def gate(self, name: str) -> bool:
        return name in self.gates or (GATES[name].default(self.release) and name not in self.off)


@dataclass(frozen=True, slots=True)
class NetworkProblem:
    id: str  # the record's id
    severity: Severity
    message: str
    remedy: str
    node: str = ""  # "" for the whole cluster

    @property
    def text(self) -> str:
        return f"{self.node}: {self.message}" if self.node else self.message


def mode_has_ipv6(mode: str, node: NodePlan, release: Release) -> bool:
    """Whether a node and its pods can have IPv6 addresses in addition to IPv4."""
    if node.os == "linux":
        return True
    target = NodeTarget(release, node.build, None, mode, frozenset(), node.revision)  # type: ignore[arg-type]
    return mode == "l2bridge" and not any(
        record_holds(RECORDS[id], target) for id in ("WIN-NET-014", "WIN-NET-015")
    )


def check_network_plan(plan: NetworkPlan) -> list[NetworkProblem]:
    """The problems of a plan, errors first. An error means that the cluster cannot have this
    network; a warning describes what does not work; an info is worth knowing.
    """
    found = [problem for rule in _RULES for problem in rule(plan)]
    order = {"error": 0, "warning": 1, "info": 2}
    return sorted(found, key=lambda problem: order[problem.severity])


def _cite(
    id: str,
    severity: Severity,
    node: str = "",
    message: str = "",
    remedy: str = "",
    **names: object,
) -> NetworkProblem:
    """With the record's text, unless a more specific one is given."""
    record: Record = RECORDS[id]
    text = (
        record.message.format(**names)
        if isinstance(record, WindowsLimit) and record.message
        else ""
    )
    help = record.remedy if isinstance(record, WindowsLimit) else record.enable or record.statement
    return NetworkProblem(
        id, severity, message or text or f"{record.title}. {record.statement}", remedy or help, node
    )


def _limits(plan: NetworkPlan, id: str, severity: Severity) -> Iterator[NetworkProblem]:
    """For each Windows node with a limitation of its build or updates."""
    limit = RECORDS[id]
    for node in plan.windows:
        target = NodeTarget(plan.release, node.build, None, plan.mode, plan.gates, node.revision)  # type: ignore[arg-type]
        if record_holds(limit, target):
            yield _cite(id, severity, node.name)


# ---- rules ----


def _known(plan: NetworkPlan) -> Iterator[NetworkProblem]:
    if plan.mode not in ALL_NETWORKS:
        yield _cite(
            "SUP-NET-006",
            "error",
            message=f"unknown network mode {plan.mode!r}",
            remedy=f"choose one of {', '.join(ALL_NETWORKS)}",
        )
        return
    if plan.mode == "nat":
        yield _cite("WIN-NET-012", "error")
        return
    if network_solution(plan.mode, plan.plugin) is None:
        fitting = [s.plugin for s in SOLUTIONS if s.mode == plan.mode]
        record = next(s.record for s in SOLUTIONS if s.mode == plan.mode)
        yield _cite(
            record,
            "error",
            message=f"{plan.plugin} makes no {plan.mode} network",
            remedy=f"for {plan.mode} choose {' or '.join(fitting)}",
        )


def _vxlan(plan: NetworkPlan) -> Iterator[NetworkProblem]:
    """flannel's own checks on Windows nodes, and the same values on Linux nodes."""
    chosen = network_solution(plan.mode, plan.plugin)
    if plan.mode != "overlay" or chosen is None or chosen.plugin != "flannel" or not plan.windows:
        return
    yield from vxlan_problems(flannel_backend("overlay", plan.backend))
    if plan.linux_backend is not None and plan.linux:
        linux = {k.lower(): v for k, v in plan.linux_backend.items()}
        if linux.get("type", "vxlan") == "vxlan":
            yield from vxlan_problems(
                {"VNI": LINUX_VNI, "Port": LINUX_VXLAN_PORT, **plan.linux_backend}
            )


def vxlan_problems(settings: Mapping[str, Any]) -> Iterator[NetworkProblem]:
    """The problems of one backend, with defaults filled in."""
    known = {k.lower(): v for k, v in settings.items()}
    vni, port, prefix = (
        known.get("vni", VNI),
        known.get("port", VXLAN_PORT),
        known.get("macprefix", "0E-2A"),
    )
    if vni < VNI:
        yield _cite("WIN-NET-008", "error", vni=vni)
    if port != VXLAN_PORT:
        yield _cite("WIN-NET-009", "error", port=port)
    for name in ("DirectRouting", "GBP"):
        if known.get(name.lower()):
            yield _cite(
                "SUP-NET-017",
                "error",
                message=f"invalid VXLAN backend config. {name} is not supported on Windows",
                remedy=f"Leave {name} out of net-conf.json.",
            )
    if len(prefix) != 5 or prefix[2] != "-":
        words = (
            f"invalid VXLAN backend config.MacPrefix [{prefix}] is invalid, prefix must be of "
            "the format xx-xx e.g. 0E-2A"
        )
        yield _cite(
            "SUP-NET-017",
            "error",
            message=words,
            remedy='Set "MacPrefix": "0E-2A" in net-conf.json, or leave it out.',
        )


def _both_sides(plan: NetworkPlan) -> Iterator[NetworkProblem]:
    """Linux and Windows nodes must use the same encapsulation."""
    chosen = network_solution(plan.mode, plan.plugin)
    if chosen is None or not plan.windows:
        return
    wanted = chosen.backend.get("Type", "")
    sides = [("Windows", plan.backend)]
    if plan.linux_backend is not None and plan.linux:
        sides.append(("Linux", plan.linux_backend))
    for side, settings in sides:
        kind = next((v for k, v in settings.items() if k.lower() == "type"), wanted)
        if kind != wanted:
            yield _cite(
                "SUP-NET-007",
                "error",
                message=f"flannel's backend {kind} of {side} nodes does not fit {plan.mode}, "
                f"which needs {wanted or 'none'}",
                remedy=f'Set "Type": "{wanted}" in net-conf.json for all nodes.',
            )
    ours = next(
        (v for k, v in flannel_backend(plan.mode, plan.backend).items() if k.lower() == "vni"), None
    )
    theirs = next((v for k, v in (plan.linux_backend or {}).items() if k.lower() == "vni"), ours)
    if plan.mode == "overlay" and ours != theirs and isinstance(theirs, int) and theirs >= VNI:
        yield _cite(
            "SUP-NET-007",
            "error",
            message=f"Linux nodes have VNI {theirs}, Windows nodes VNI {ours}",
            remedy="Set the same VNI in net-conf.json for all nodes.",
        )


def _updates(plan: NetworkPlan) -> Iterator[NetworkProblem]:
    """Windows builds that lack an update."""
    if plan.mode == "overlay":
        yield from _limits(plan, "WIN-NET-010", "error")
        yield from _limits(plan, "WIN-NET-011", "error")


def _overlay(plan: NetworkPlan) -> Iterator[NetworkProblem]:
    if plan.mode != "overlay" or not plan.windows:
        return
    if not plan.gate("WinOverlay"):
        yield _cite("WIN-NET-019", "error")
    elif record_holds(RECORDS["WIN-NET-019"], NodeTarget(plan.release, network="overlay")):
        record = RECORDS["WIN-NET-019"]
        yield _cite("WIN-NET-019", "info", message=record.statement, remedy="Prefer l2bridge.")
    chosen = network_solution(plan.mode, plan.plugin)
    if chosen is not None and chosen.plugin == "flannel":
        if version_numbers(plan.flannel_version) < (0, 12, 0):
            yield _cite("WIN-NET-007", "warning")
        vni = next(
            (v for k, v in flannel_backend("overlay", plan.backend).items() if k.lower() == "vni"),
            VNI,
        )
        if vni > VNI and version_numbers(plan.flannel_version) < (0, 14, 0):
            words = (
                f"flannel {plan.flannel_version} gives packets from Windows nodes to other nodes VNI "
                f"{VNI}, not {vni}: pods of different nodes do not reach each other"
            )
            remedy = f'Set "VNI": {VNI} in net-conf.json, or use flannel 0.14.0 or later.'
            yield _cite("SUP-NET-017", "warning", message=words, remedy=remedy)
        yield _cite("WIN-NET-006", "info")


def _old_flannel(plan: NetworkPlan) -> Iterator[NetworkProblem]:
    """0.11 is the first flannel with backends for Windows."""
    chosen = network_solution(plan.mode, plan.plugin)
    if chosen is None or chosen.plugin != "flannel" or not plan.windows:
        return
    if version_numbers(plan.flannel_version) < (0, 11):
        words = f"flannel {plan.flannel_version} has no backend for Windows: Windows nodes stay NotReady"
        yield _cite(chosen.record, "warning", message=words, remedy="Use flannel 0.11.0 or later.")


def _families(plan: NetworkPlan) -> Iterator[NetworkProblem]:
    """IPv6: never alone; with IPv4 on l2bridge, with the feature gate, on new builds."""
    if not plan.windows:
        return
    for cidrs in (plan.pod_cidrs, plan.service_cidrs):
        if cidrs and all(ipaddress.ip_network(text, strict=False).version == 6 for text in cidrs):
            yield _cite("WIN-NET-016", "error")
            return
    if not plan.dual_stack or plan.mode not in ALL_NETWORKS or plan.mode == "nat":
        return
    if plan.mode == "overlay":
        yield _cite("WIN-NET-013", "error")
    elif plan.mode != "l2bridge":
        yield _cite(
            _DUAL_STACK,
            "error",
            message=f"there is no dual stack on {plan.mode} networks",
            remedy="Use l2bridge.",
        )
    elif not plan.gate("IPv6DualStack"):
        yield _cite(
            _DUAL_STACK,
            "error",
            message="dual stack needs the feature gate IPv6DualStack, which is off",
            remedy="Set --feature-gates=IPv6DualStack=true.",
        )
    elif record_holds(RECORDS["WIN-NET-014"], NodeTarget(plan.release)):
        yield _cite("WIN-NET-014", "warning")
    else:
        yield from _limits(plan, "WIN-NET-015", "warning")
        if plan.plugin in _ONE_ADDRESS:
            words = f"{plan.plugin} gives pods one address: those of Windows nodes stay with IPv4"
            yield _cite(
                _DUAL_STACK,
                "warning",
                message=words,
                remedy="Leave the plugin out, or use sdnbridge.",
            )


_ONE_ADDRESS: Final = ("win-bridge", "azure")
_DUAL_STACK: Final = next(r.id for r in RECORDS.values() if "DS-01" in r.checklist)


def _specification(plan: NetworkPlan) -> Iterator[NetworkProblem]:
    """The CNI version of the configuration, and the plugins that do not support it."""
    chosen = network_solution(plan.mode, plan.plugin)
    if chosen is None or not plan.cni_version or not plan.windows:
        return
    maker = chosen.windows[-1]
    supported = windows_plugin_versions(plan.plugins_release)[maker]
    if plan.cni_version in supported:
        return
    quoted = " ".join(f'"{version}"' for version in supported)
    words = f'incompatible CNI versions; config is "{plan.cni_version}", plugin supports [{quoted}]'
    id = {"win-bridge": "WIN-NET-004", "win-overlay": "WIN-NET-005"}.get(maker, "SUP-NET-001")
    newest = supported[-1]
    yield _cite(
        id,
        "error",
        message=words,
        remedy="" if id.startswith("WIN") else f'Set "cniVersion": "{newest}".',
    )


def _addresses(plan: NetworkPlan) -> Iterator[NetworkProblem]:
    """IPAM plugins work only with some plugins."""
    chosen = network_solution(plan.mode, plan.plugin)
    if chosen is None or plan.ipam is None or plan.ipam in chosen.ipam or not plan.windows:
        return
    id = {"azure-vnet-ipam": "SUP-NET-032", "": "SUP-NET-031", "host-local": "SUP-NET-030"}.get(
        plan.ipam, "SUP-NET-006"
    )
    usual = " or ".join(f"ipam.type {kind}" if kind else "no ipam.type" for kind in chosen.ipam)
    named = plan.ipam or "the host networking service's own IPAM"
    yield _cite(
        id, "error", message=f"{named} does not serve {chosen.windows[-1]}", remedy=f"Use {usual}."
    )


def _underlay(plan: NetworkPlan) -> Iterator[NetworkProblem]:
    chosen = network_solution(plan.mode, plan.plugin)
    if (
        chosen is not None
        and chosen.plugin in ("win-bridge", "sdnbridge")
        and len(plan.nodes) > 1
        and plan.windows
    ):
        yield _cite("WIN-NET-017", "info")


_RULES: Final[tuple[Callable[[NetworkPlan], Iterator[NetworkProblem]], ...]] = (
    _known,
    _vxlan,
    _both_sides,
    _updates,
    _overlay,
    _old_flannel,
    _families,
    _specification,
    _addresses,
    _underlay,
)
