"""Checks the network of a cluster before it starts: what the network mode, the plugin and the nodes
support. It imports all Windows limitations, so import it only where needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from transom.kit.user_errors import UserError
from transom.network import modes
from transom.network.cni.windows import DEFAULT_RELEASE
from transom.node.settings import ClusterSettings, cidr_of_family, split_cidrs
from transom.node.spec import NodeSpec, node_has_ipv6, windows_build
from transom.windows import releases


def check_network(
    settings: ClusterSettings, feature_gates: Mapping[str, bool], nodes: Iterable[NodeSpec]
) -> list[str]:
    """Raises UserError; returns warnings."""
    nodes = list(nodes)
    for node in nodes:
        if node.network_mode and node.network_mode != settings.network.mode:
            raise UserError(
                (
                    f"node {node.name!r}: its network mode {node.network_mode} is not the "
                    f"cluster's, {settings.network.mode}"
                ),
                f"choose one for all: transom up --network {node.network_mode}",
            )
    problems = modes.check_network_plan(network_plan(settings, feature_gates, nodes))
    for problem in problems:
        if problem.severity == "error":
            raise UserError(f"{problem.text} ({problem.id})", problem.remedy)
    if not (cidr_of_family(settings.pod_cidr, 4) and cidr_of_family(settings.service_cidr, 4)):
        raise UserError(
            "pods and services of IPv6 alone are not supported", "use IPv4, or both: --dual-stack"
        )
    found = [
        f"{problem.text} ({problem.id})" for problem in problems if problem.severity == "warning"
    ]
    return found + [
        (
            f"{node.name}: its pods stay with IPv4: Docker has no namespaces of HNS, which "
            "sdnbridge needs for two addresses"
        )
        for node in nodes
        if node.windows and node.runtime == "docker" and node_has_ipv6(settings, node)
    ]


def network_plan(
    settings: ClusterSettings, feature_gates: Mapping[str, bool], nodes: Iterable[NodeSpec]
) -> modes.NetworkPlan:
    network = settings.network
    nodes = list(nodes)
    containerd = any(node.windows and node.runtime == "containerd" for node in nodes)
    return modes.NetworkPlan(
        mode=network.mode,
        plugin=network.chosen_plugin,
        release=releases.parse_release_version(settings.release),
        nodes=tuple(
            modes.NodePlan(
                node.name,
                "windows" if node.windows else "linux",
                node.build or None,
                windows_build(node).ubr if node.build else None,
            )
            for node in nodes
        ),
        backend=network.backend,
        pod_cidrs=split_cidrs(settings.pod_cidr),
        service_cidrs=split_cidrs(settings.service_cidr),
        dual_stack=network.dual_stack,
        cni_version=network.cni_version,
        flannel_version=network.flannel_version,
        plugins_release="1.0" if containerd else DEFAULT_RELEASE,
        gates=frozenset(name for name, on in feature_gates.items() if on),
        off=frozenset(n for n, on in feature_gates.items() if not on),
    )
