"""Warnings of `transom up` and `transom node add` about nodes that start but that the selected
release does not support.

Errors are in `spec` and `network_checks`; these are only warnings, because the node works.
"""

from __future__ import annotations

from collections.abc import Iterable

from transom.kit.versions import version_numbers
from transom.machinery.quantity import parse_quantity
from transom.node.settings import ClusterSettings
from transom.node.spec import SMALL_NODE_CPUS, NodeSpec, kubelet_version, recommended_cpu
from transom.windows import releases

_RECOMMENDED_MEMORY = 2 * 10**9


def node_warnings(settings: ClusterSettings, nodes: Iterable[NodeSpec]) -> list[str]:
    """For each Windows node: an unsupported build or runtime version, too little reserved memory,
    no reserved CPU.
    """
    return [
        f"{node.name}: {text}"
        for node in nodes
        if node.windows
        for text in _warnings(settings, node)
    ]


def _warnings(settings: ClusterSettings, node: NodeSpec) -> list[str]:
    release = releases.parse_release_version(kubelet_version(settings, node))
    facts = releases.release_facts(release)
    out = []
    if node.build not in facts.builds:
        supported = ", ".join(map(str, facts.builds))
        out.append(
            f"Kubernetes {releases.release_text(release)} does not support Windows build "
            f"{node.build} as a node;"
            f" supported: {supported} (WIN-OS-001)"
        )
    oldest = facts.runtimes().get(node.runtime, "")
    if oldest and version_numbers(node.runtime_version) < version_numbers(oldest):
        record = " (WIN-RUN-002)" if node.runtime == "containerd" else ""
        out.append(
            f"{node.runtime} {node.runtime_version} is not supported with Kubernetes "
            f"{releases.release_text(release)};"
            f" the oldest supported version is {oldest}{record}"
        )
    reserved = _reserved(node, "memory")
    if reserved < _RECOMMENDED_MEMORY:
        out.append(
            f"{'no' if not reserved else 'less than 2 GB of'} memory is reserved for "
            "Windows, the container runtime"
            " and Kubernetes processes; set systemReserved: {memory: 2Gi} (SUP-RES-005)"
        )
    if (
        releases.recommends_reserved_cpu(release)
        and node.cpus > SMALL_NODE_CPUS
        and not _reserved(node, "cpu")
    ):
        out.append(
            "no CPU is reserved for Windows, the container runtime and Kubernetes processes; "
            "set for example"
            f" systemReserved: {{cpu: {recommended_cpu(node.cpus)}}} (SUP-RES-006)"
        )
    return out


def _reserved(node: NodeSpec, resource: str) -> int:
    """In bytes, or in thousandths of a CPU."""
    given = (
        reserved.get(resource) for reserved in (node.kube_reserved, node.system_reserved or {})
    )
    return sum(
        parse_quantity(text).milli_value() if resource == "cpu" else parse_quantity(text).value()
        for text in given
        if text
    )
