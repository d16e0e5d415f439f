"""What the rules about the place of a pod share: whether it may land on nodes of the other system, and how to pin it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from transom.lint.findings import Change, Fix
from transom.lint.scene import Scene, Workload
from transom.windows.landscape import Taint, tolerated
from transom.windows.podchecks import inner, listed

OS_LABEL: Final = "kubernetes.io/os"
_TAINT: Final = Taint("os", "windows", "NoSchedule")
_LINUX_CONTEXT: Final = ("capabilities", "privileged", "seLinuxOptions", "runAsUser", "runAsGroup", "readOnlyRootFilesystem")


def loose(scene: Scene) -> Iterator[Workload]:
    """The pods of a mixed cluster that nothing keeps on nodes of their system."""
    if not scene.mixed:
        return
    for workload in scene.workloads:
        if workload.verdict.pinned or workload.partial or workload.spec.get("nodeName"):
            continue
        if scene.landscape.live:
            may_land = bool(workload.groups) and (workload.windows or scene.landscape.admits(workload.spec))
        else:
            may_land = not _chooses_nodes(workload.spec)
        if may_land:
            yield workload


def _chooses_nodes(spec: Any) -> bool:
    """Whether labels of somebody's own choose nodes: then they may well be of one system."""
    return bool(spec.get("nodeSelector")) or bool(
        inner(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    )


def tolerates_everything(workload: Workload) -> int | None:
    """The toleration of every taint, by its index."""
    for i, one in enumerate(listed(workload.spec.get("tolerations"))):
        if isinstance(one, dict) and one.get("operator") == "Exists" and not one.get("key") and (
            one.get("effect") in (None, "", "NoSchedule")
        ):
            return i
    return None


def for_linux(workload: Workload) -> bool:
    """Whether anything but the lack of signs says Linux."""
    if workload.verdict.os == "linux":
        return True
    if any(inner(workload.spec, key) for key in ("hostPID", "hostIPC", "hostNetwork")):
        return True
    for _, container in workload.containers():
        context = container.get("securityContext")
        if isinstance(context, dict) and any(context.get(key) for key in _LINUX_CONTEXT):
            return True
        command = listed(container.get("command"))
        if command and isinstance(command[0], str) and command[0].startswith(("/bin/", "/usr/", "/sbin/")):
            return True
    return any(
        str(inner(volume, "hostPath", "path") or "").startswith(("/proc", "/sys", "/etc", "/dev"))
        for volume in listed(workload.spec.get("volumes"))
    )


def pin(workload: Workload) -> Fix | None:
    """The selector, and for Windows the toleration, that keep a pod where it belongs; None if that is a guess."""
    if workload.windows:
        if workload.verdict.weight == "hinted":
            return None
        changes = [Change("set", workload.at("nodeSelector", OS_LABEL), "windows")]
        if not tolerated(_TAINT, workload.spec):
            toleration = {"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}
            changes.append(Change("add", workload.at("tolerations"), toleration))
        return Fix("select Windows nodes and tolerate their taint", tuple(changes))
    if not for_linux(workload):
        return None
    return Fix("select Linux nodes", (Change("set", workload.at("nodeSelector", OS_LABEL), "linux"),))


def anchor(workload: Workload) -> tuple[str | int, ...]:
    return workload.at()
