"""HostProcess pods that the API server rejects."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.context import LintContext
from transom.lint.findings import FixStep, LintFix, RuleMatch
from transom.lint.rules.base import LintRule
from transom.windows.podchecks import inner_pod

_OPTION = ("securityContext", "windowsOptions", "hostProcess")


def find_host_process(context: LintContext) -> Iterator[RuleMatch]:
    for workload in context.windows:
        if not workload.host_process or workload.partial:
            continue
        if workload.spec.get("hostNetwork") is not True:
            fix = LintFix(
                "use the host's network", (FixStep("set", workload.at("hostNetwork"), True),)
            )
            yield RuleMatch(
                workload.obj,
                workload.at("hostNetwork"),
                "a HostProcess pod must have hostNetwork: true",
                fix=fix,
            )
        of_pod = inner_pod(workload.spec, *_OPTION)
        for steps, container in workload.containers():
            own = inner_pod(container, *_OPTION)
            if (own if own is not None else of_pod) is not True:
                name = container.get("name", "")
                yield RuleMatch(
                    workload.obj,
                    steps,
                    f"container {name} is not a HostProcess container, but others of its pod are",
                )


RULE = LintRule("host-process", find_host_process)
