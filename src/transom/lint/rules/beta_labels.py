"""Selectors with labels that nodes no longer have in newer releases."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.context import LintContext
from transom.lint.findings import RuleMatch
from transom.lint.rules.base import LintRule
from transom.windows.podchecks import inner_pod
from transom.windows.records import WindowsLimit

_OLD = "beta.kubernetes.io/os"


def find_beta_labels(context: LintContext) -> Iterator[RuleMatch]:
    for workload in context.windows:
        if inner_pod(workload.spec, "nodeSelector", _OLD) == "windows":
            yield RuleMatch(
                workload.obj,
                workload.at("nodeSelector", _OLD),
                f"{_OLD} is deprecated: use kubernetes.io/os",
            )


RULE = LintRule(
    "beta-labels",
    find_beta_labels,
    WindowsLimit(
        id="WIN-LINT-002",
        title="beta.kubernetes.io/os is deprecated",
        statement=(
            "The label is deprecated since Kubernetes 1.14; kubelets still set it, but it may go "
            "with any release."
        ),
        effect="degraded",
        remedy="Select by kubernetes.io/os.",
        severity="info",
    ),
)
