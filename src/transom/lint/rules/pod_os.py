"""Windows pods that could set spec.os: from Kubernetes 1.25 on, the API server then validates them
better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from transom.lint.context import LintContext, LintWorkload
from transom.lint.findings import FixStep, LintFix, RuleMatch
from transom.lint.rules.base import LintRule
from transom.lint.rules.placement import pin_anchor
from transom.machinery.windows_fields import (
    WINDOWS_CONTAINER_CONTEXT_FORBIDS,
    WINDOWS_POD_CONTEXT_FORBIDS,
)
from transom.windows.podchecks import inner_pod
from transom.windows.records import WindowsLimit

# Fields that the API server rejects in a pod with spec.os Windows. The fix must not turn a pod with
# ignored fields into a rejected one.
_POD = ("hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")


def find_pod_os(context: LintContext) -> Iterator[RuleMatch]:
    for workload in context.windows:
        if (
            workload.verdict.pinned
            and not workload.partial
            and inner_pod(workload.spec, "os") is None
        ):
            change = FixStep("set", workload.at("os", "name"), "windows")
            fix = None if _refused(workload) else LintFix("set spec.os.name to windows", (change,))
            yield RuleMatch(
                workload.obj,
                pin_anchor(workload),
                "this pod selects Windows nodes, but does not set spec.os",
                fix=fix,
            )


def _refused(workload: LintWorkload) -> bool:
    return (
        _has(workload.spec, _POD)
        or _has(workload.spec.get("securityContext"), WINDOWS_POD_CONTEXT_FORBIDS)
        or any(
            _has(container.get("securityContext"), WINDOWS_CONTAINER_CONTEXT_FORBIDS)
            for _, container in workload.containers()
        )
    )


def _has(value: Any, keys: tuple[str, ...]) -> bool:
    return isinstance(value, Mapping) and any(value.get(key) is not None for key in keys)


RULE = LintRule(
    "pod-os",
    find_pod_os,
    WindowsLimit(
        id="WIN-LINT-004",
        title="A pod for Windows can set spec.os",
        statement="With spec.os the API refuses fields that Windows ignores, pod security standards "
        "leave out what only Linux "
        "has, and kubelets of the other system refuse the pod at once.",
        effect="degraded",
        remedy="Add `os: {name: windows}` to the pod's spec, beside the node selector.",
        since=(1, 25),
        severity="info",
    ),
)
