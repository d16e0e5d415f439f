"""Selectors of an operating system that no node has: labels are compared to the letter."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Change, Fix, Found
from transom.lint.rules.base import Rule
from transom.lint.scene import Scene
from transom.windows.podchecks import inner
from transom.windows.records import Limit
from transom.windows.targeting import OS_LABELS


def find(scene: Scene) -> Iterator[Found]:
    for workload in scene.windows:
        for label in OS_LABELS:
            value = inner(workload.spec, "nodeSelector", label)
            if isinstance(value, str) and value != "windows" and value.lower() == "windows":
                steps = workload.at("nodeSelector", label)
                fix = Fix("write windows in small letters", (Change("set", steps, "windows"),))
                yield Found(workload.obj, steps, f"no node has the label {label}={value}", fix=fix)


RULE = Rule("selector-case", find, Limit(
    id="WIN-LINT-001",
    title="The operating system's label is written in small letters",
    statement="Nodes have the label kubernetes.io/os=windows, and labels are compared to the letter: the pod stays Pending.",
    effect="fails",
    remedy="Write `kubernetes.io/os: windows`.",
    severity="error",
    reason="FailedScheduling",
    message="node(s) didn't match node selector",
))
