"""DaemonSets that go to nodes of the wrong system."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Found
from transom.lint.rules.base import Rule
from transom.lint.rules.placement import anchor, loose, pin, tolerates_everything
from transom.lint.scene import Scene


def find(scene: Scene) -> Iterator[Found]:
    for workload in loose(scene):
        if workload.obj.kind != "DaemonSet":
            continue
        index = tolerates_everything(workload)
        if workload.windows:
            message, steps = "this DaemonSet for Windows also puts a pod on every Linux node", anchor(workload)
        elif index is not None:
            message = "this DaemonSet puts a pod on every Windows node: it names no OS, and its toleration passes every taint"
            steps = workload.at("tolerations", index)
        else:
            message, steps = "this DaemonSet puts a pod on every Windows node that has no taint", anchor(workload)
        yield Found(workload.obj, steps, message, fix=pin(workload))


RULE = Rule("daemonset-os", find)
