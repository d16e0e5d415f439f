"""Tolerations that match every taint, including that of Windows nodes."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.context import LintContext
from transom.lint.findings import RuleMatch
from transom.lint.rules.base import LintRule
from transom.lint.rules.placement import is_unpinned, pin_fix, tolerates_everything


def find_tolerate_everything(context: LintContext) -> Iterator[RuleMatch]:
    for workload in is_unpinned(context):
        index = tolerates_everything(workload)
        if index is None or workload.windows or workload.obj.kind == "DaemonSet":
            continue
        message = (
            "it tolerates every taint and names no OS: taints do not keep this pod off Windows "
            "nodes"
        )
        yield RuleMatch(
            workload.obj, workload.at("tolerations", index), message, fix=pin_fix(workload)
        )


RULE = LintRule("tolerate-everything", find_tolerate_everything)
