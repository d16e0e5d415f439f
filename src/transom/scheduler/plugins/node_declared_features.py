"""NodeDeclaredFeatures: rejects nodes that do not declare a feature that the pod needs."""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows, np
from transom.scheduler.framework import (
    BatchFilterPlugin,
    CycleState,
    Handle,
    NodeStatuses,
    PreFilterPlugin,
    Status,
    all_rows,
    unresolvable,
)
from transom.scheduler.pods import PodInfo

ERR_REASON = "node(s) didn't match Pod's required features"
_REJECTED = unresolvable(ERR_REASON)


def required_node_features(spec: Object) -> frozenset[str]:
    """The features that the kubelet of a pod must have."""
    out = set()
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            for rule in container.get("restartPolicyRules") or ():
                if rule.get("action") == "RestartAllContainers":
                    out.add("RestartAllContainersOnContainerExits")
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        out.add("UserNamespacesHostNetworkSupport")
    return frozenset(out)


class NodeDeclaredFeatures(PreFilterPlugin, BatchFilterPlugin):
    name = "NodeDeclaredFeatures"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._snapshot = handle.snapshot

    def pre_filter(self, state: CycleState, pod: PodInfo) -> Status | None:
        return None

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        required = required_node_features(pod.pod["spec"])
        if not required:
            return None
        return np.array([self._has(row, required) for row in rows.tolist()], np.bool_)

    def _has(self, row: int, required: frozenset[str]) -> bool:
        node = self._snapshot.at(row).node or {}
        return required <= set((node.get("status") or {}).get("declaredFeatures") or ())

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        return all_rows(_REJECTED, rows)
