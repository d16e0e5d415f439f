"""The settings of the CPU manager and the topology manager: their options by release, and the
errors with which a kubelet refuses to start. The texts are Kubernetes' own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transom.kit.gobool import parse_go_bool
from transom.kit.goquote import go_quote
from transom.kit.lazy_dataclass import dataclass
from transom.kubelet.cm.memory_cgroup import TIERED_RESERVATION
from transom.kubelet.cm.memory_manager import is_memory_type
from transom.kubelet.config import KubeletConfig
from transom.kubelet.features import MemoryFeatures, memory_features
from transom.machinery.quantity import parse_quantity
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.kubelet import kubelet_has
from transom.machinery.releases.policy_options import (
    OptionStage,
    cpu_manager_option_stage,
    topology_manager_option_stage,
)
from transom.machines.cpus import CpuTopology, parse_cpuset
from transom.machines.swap import proc_swaps

TOPOLOGY_POLICIES: Final = ("none", "best-effort", "restricted", "single-numa-node")
TOPOLOGY_SCOPES: Final = ("container", "pod")
_FULL, _CORES = "full-pcpus-only", "distribute-cpus-across-cores"
_NUMA, _CACHE = "distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache"
# Options that exclude each other.
_CONFLICTS: Final = ((_FULL, _CORES), (_NUMA, _CORES), (_CACHE, _CORES), (_CACHE, _NUMA))
_FEWEST_NUMA_NODES: Final = 8


@dataclass(frozen=True, slots=True)
class StaticPolicyOptions:
    full_cores: bool = False
    distribute_across_numa: bool = False
    align_by_socket: bool = False
    distribute_across_cores: bool = False
    strict_reservation: bool = False
    one_cache: bool = False


def manager_configuration_problems(config: KubeletConfig) -> list[str]:
    """What is wrong with the configuration itself, without `invalid configuration: `."""
    policy, scope, release = (
        config.topology_manager_policy,
        config.topology_manager_scope,
        config.release,
    )
    wrong = []
    gates = FeatureSet(Release(*release), config.feature_gates)
    if not gates.enabled("TopologyManager"):
        if policy != "none":
            wrong.append(f"topologyManagerPolicy {policy} requires feature gate TopologyManager")
        if scope != "container":
            wrong.append(f"topologyManagerScope {scope} requires feature gate TopologyManager")
    if policy not in TOPOLOGY_POLICIES:
        known = " ".join(map(go_quote, TOPOLOGY_POLICIES))
        wrong.append(
            f"topologyManagerPolicy (--topology-manager-policy) {go_quote(policy)} must be one of: "
            f"[{known}]"
            if kubelet_has(release, "TopologyErrorsNameFlags")
            else f"topologyManagerPolicy non-allowable value: {policy}"
        )
    if scope not in TOPOLOGY_SCOPES:
        wrong.append(
            f"topologyManagerScope (--topology-manager-scope) {go_quote(scope)} must be one of: "
            '"container", or "pod"'
            if kubelet_has(release, "TopologyErrorsNameFlags")
            else f"topologyManagerScope non-allowable value: {scope}"
        )
    wrong += _memory_problems(config)
    if config.reserved_system_cpus:
        try:
            parse_cpuset(config.reserved_system_cpus)
        except ValueError as problem:
            wrong.append(
                "unable to parse reservedSystemCPUs (--reserved-cpus) "
                f"{config.reserved_system_cpus}, error: {problem}"
            )
    return wrong


def _memory_problems(config: KubeletConfig) -> list[str]:
    features = memory_features(config.release, config.feature_gates)
    wrong = []
    seen: set[tuple[int, str]] = set()
    for node, limits in config.reserved_memory:
        for kind, text in limits.items():
            if not is_memory_type(kind):
                wrong.append(
                    f"the limit type {go_quote(kind)} for NUMA node {node} is not supported, only "
                    "[memory hugepages-<HugePageSize>] is accepted"
                )
            if parse_quantity(text).is_zero:
                wrong.append(
                    f"reserved memory may not be zero for NUMA node {node} and resource "
                    f"{go_quote(kind)}"
                )
            if (node, kind) in seen:
                wrong.append(
                    f"the reserved memory has a duplicate value for NUMA node {node} and resource "
                    f"{go_quote(kind)}"
                )
            seen.add((node, kind))
    wrong += _swap_problems(config, features)
    factor, policy = config.memory_throttling_factor, config.memory_reservation_policy or "None"
    if factor is not None and not 0 < factor <= 1:
        wrong.append(
            f"memoryThrottlingFactor {factor:g} must be greater than 0 and less than or equal to 1.0"
        )
    if features.throttles_best_effort and not features.memory_qos and factor not in (None, 0.9):
        wrong.append(
            "memoryThrottlingFactor must not be set when MemoryQoS feature gate is disabled"
        )
    if features.tiered_reservation:
        if policy == TIERED_RESERVATION and not features.memory_qos:
            wrong.append(
                f"memoryReservationPolicy {go_quote(policy)} requires MemoryQoS feature gate to be "
                "enabled"
            )
        if policy not in ("None", TIERED_RESERVATION):
            wrong.append(
                f"option {go_quote(policy)} specified for memoryReservationPolicy. Valid options "
                f'are "None" or {go_quote(TIERED_RESERVATION)}'
            )
    return wrong


def _swap_problems(config: KubeletConfig, features: MemoryFeatures) -> list[str]:
    behavior = config.swap_behavior
    if behavior and not features.node_swap:
        return ["memorySwap.swapBehavior cannot be set when NodeSwap feature flag is disabled"]
    last, comma = ("UnlimitedSwap", ",") if features.unlimited_by_default else ("NoSwap", "")
    if behavior in ("", "LimitedSwap", last):
        return []
    return [
        f'memorySwap.swapBehavior {go_quote(behavior)} must be one of: "", "LimitedSwap"{comma} or '
        f'"{last}"'
    ]


def check_swap_off(config: KubeletConfig, swap: int) -> None:
    """`swap` is that of a Linux machine, in bytes. Raises ValueError."""
    if not swap or not config.fail_swap_on:
        return
    if kubelet_has(Release(*config.release), "ShortSwapError"):
        raise ValueError(
            "running with swap on is not supported, please disable swap or set --fail-swap-on flag "
            "to false"
        )
    lines = " ".join(proc_swaps(swap).strip().split("\n"))
    raise ValueError(
        "running with swap on is not supported, please disable swap! or set --fail-swap-on flag to "
        f"false. /proc/swaps contained: [{lines}]"
    )


def static_policy_options(config: KubeletConfig) -> StaticPolicyOptions:
    """Raises ValueError."""
    gates = FeatureSet(Release(*config.release), config.feature_gates)
    has_stages = kubelet_has(config.release, "CpuManagerOptionStages")
    values = {}
    for name, text in config.cpu_manager_policy_options.items():
        stage = cpu_manager_option_stage(Release(*config.release), name)
        if stage is None and not has_stages:
            raise ValueError(f"unsupported cpumanager option: {go_quote(name)} ({text})")
        if stage is None:
            raise ValueError(f"unknown CPU Manager Policy option: {go_quote(name)}")
        if has_stages:
            _check_stage("CPU Manager Policy", "CPUManagerPolicy", stage, name, gates, lower=False)
        values[name] = _boolean(name, text)
    for one, other in _CONFLICTS:
        if values.get(one) and values.get(other):
            raise ValueError(
                f"static policy options {one} and {other} can not be used at the same time"
            )
    return StaticPolicyOptions(
        full_cores=values.get(_FULL, False),
        distribute_across_numa=values.get(_NUMA, False),
        align_by_socket=values.get("align-by-socket", False),
        distribute_across_cores=values.get(_CORES, False),
        strict_reservation=values.get("strict-cpu-reservation", False),
        one_cache=values.get(_CACHE, False),
    )


def check_option_gates(config: KubeletConfig) -> None:
    """Options of policies need their feature gates. Raises ValueError."""
    gates = FeatureSet(Release(*config.release), config.feature_gates)
    if config.cpu_manager_policy_options and not gates.enabled("CPUManagerPolicyOptions"):
        raise ValueError(
            f"CPU Manager policy options {_go_map(config.cpu_manager_policy_options)} require "
            'feature gates "CPUManager", "CPUManagerPolicyOptions" enabled'
        )
    if config.topology_manager_policy_options and not gates.enabled("TopologyManagerPolicyOptions"):
        needed = '"TopologyManagerPolicyOptions"'
        if not kubelet_has(config.release, "TopologyManagerWithoutGate"):
            needed = f'"TopologyManager", {needed}'
        raise ValueError(
            "topology manager policy options "
            f"{_go_map(config.topology_manager_policy_options)} require feature gates {needed} enabled"
        )


def check_topology_options(config: KubeletConfig, topology: CpuTopology) -> None:
    """Raises ValueError."""
    if config.topology_manager_policy == "none":
        return
    gates = FeatureSet(Release(*config.release), config.feature_gates)
    most = _FEWEST_NUMA_NODES
    for name, text in config.topology_manager_policy_options.items():
        stage = topology_manager_option_stage(Release(*config.release), name)
        if stage is None:
            raise ValueError(f"unknown Topology Manager Policy option: {go_quote(name)}")
        lower = kubelet_has(config.release, "LowerCaseTopologyErrors")
        title = "topology manager policy" if lower else "Topology Manager Policy"
        _check_stage(title, "TopologyManagerPolicy", stage, name, gates, lower=lower)
        if name == "prefer-closest-numa-nodes":
            _boolean(name, text)
        else:
            most = _most_numa_nodes(name, text)
    if topology.numa_nodes > most:
        raise ValueError(f"unsupported on machines with more than {most} NUMA Nodes")


def _most_numa_nodes(name: str, text: str) -> int:
    if not text.removeprefix("-").isdigit():
        raise ValueError(
            f"unable to convert policy option to integer {go_quote(name)}: "
            f"strconv.Atoi: parsing {go_quote(text)}: invalid syntax"
        )
    if int(text) < _FEWEST_NUMA_NODES:
        raise ValueError(
            f"the minimum value of {go_quote(name)} should not be less than {_FEWEST_NUMA_NODES}"
        )
    return int(text)


def _check_stage(
    title: str, gate: str, stage: OptionStage, name: str, gates: FeatureSet, *, lower: bool
) -> None:
    if stage == "stable" or gates.enabled(f"{gate}{stage.title()}Options"):
        return
    kind = f"{stage}-level options" if lower else f"{stage.title()}-level Options"
    raise ValueError(f"{title} {kind} not enabled, but option {go_quote(name)} provided")


def _boolean(name: str, text: str) -> bool:
    try:
        return parse_go_bool(text)
    except ValueError as problem:
        raise ValueError(f"bad value for option {go_quote(name)}: {problem}") from None


def _go_map(values: Mapping[str, str]) -> str:
    return f"map[{' '.join(f'{name}:{values[name]}' for name in sorted(values))}]"
