"""NetworkPolicies for Windows pods: not every network plugin enforces them."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.context import LintContext
from transom.lint.findings import RuleMatch
from transom.lint.rules.base import LintRule
from transom.windows.records import WindowsLimit


def find_network_policy(context: LintContext) -> Iterator[RuleMatch]:
    for policy in context.of("NetworkPolicy", "networking.k8s.io"):
        if any(workload.windows for workload in context.chosen(policy)):
            yield RuleMatch(
                policy,
                ("spec", "podSelector"),
                "it is about Windows pods, for which few network plugins enforce it",
            )


RULE = LintRule(
    "network-policy",
    find_network_policy,
    WindowsLimit(
        id="WIN-LINT-009",
        title="NetworkPolicies are not enforced by every plugin on Windows",
        statement="The reference plugins win-bridge and win-overlay, alone or under flannel, let all "
        "traffic pass, unless an agent "
        "beside them enforces policies, as in a cluster of Transom.",
        effect="ignored",
        remedy=(
            "Use a plugin or agent that enforces policies on Windows nodes, such as "
            "ovn-kubernetes, Calico or Antrea."
        ),
        checklist=("NET-32",),
        networks=("l2bridge", "overlay"),
        severity="warning",
    ),
)
