"""Policies that demand of every pod what only Linux has.

Other tools recommend them, and in a cluster with Windows nodes they keep Windows pods out or make people write fields that
do nothing. The table of Kyverno and Gatekeeper names is short: only what is known to be about such fields is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from transom.lint.findings import Found
from transom.lint.objects import Object
from transom.lint.rules.base import Rule
from transom.lint.scene import Scene
from transom.windows.podchecks import inner, listed
from transom.windows.records import Limit

_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_CONSTRAINTS: Final = frozenset((
    "K8sPSPReadOnlyRootFilesystem", "K8sPSPCapabilities", "K8sPSPAllowPrivilegeEscalationContainer", "K8sPSPAllowedUsers",
    "K8sPSPSeccomp", "K8sPSPSeccompV2", "K8sPSPSELinux", "K8sPSPSELinuxV2", "K8sPSPAppArmor", "K8sPSPFSGroup",
))
_LINUX_FIELDS: Final = (
    "readOnlyRootFilesystem", "capabilities", "seccompProfile", "allowPrivilegeEscalation", "runAsUser", "seLinuxOptions",
)


def restricted(scene: Scene) -> Iterator[Found]:
    """Namespaces under the restricted standard, with Windows pods that do not say spec.os."""
    for namespace in scene.of("Namespace"):
        if namespace.labels.get(_ENFORCE) != "restricted":
            continue
        inside = [workload for workload in scene.windows if workload.obj.namespace == namespace.name]
        pods = [workload for workload in inside if inner(workload.spec, "os", "name") != "windows"]
        if pods:
            message = f"{pods[0].obj.title} is for Windows, but its namespace demands what only Linux has"
            yield Found(namespace, ("metadata", "labels", _ENFORCE), message)


def everywhere(scene: Scene) -> Iterator[Found]:
    """Policies for all pods, without an exception for Windows."""
    if not scene.mixed:
        return
    for obj in scene.objects:
        if obj.group == "constraints.gatekeeper.sh" and obj.kind in _CONSTRAINTS and not _spares_windows(obj):
            yield Found(obj, ("kind",), f"{obj.kind} also holds for Windows pods, which cannot meet it in earnest")
        elif obj.group == "kyverno.io" and obj.kind in ("ClusterPolicy", "Policy") and not _spares_windows(obj):
            for i, rule in enumerate(listed(obj.spec.get("rules"))):
                demands = [inner(rule, "validate", key) for key in ("pattern", "anyPattern", "foreach")]
                pattern = json.dumps(demands, default=str)
                field = next((name for name in _LINUX_FIELDS if f'{name}"' in pattern or f"{name})" in pattern), "")
                if field:
                    yield Found(obj, ("spec", "rules", i), f"the rule demands {field} of Windows pods too")


def _spares_windows(obj: Object) -> bool:
    return "windows" in json.dumps(obj.spec, default=str).lower()


RESTRICTED = Rule("restricted-namespace", restricted, Limit(
    id="WIN-LINT-006",
    title="The restricted standard demands Linux fields of Windows pods",
    statement="The standard asks for seccomp profiles, dropped capabilities and no privilege escalation. From 1.25 on it "
    "leaves that out for pods with spec.os windows; pods that do not say so are refused.",
    effect="rejected",
    remedy="Set `os: {name: windows}` in Windows pods (1.25 and later), or enforce baseline in their namespace.",
    since=(1, 23),
    severity="warning",
    message='violates PodSecurity "restricted"',
))
EVERYWHERE = Rule("linux-policies", everywhere, Limit(
    id="WIN-LINT-007",
    title="A policy demands of Windows pods what only Linux has",
    statement="Windows ignores read-only root file systems, capabilities, seccomp and numeric users, and from 1.25 on the API "
    "refuses them in pods that say they are for Windows: such pods then cannot be made at all.",
    effect="rejected",
    remedy="Leave out pods with spec.os.name windows, or namespaces of Windows workloads.",
    severity="warning",
))
