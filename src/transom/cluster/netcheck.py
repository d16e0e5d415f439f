"""Whether a cluster can have the network it is to have, before anything is started."""

from __future__ import annotations

from collections.abc import Iterable

from transom.cluster import families
from transom.cluster.config import ClusterConfig
from transom.cluster.errors import ClusterError
from transom.cluster.features import gates
from transom.cluster.nodes import NodeSpec, has_ipv6
from transom.network import modes
from transom.network.cni.windows import DEFAULT_RELEASE
from transom.windows import builds, releases


def check(config: ClusterConfig, nodes: Iterable[NodeSpec]) -> list[str]:
    """Raises ClusterError; the answer is what a user should know all the same."""
    nodes = list(nodes)
    for node in nodes:
        if node.network_mode and node.network_mode != config.network.mode:
            raise ClusterError(
                f"node {node.name!r}: its network mode {node.network_mode} is not the cluster's, {config.network.mode}",
                f"choose one for all: transom up --network {node.network_mode}",
            )
    problems = modes.check(plan_of(config, nodes))
    for problem in problems:
        if problem.severity == "error":
            raise ClusterError(f"{problem.text} ({problem.id})", problem.remedy)
    if not (families.of(config.pod_cidr, 4) and families.of(config.service_cidr, 4)):
        raise ClusterError("pods and services of IPv6 alone are not supported", "use IPv4, or both: --dual-stack")
    found = [f"{problem.text} ({problem.id})" for problem in problems if problem.severity == "warning"]
    return found + [
        f"{node.name}: its pods stay with IPv4: Docker has no namespaces of HNS, which sdnbridge needs for two addresses"
        for node in nodes if node.windows and node.runtime == "docker" and has_ipv6(config, node)
    ]


def plan_of(config: ClusterConfig, nodes: Iterable[NodeSpec]) -> modes.Plan:
    settings = config.network
    known = gates(config.feature_gates)
    nodes = list(nodes)
    containerd = any(node.windows and node.runtime == "containerd" for node in nodes)
    return modes.Plan(
        mode=settings.mode, plugin=settings.chosen_plugin, release=releases.parse(config.release),
        nodes=tuple(
            modes.NodePlan(node.name, "windows" if node.windows else "linux", node.build or None,
                           builds.BUILDS[node.build].ubr if node.build else None)
            for node in nodes
        ),
        backend=settings.backend, pod_cidrs=families.split(config.pod_cidr),
        service_cidrs=families.split(config.service_cidr),
        dual_stack=settings.dual_stack, cni_version=settings.cni_version, flannel_version=settings.flannel_version,
        plugins_release="1.0" if containerd else DEFAULT_RELEASE,
        gates=frozenset(name for name, on in known.items() if on), off=frozenset(n for n, on in known.items() if not on),
    )  # fmt: skip
