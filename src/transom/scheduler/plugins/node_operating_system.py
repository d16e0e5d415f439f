"""NodeOperatingSystem: Linux pods on Linux nodes, Windows pods on Windows nodes. Off by default.

Kubernetes 1.20 has no such plugin: a Linux pod without a node selector can be scheduled to a
Windows node, where it fails. With this plugin, a pod that does not state its operating system is a
Linux pod.
"""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows, np
from transom.scheduler.framework import (
    BatchFilterPlugin,
    CycleState,
    Handle,
    NodeStatuses,
    all_rows,
    unresolvable,
)
from transom.scheduler.pods import PodInfo

OS = "kubernetes.io/os"
ERR_REASON = "node(s) had another operating system than the pod is for"
_REJECTED = unresolvable(ERR_REASON)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class NodeOperatingSystem(BatchFilterPlugin):
    name = "NodeOperatingSystem"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._snapshot = handle.snapshot

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        wanted = pod_os(pod.pod["spec"])
        if not wanted:
            return None
        return np.array(
            [node_os(self._snapshot.at(row).node or {}) == wanted for row in rows.tolist()],
            np.bool_,
        )

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        return all_rows(_REJECTED, rows)


def node_os(node: Object) -> str:
    labels = (node.get("metadata") or {}).get("labels") or {}
    return (
        labels.get(OS)
        or ((node.get("status") or {}).get("nodeInfo") or {}).get("operatingSystem")
        or "linux"
    )


def pod_os(spec: Object) -> str:
    """The operating system of a pod; "" when its node affinity selects one, which then decides
    alone.
    """
    named = (spec.get("os") or {}).get("name") or (spec.get("nodeSelector") or {}).get(OS)
    if named:
        return str(named)
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        if any(expression.get("key") == OS for expression in term.get("matchExpressions") or ()):
            return ""
    contexts = [
        spec.get("securityContext"),
        *(c.get("securityContext") for c in spec.get("containers") or ()),
    ]
    return (
        "windows" if any((context or {}).get("windowsOptions") for context in contexts) else "linux"
    )
