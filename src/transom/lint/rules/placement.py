"""Shared by the rules about scheduling: whether a pod may be scheduled to nodes of the wrong
operating system, and how to prevent that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from transom.lint.context import LintContext, LintWorkload
from transom.lint.findings import FixStep, LintFix
from transom.windows.podchecks import inner_pod, list_or_empty
from transom.windows.target_nodes import NodeTaint, tolerates_taints

OS_LABEL: Final = "kubernetes.io/os"
_TAINT: Final = NodeTaint("os", "windows", "NoSchedule")
_LINUX_CONTEXT: Final = (
    "capabilities",
    "privileged",
    "seLinuxOptions",
    "runAsUser",
    "runAsGroup",
    "readOnlyRootFilesystem",
)


def is_unpinned(context: LintContext) -> Iterator[LintWorkload]:
    """The pods of a mixed cluster that nothing restricts to nodes of their operating system."""
    if not context.mixed:
        return
    for workload in context.workloads:
        if workload.verdict.pinned or workload.partial or workload.spec.get("nodeName"):
            continue
        if context.target_nodes.live:
            can_be_scheduled = bool(workload.groups) and (
                workload.windows or context.target_nodes.admits(workload.spec)
            )
        else:
            can_be_scheduled = not _chooses_nodes(workload.spec)
        if can_be_scheduled:
            yield workload


def _chooses_nodes(spec: Any) -> bool:
    """Whether custom labels select nodes, which may then all have one operating system."""
    return bool(spec.get("nodeSelector")) or bool(
        inner_pod(
            spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
        )
    )


def tolerates_everything(workload: LintWorkload) -> int | None:
    """The index of the toleration that matches every taint."""
    for i, one in enumerate(list_or_empty(workload.spec.get("tolerations"))):
        if (
            isinstance(one, dict)
            and one.get("operator") == "Exists"
            and not one.get("key")
            and (one.get("effect") in (None, "", "NoSchedule"))
        ):
            return i
    return None


def is_for_linux(workload: LintWorkload) -> bool:
    """Whether anything indicates Linux, other than the absence of Windows settings."""
    if workload.verdict.os == "linux":
        return True
    if any(inner_pod(workload.spec, key) for key in ("hostPID", "hostIPC", "hostNetwork")):
        return True
    for _, container in workload.containers():
        context = container.get("securityContext")
        if isinstance(context, dict) and any(context.get(key) for key in _LINUX_CONTEXT):
            return True
        command = list_or_empty(container.get("command"))
        if (
            command
            and isinstance(command[0], str)
            and command[0].startswith(("/bin/", "/usr/", "/sbin/"))
        ):
            return True
    return any(
        str(inner_pod(volume, "hostPath", "path") or "").startswith(
            ("/proc", "/sys", "/etc", "/dev")
        )
        for volume in list_or_empty(workload.spec.get("volumes"))
    )


def pin_fix(workload: LintWorkload) -> LintFix | None:
    """The node selector, and for Windows the toleration, that keep a pod on the right nodes; None
    if the operating system is a guess.
    """
    if workload.windows:
        if workload.verdict.weight == "hinted":
            return None
        changes = [FixStep("set", workload.at("nodeSelector", OS_LABEL), "windows")]
        if not tolerates_taints(_TAINT, workload.spec):
            toleration = {
                "key": "os",
                "operator": "Equal",
                "value": "windows",
                "effect": "NoSchedule",
            }
            changes.append(FixStep("add", workload.at("tolerations"), toleration))
        return LintFix("select Windows nodes and tolerate their taint", tuple(changes))
    if not is_for_linux(workload):
        return None
    return LintFix(
        "select Linux nodes", (FixStep("set", workload.at("nodeSelector", OS_LABEL), "linux"),)
    )


def pin_anchor(workload: LintWorkload) -> tuple[str | int, ...]:
    return workload.at()
