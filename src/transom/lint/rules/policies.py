"""Policies that require Linux-only fields in every pod.

Other tools recommend them. In a cluster with Windows nodes they block Windows pods, or require
fields that have no effect. The table of Kyverno and Gatekeeper names is short: it contains only
policies that are known to check such fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from transom.lint.context import LintContext
from transom.lint.findings import RuleMatch
from transom.lint.objects import ManifestObject
from transom.lint.rules.base import LintRule
from transom.windows.podchecks import inner_pod, list_or_empty
from transom.windows.records import WindowsLimit

_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_CONSTRAINTS: Final = frozenset(
    (
        "K8sPSPReadOnlyRootFilesystem",
        "K8sPSPCapabilities",
        "K8sPSPAllowPrivilegeEscalationContainer",
        "K8sPSPAllowedUsers",
        "K8sPSPSeccomp",
        "K8sPSPSeccompV2",
        "K8sPSPSELinux",
        "K8sPSPSELinuxV2",
        "K8sPSPAppArmor",
        "K8sPSPFSGroup",
    )
)
_LINUX_FIELDS: Final = (
    "readOnlyRootFilesystem",
    "capabilities",
    "seccompProfile",
    "allowPrivilegeEscalation",
    "runAsUser",
    "seLinuxOptions",
)


def find_restricted_policies(context: LintContext) -> Iterator[RuleMatch]:
    """Namespaces with the restricted standard that have Windows pods without spec.os."""
    for namespace in context.of("Namespace"):
        if namespace.labels.get(_ENFORCE) != "restricted":
            continue
        inside = [
            workload for workload in context.windows if workload.obj.namespace == namespace.name
        ]
        pods = [
            workload for workload in inside if inner_pod(workload.spec, "os", "name") != "windows"
        ]
        if pods:
            message = (
                f"{pods[0].obj.title} is for Windows, but its namespace demands what only Linux has"
            )
            yield RuleMatch(namespace, ("metadata", "labels", _ENFORCE), message)


def find_policies_everywhere(context: LintContext) -> Iterator[RuleMatch]:
    """Policies for all pods, without an exception for Windows pods."""
    if not context.mixed:
        return
    for obj in context.objects:
        if (
            obj.group == "constraints.gatekeeper.sh"
            and obj.kind in _CONSTRAINTS
            and not _spares_windows(obj)
        ):
            yield RuleMatch(
                obj,
                ("kind",),
                f"{obj.kind} also holds for Windows pods, which cannot meet it in earnest",
            )
        elif (
            obj.group == "kyverno.io"
            and obj.kind in ("ClusterPolicy", "Policy")
            and not _spares_windows(obj)
        ):
            for i, rule in enumerate(list_or_empty(obj.spec.get("rules"))):
                demands = [
                    inner_pod(rule, "validate", key) for key in ("pattern", "anyPattern", "foreach")
                ]
                pattern = json.dumps(demands, default=str)
                field = next(
                    (
                        name
                        for name in _LINUX_FIELDS
                        if f'{name}"' in pattern or f"{name})" in pattern
                    ),
                    "",
                )
                if field:
                    yield RuleMatch(
                        obj, ("spec", "rules", i), f"the rule demands {field} of Windows pods too"
                    )


def _spares_windows(obj: ManifestObject) -> bool:
    return "windows" in json.dumps(obj.spec, default=str).lower()


RESTRICTED = LintRule(
    "restricted-namespace",
    find_restricted_policies,
    WindowsLimit(
        id="WIN-LINT-006",
        title="The restricted standard demands Linux fields of Windows pods",
        statement="The standard asks for seccomp profiles, dropped capabilities and no privilege "
        "escalation. From 1.25 on it "
        "leaves that out for pods with spec.os windows; pods without it are refused.",
        effect="rejected",
        remedy=(
            "Set `os: {name: windows}` in Windows pods (1.25 and later), or enforce baseline in "
            "their namespace."
        ),
        since=(1, 23),
        severity="warning",
        message='violates PodSecurity "restricted"',
    ),
)
EVERYWHERE = LintRule(
    "linux-policies",
    find_policies_everywhere,
    WindowsLimit(
        id="WIN-LINT-007",
        title="A policy demands of Windows pods what only Linux has",
        statement="Windows ignores read-only root file systems, capabilities, seccomp and numeric "
        "users, and from 1.25 on the API "
        "refuses them in pods with spec.os windows: such pods then cannot be created at all.",
        effect="rejected",
        remedy="Leave out pods with spec.os.name windows, or namespaces of Windows workloads.",
        severity="warning",
    ),
)
