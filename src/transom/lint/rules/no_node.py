"""Pods for Windows that no node of the cluster takes."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Found
from transom.lint.rules.base import Rule
from transom.lint.rules.placement import anchor
from transom.lint.scene import Scene
from transom.windows.landscape import tolerated
from transom.windows.records import Limit


def find(scene: Scene) -> Iterator[Found]:
    landscape = scene.landscape
    if not landscape.live:
        return
    nodes = {node.name: node for node in landscape.nodes}
    for workload in scene.windows:
        if workload.partial or workload.verdict.weight == "hinted" or workload.spec.get("nodeName"):
            continue
        fitting = [nodes[name] for group in workload.groups for name in group.nodes]
        if not fitting:
            what = "no Windows node has the labels it selects" if nodes else "the cluster has no Windows nodes"
            yield Found(workload.obj, anchor(workload), what)
        elif not any(all(tolerated(taint, workload.spec) for taint in node.taints) for node in fitting):
            taint = fitting[0].taints[0]
            message = f"it does not tolerate the taint {taint.key}={taint.value}:{taint.effect} of the Windows nodes"
            yield Found(workload.obj, anchor(workload), message)


RULE = Rule("no-node", find, Limit(
    id="WIN-LINT-008",
    title="No Windows node takes the pod",
    statement="The scheduler finds no Windows node for the pod, by its selector or for its tolerations: it stays Pending.",
    effect="fails",
    remedy="Select by labels that the nodes have, and tolerate their taints.",
    severity="error",
    reason="FailedScheduling",
    message="0 nodes are available",
))
