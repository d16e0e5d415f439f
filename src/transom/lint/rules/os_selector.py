"""Pods in a mixed cluster that do not select an operating system."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.context import LintContext
from transom.lint.findings import RuleMatch
from transom.lint.rules.base import LintRule
from transom.lint.rules.placement import is_unpinned, pin_anchor, pin_fix, tolerates_everything


def find_os_selector(context: LintContext) -> Iterator[RuleMatch]:
    for workload in is_unpinned(context):
        if workload.obj.kind == "DaemonSet":
            continue
        if workload.windows:
            sign = workload.verdict.sign
            message = (
                f"this pod is for Windows ({sign.text if sign else ''}), but may land on a Linux "
                "node"
            )
            remedy = (
                "Add `nodeSelector: {kubernetes.io/os: windows}`, and tolerate the taint of your "
                "Windows nodes."
            )
        elif tolerates_everything(workload) is None:
            message = "this pod has no OS selector and may land on a Windows node"
            remedy = (
                "Add `nodeSelector: {kubernetes.io/os: linux}`, or taint the Windows nodes with "
                "os=windows:NoSchedule."
            )
        else:
            continue
        yield RuleMatch(
            workload.obj, pin_anchor(workload), message, remedy=remedy, fix=pin_fix(workload)
        )


RULE = LintRule("os-selector", find_os_selector)
