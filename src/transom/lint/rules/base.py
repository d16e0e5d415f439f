"""A rule is a function over a context that finds what no single field shows, with the limitations
that it reports.

Limitations are in `transom.windows.limits`, with the name of the rule in `check`. Best practices
that are not Windows limitations have their record beside the rule, in the same form, with an id
WIN-LINT-....
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from transom.lint.context import LintContext
from transom.lint.findings import RuleMatch
from transom.windows.podchecks import Check, CheckedPod
from transom.windows.records import WindowsLimit


class LintRule(NamedTuple):
    check: str
    find: Callable[[LintContext], Iterator[RuleMatch]]
    limit: WindowsLimit | None = None  # if the registry has none for it
    # further limitations of the registry, which this rule finds outside of pods
    ids: tuple[str, ...] = ()


def pod_rule(check: Check, *, windows: bool = True) -> Callable[[LintContext], Iterator[RuleMatch]]:
    """Turns a check of one pod into a rule that runs for every Windows pod, or for all pods."""

    def find(context: LintContext) -> Iterator[RuleMatch]:
        for workload in context.windows if windows else context.workloads:
            subject = CheckedPod(
                workload.spec, workload.verdict, workload.groups, context.runtime_classes
            )
            for shown in check(subject):
                yield RuleMatch(
                    workload.obj,
                    workload.steps + shown.steps,
                    shown.message,
                    remedy=shown.remedy,
                    nodes=shown.nodes,
                    limit=shown.limit,
                )

    return find
