"""Pods of a mixed cluster that name no operating system."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Found
from transom.lint.rules.base import Rule
from transom.lint.rules.placement import anchor, loose, pin, tolerates_everything
from transom.lint.scene import Scene


def find(scene: Scene) -> Iterator[Found]:
    for workload in loose(scene):
        if workload.obj.kind == "DaemonSet":
            continue
        if workload.windows:
            sign = workload.verdict.sign
            message = f"this pod is for Windows ({sign.text if sign else ''}), but may land on a Linux node"
            remedy = "Add `nodeSelector: {kubernetes.io/os: windows}`, and tolerate the taint of your Windows nodes."
        elif tolerates_everything(workload) is None:
            message = "this pod has no OS selector and may land on a Windows node"
            remedy = "Add `nodeSelector: {kubernetes.io/os: linux}`, or taint the Windows nodes with os=windows:NoSchedule."
        else:
            continue
        yield Found(workload.obj, anchor(workload), message, remedy=remedy, fix=pin(workload))


RULE = Rule("os-selector", find)
