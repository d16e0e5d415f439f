"""Pods declared as Linux pods that have Windows options: later releases of the API reject them.

Individual fields show this, but Windows limitations are not evaluated for Linux pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from transom.lint.context import LintContext
from transom.lint.findings import RuleMatch
from transom.lint.rules.base import LintRule
from transom.windows.podchecks import inner_pod

_LIMIT: Final = "WIN-API-003"
_OPTIONS: Final = ("securityContext", "windowsOptions")


def find_linux_pods(context: LintContext) -> Iterator[RuleMatch]:
    for workload in context.workloads:
        if inner_pod(workload.spec, "os", "name") != "linux":
            continue
        places = [workload.at(*_OPTIONS)] if inner_pod(workload.spec, *_OPTIONS) is not None else []
        places += [
            (*at, *_OPTIONS)
            for at, container in workload.containers()
            if inner_pod(container, *_OPTIONS) is not None
        ]
        for steps in places:
            yield RuleMatch(
                workload.obj, steps, "a pod for Linux may not have windowsOptions", limit=_LIMIT
            )


RULE = LintRule("linux-pods", find_linux_pods, ids=(_LIMIT,))
