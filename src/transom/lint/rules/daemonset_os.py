"""DaemonSets that run on nodes of the wrong operating system."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.context import LintContext
from transom.lint.findings import RuleMatch
from transom.lint.rules.base import LintRule
from transom.lint.rules.placement import is_unpinned, pin_anchor, pin_fix, tolerates_everything


def find_daemonset_os(context: LintContext) -> Iterator[RuleMatch]:
    for workload in is_unpinned(context):
        if workload.obj.kind != "DaemonSet":
            continue
        index = tolerates_everything(workload)
        if workload.windows:
            message, steps = (
                "this DaemonSet for Windows also puts a pod on every Linux node",
                pin_anchor(workload),
            )
        elif index is not None:
            message = (
                "this DaemonSet puts a pod on every Windows node: it names no OS, and its "
                "toleration passes every taint"
            )
            steps = workload.at("tolerations", index)
        else:
            message, steps = (
                "this DaemonSet puts a pod on every Windows node that has no taint",
                pin_anchor(workload),
            )
        yield RuleMatch(workload.obj, steps, message, fix=pin_fix(workload))


RULE = LintRule("daemonset-os", find_daemonset_os)
