"""Pods that could say that they are for Windows: from Kubernetes 1.25 on the API looks after them better then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from transom.lint.findings import Change, Fix, Found
from transom.lint.rules.base import Rule
from transom.lint.rules.placement import anchor
from transom.lint.scene import Scene, Workload
from transom.windows.podchecks import inner
from transom.windows.records import Limit

# What the API refuses in a pod that says Windows. The fix must not turn a pod that is ignored in part into none.
_POD = ("hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
_POD_CONTEXT = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls", "runAsUser",
    "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy",
)
_CONTEXT = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
)


def find(scene: Scene) -> Iterator[Found]:
    for workload in scene.windows:
        if workload.verdict.pinned and not workload.partial and inner(workload.spec, "os") is None:
            change = Change("set", workload.at("os", "name"), "windows")
            fix = None if _refused(workload) else Fix("say that the pod is for Windows", (change,))
            yield Found(workload.obj, anchor(workload), "this pod selects Windows nodes, but does not say spec.os", fix=fix)


def _refused(workload: Workload) -> bool:
    return (
        _has(workload.spec, _POD) or _has(workload.spec.get("securityContext"), _POD_CONTEXT)
        or any(_has(container.get("securityContext"), _CONTEXT) for _, container in workload.containers())
    )


def _has(value: Any, keys: tuple[str, ...]) -> bool:
    return isinstance(value, Mapping) and any(value.get(key) is not None for key in keys)


RULE = Rule("pod-os", find, Limit(
    id="WIN-LINT-004",
    title="A pod for Windows can say so",
    statement="With spec.os the API refuses fields that Windows ignores, pod security standards leave out what only Linux "
    "has, and kubelets of the other system refuse the pod at once.",
    effect="degraded",
    remedy="Add `os: {name: windows}` to the pod's spec, beside the node selector.",
    since=(1, 25),
    severity="info",
))
