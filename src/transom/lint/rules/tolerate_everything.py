"""Tolerations that let a pod past every taint, that of Windows nodes too."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Found
from transom.lint.rules.base import Rule
from transom.lint.rules.placement import loose, pin, tolerates_everything
from transom.lint.scene import Scene


def find(scene: Scene) -> Iterator[Found]:
    for workload in loose(scene):
        index = tolerates_everything(workload)
        if index is None or workload.windows or workload.obj.kind == "DaemonSet":
            continue
        message = "it tolerates every taint and names no OS: taints do not keep this pod off Windows nodes"
        yield Found(workload.obj, workload.at("tolerations", index), message, fix=pin(workload))


RULE = Rule("tolerate-everything", find)
