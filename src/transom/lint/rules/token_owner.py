"""runAsUser set by every container: the pod's token would be owned by that user, which is not
possible on Windows.

The registry covers the pod's own securityContext; this rule covers pods where only the containers
set it.
"""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.context import LintContext, LintWorkload
from transom.lint.findings import FixStep, LintFix, RuleMatch
from transom.lint.rules.base import LintRule
from transom.lint.tree import Steps
from transom.windows.podchecks import inner_pod, list_or_empty

_GIVEN, _ALWAYS = (
    "WIN-SEC-023",
    "WIN-SEC-025",
)  # a volume of the pod, or the one that later releases add
_USER = ("securityContext", "runAsUser")


def find_token_owner(context: LintContext) -> Iterator[RuleMatch]:
    for workload in context.windows:
        places = _places(workload)
        limit = _GIVEN if _has_token(workload) else _ALWAYS
        if not places or (
            limit == _ALWAYS and workload.spec.get("automountServiceAccountToken") is False
        ):
            continue
        fix = (
            LintFix("drop runAsUser", tuple(FixStep("drop", steps) for steps in places))
            if workload.windows_only
            else None
        )
        message = (
            "all containers run as this user, who cannot be given the pod's token: the pod does "
            "not start"
        )
        yield RuleMatch(workload.obj, places[0], message, fix=fix, limit=limit)


def _places(workload: LintWorkload) -> list[Steps]:
    """The paths, if all containers set the same user; otherwise none."""
    found = [
        ((*steps, *_USER), inner_pod(container, *_USER))
        for steps, container in workload.containers()
        if steps[-2] != "ephemeralContainers"
    ]
    same = (
        bool(found)
        and isinstance(found[0][1], int)
        and all(user == found[0][1] for _, user in found)
    )
    return (
        [steps for steps, _ in found] if same and inner_pod(workload.spec, *_USER) is None else []
    )


def _has_token(workload: LintWorkload) -> bool:
    return any(
        inner_pod(source, "serviceAccountToken") is not None
        for volume in list_or_empty(workload.spec.get("volumes"))
        for source in list_or_empty(inner_pod(volume, "projected", "sources"))
    )


RULE = LintRule("token-owner", find_token_owner, ids=(_GIVEN, _ALWAYS))
