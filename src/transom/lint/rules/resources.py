"""Memory limits: on Windows nothing else bounds the memory of a container."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.context import LintContext, LintWorkload
from transom.lint.findings import RuleMatch
from transom.lint.rules.base import LintRule
from transom.machinery import quantity
from transom.windows.podchecks import inner_pod, list_or_empty


def find_missing_resources(context: LintContext) -> Iterator[RuleMatch]:
    for workload in context.windows:
        if workload.partial or _limited_by_namespace(context, workload):
            continue
        bare = [
            (steps, str(container.get("name", "")))
            for steps, container in workload.containers()
            if steps[-2] == "containers"
            and inner_pod(container, "resources", "limits", "memory") is None
        ]
        if bare and inner_pod(workload.spec, "resources", "limits", "memory") is None:
            names = ", ".join(name for _, name in bare)
            what = (
                f"container {names} has no memory limit"
                if len(bare) == 1
                else f"containers {names} have no memory limit"
            )
            yield RuleMatch(
                workload.obj, bare[0][0], what, severity="info" if workload.host_process else None
            )


def _limited_by_namespace(context: LintContext, workload: LintWorkload) -> bool:
    return any(
        limit.namespace == workload.obj.namespace
        and any(
            isinstance(one, dict)
            and one.get("type") == "Container"
            and inner_pod(one, "default", "memory")
            for one in list_or_empty(limit.spec.get("limits"))
        )
        for limit in context.of("LimitRange")
    )


def find_differing_resources(context: LintContext) -> Iterator[RuleMatch]:
    for workload in context.windows:
        for steps, container in workload.containers():
            limit = inner_pod(container, "resources", "limits", "memory")
            request = inner_pod(container, "resources", "requests", "memory")
            if limit is not None and request is not None and not _equal(limit, request):
                message = f"it requests {request} of memory, but may take {limit}"
                yield RuleMatch(workload.obj, (*steps, "resources", "requests", "memory"), message)


def _equal(one: object, other: object) -> bool:
    try:
        return quantity.parse_quantity(str(one)) == quantity.parse_quantity(str(other))
    except ValueError:
        return True  # the API server reports the problem


MISSING = LintRule("memory-limits", find_missing_resources)
DIFFER = LintRule("requests-differ", find_differing_resources)
