"""Selectors with an operating system that no node has: label values are case-sensitive."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.context import LintContext
from transom.lint.findings import FixStep, LintFix, RuleMatch
from transom.lint.rules.base import LintRule
from transom.windows.podchecks import inner_pod
from transom.windows.records import WindowsLimit
from transom.windows.targeting import OS_LABELS


def find_selector_case(context: LintContext) -> Iterator[RuleMatch]:
    for workload in context.windows:
        for label in OS_LABELS:
            value = inner_pod(workload.spec, "nodeSelector", label)
            if isinstance(value, str) and value != "windows" and value.lower() == "windows":
                steps = workload.at("nodeSelector", label)
                fix = LintFix("write windows in small letters", (FixStep("set", steps, "windows"),))
                yield RuleMatch(
                    workload.obj, steps, f"no node has the label {label}={value}", fix=fix
                )


RULE = LintRule(
    "selector-case",
    find_selector_case,
    WindowsLimit(
        id="WIN-LINT-001",
        title="The operating system's label is written in small letters",
        statement=(
            "Nodes have the label kubernetes.io/os=windows, and labels are compared to the "
            "letter: the pod stays Pending."
        ),
        effect="fails",
        remedy="Write `kubernetes.io/os: windows`.",
        severity="error",
        reason="FailedScheduling",
        message="node(s) didn't match node selector",
    ),
)
