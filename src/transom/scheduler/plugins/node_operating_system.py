"""NodeOperatingSystem: Linux pods on Linux nodes, Windows pods on Windows nodes. Off by default.

Kubernetes 1.20 has nothing of the kind: a Linux pod without a selector can land on a Windows node, and fails there. In a
cluster that has this on, a pod which does not say what it is for is taken for a Linux pod.
"""

from __future__ import annotations

import numpy as np

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows
from transom.scheduler.framework import Cycle, Handle, Verdict, Verdicts, everywhere

OS = "kubernetes.io/os"
_OTHER = Verdict(("node(s) had another operating system than the pod is for",), final=True)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class NodeOperatingSystem:
    name = "NodeOperatingSystem"

    def __init__(self, args: Object, handle: Handle) -> None:
        pass

    def filter(self, cycle: Cycle, rows: Rows) -> Mask | None:
        wanted = pod_os(cycle.pod.pod["spec"])
        if not wanted:
            return None
        return np.array([node_os(cycle.snapshot.at(row).node or {}) == wanted for row in rows.tolist()], np.bool_)

    def verdicts(self, cycle: Cycle, rows: Rows) -> Verdicts:
        return everywhere(_OTHER, rows)


def node_os(node: Object) -> str:
    labels = (node.get("metadata") or {}).get("labels") or {}
    return labels.get(OS) or ((node.get("status") or {}).get("nodeInfo") or {}).get("operatingSystem") or "linux"


def pod_os(spec: Object) -> str:
    """What a pod is for; "" when its node affinity speaks of operating systems, which then decides alone."""
    named = (spec.get("os") or {}).get("name") or (spec.get("nodeSelector") or {}).get(OS)
    if named:
        return str(named)
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        if any(expression.get("key") == OS for expression in term.get("matchExpressions") or ()):
            return ""
    contexts = [spec.get("securityContext"), *(c.get("securityContext") for c in spec.get("containers") or ())]
    return "windows" if any((context or {}).get("windowsOptions") for context in contexts) else "linux"
