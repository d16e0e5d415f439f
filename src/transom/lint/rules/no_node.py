"""Windows pods that cannot be scheduled to any node of the cluster."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.context import LintContext
from transom.lint.findings import RuleMatch
from transom.lint.rules.base import LintRule
from transom.lint.rules.placement import pin_anchor
from transom.windows.records import WindowsLimit
from transom.windows.target_nodes import tolerates_taints


def find_no_node(context: LintContext) -> Iterator[RuleMatch]:
    target_nodes = context.target_nodes
    if not target_nodes.live:
        return
    nodes = {node.name: node for node in target_nodes.nodes}
    for workload in context.windows:
        if workload.partial or workload.verdict.weight == "hinted" or workload.spec.get("nodeName"):
            continue
        fitting = [nodes[name] for group in workload.groups for name in group.nodes]
        if not fitting:
            what = (
                "no Windows node has the labels it selects"
                if nodes
                else "the cluster has no Windows nodes"
            )
            yield RuleMatch(workload.obj, pin_anchor(workload), what)
        elif not any(
            all(tolerates_taints(taint, workload.spec) for taint in node.taints) for node in fitting
        ):
            taint = fitting[0].taints[0]
            message = (
                f"it does not tolerate the taint {taint.key}={taint.value}:{taint.effect} of the "
                "Windows nodes"
            )
            yield RuleMatch(workload.obj, pin_anchor(workload), message)


RULE = LintRule(
    "no-node",
    find_no_node,
    WindowsLimit(
        id="WIN-LINT-008",
        title="No Windows node takes the pod",
        statement=(
            "The scheduler finds no Windows node for the pod, by its selector or for its "
            "tolerations: it stays Pending."
        ),
        effect="fails",
        remedy="Select by labels that the nodes have, and tolerate their taints.",
        severity="error",
        reason="FailedScheduling",
        message="0 nodes are available",
    ),
)
