"""Selectors by labels that newer releases no longer give to nodes."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Found
from transom.lint.rules.base import Rule
from transom.lint.scene import Scene
from transom.windows.podchecks import inner
from transom.windows.records import Limit

_OLD = "beta.kubernetes.io/os"


def find(scene: Scene) -> Iterator[Found]:
    for workload in scene.windows:
        if inner(workload.spec, "nodeSelector", _OLD) == "windows":
            yield Found(workload.obj, workload.at("nodeSelector", _OLD), f"{_OLD} is deprecated: use kubernetes.io/os")


RULE = Rule("beta-labels", find, Limit(
    id="WIN-LINT-002",
    title="beta.kubernetes.io/os is deprecated",
    statement="The label is deprecated since Kubernetes 1.14; kubelets still set it, but it may go with any release.",
    effect="degraded",
    remedy="Select by kubernetes.io/os.",
    severity="info",
))
