"""Evaluates the registry and the rules for a context and builds findings from the results.

The target may be known only in part. A limitation that applies to some possible nodes only (Docker,
old builds, overlay networks) is reported one severity lower, with the condition. If each
alternative has its own limitation, only the worst is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from transom.lint.context import LintContext, LintWorkload
from transom.lint.findings import (
    RANK,
    FixStep,
    LintFinding,
    LintFix,
    RuleMatch,
    lower_severity,
    span_of,
)
from transom.lint.objects import ManifestObject
from transom.lint.rules import RULES, rule_limits
from transom.lint.tree import Steps
from transom.windows.advice import is_exempt, limit_condition, limit_matcher
from transom.windows.match import LimitMatch, LimitMatcher, record_holds
from transom.windows.podchecks import list_or_empty
from transom.windows.records import ALL_RUNTIMES, NodeTarget, Severity, WindowsLimit

# Fields that other linters demand and Windows ignores, by the names of their checks.
_ELSEWHERE: Final[Mapping[str, str]] = {
    "WIN-SEC-002": (
        "kube-linter privilege-escalation-container, Polaris privilegeEscalationAllowed, Checkov "
        "CKV_K8S_20"
    ),
    "WIN-SEC-004": "kube-linter drop-net-raw-capability, Polaris insecureCapabilities, Checkov CKV_K8S_37",
    "WIN-SEC-007": "Checkov CKV_K8S_31",
    "WIN-SEC-009": "kube-linter no-read-only-root-fs, Polaris notReadOnlyRootFilesystem, Checkov CKV_K8S_22",
    "WIN-SEC-010": "Checkov CKV_K8S_40",
}
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")


class _Reported(NamedTuple):
    limit: WindowsLimit
    found: RuleMatch
    sure: bool  # on every node that it may apply to
    nodes: tuple[str, ...]
    condition: str


def evaluate_rules(context: LintContext) -> Iterator[LintFinding]:
    reported: dict[tuple[int, Steps], list[_Reported]] = {}
    for one in (*_from_registry(context), *_from_rules(context)):
        reported.setdefault((id(one.found.obj), one.found.steps), []).append(one)
    for group in reported.values():
        for one, lenient in _settle(group):
            yield _finding(one, lenient)


def _settle(group: list[_Reported]) -> Iterator[tuple[_Reported, bool]]:
    """The findings for one path: the certain ones, and for each possible node the worst of those
    that depend on it.
    """
    sure: dict[str, _Reported] = {}
    for one in group:
        if one.sure:
            first = sure.get(one.limit.id, one)
            sure[one.limit.id] = first._replace(
                nodes=tuple(dict.fromkeys((*first.nodes, *one.nodes)))
            )
    for one in sure.values():
        if not any(_supersedes(other, one) for other in sure.values()):
            yield one, False
    perhaps = sorted(
        (one for one in group if not one.sure), key=lambda one: -RANK[one.limit.severity]
    )
    if not perhaps or any(
        RANK[one.limit.severity] >= RANK[perhaps[0].limit.severity] for one in sure.values()
    ):
        return
    runtimes = {runtime for one in perhaps for runtime in one.limit.runtimes}
    covered = runtimes == set(ALL_RUNTIMES) and all(
        one.limit.runtimes != ALL_RUNTIMES for one in perhaps
    )
    yield perhaps[0], not covered


def _supersedes(one: _Reported, other: _Reported) -> bool:
    """Whether a more severe finding covers the same nodes: a rejected field need not be reported as
    ignored.
    """
    return RANK[one.limit.severity] > RANK[other.limit.severity] and set(one.nodes) >= set(
        other.nodes
    )


def _from_registry(context: LintContext) -> Iterator[_Reported]:
    for workload in context.windows:
        lenient = workload.verdict.weight == "hinted"
        for target, nodes in workload.groups:
            for hit in _hits(limit_matcher(target), workload):
                if not is_exempt(hit, workload.spec, workload.steps):
                    fix = _drop(hit) if workload.windows_only else None
                    yield _recorded(hit, workload.obj, target, nodes, fix, lenient)
    for obj in context.objects:
        workloads = context.concerns_windows(obj)
        if not workloads:
            continue
        for target, nodes in _groups_of(workloads):
            for hit in limit_matcher(target).find(obj.kind, obj.value):
                # Linux nodes may use fields that Windows nodes ignore, so remove nothing by
                # default.
                yield _recorded(hit, obj, target, nodes, None)


def _hits(limits: LimitMatcher, workload: LintWorkload) -> Iterator[LimitMatch]:
    """The paths in the template, and in the volumeClaimTemplates of a StatefulSet."""
    for hit in limits.find("Pod", workload.template):
        yield hit._replace(steps=workload.steps + hit.steps)
    for i, claim in enumerate(list_or_empty(workload.obj.spec.get("volumeClaimTemplates"))):
        if isinstance(claim, dict):
            for hit in limits.find("PersistentVolumeClaim", claim):
                yield hit._replace(steps=("spec", "volumeClaimTemplates", i, *hit.steps))


def _groups_of(workloads: list[LintWorkload]) -> list[tuple[NodeTarget, tuple[str, ...]]]:
    found: dict[NodeTarget, tuple[str, ...]] = {}
    for workload in workloads:
        for target, nodes in workload.groups:
            found[target] = tuple(dict.fromkeys((*found.get(target, ()), *nodes)))
    return list(found.items())


def _recorded(
    hit: LimitMatch,
    obj: ManifestObject,
    target: NodeTarget,
    nodes: tuple[str, ...],
    fix: LintFix | None,
    lenient: bool = False,
) -> _Reported:
    found = RuleMatch(
        obj,
        hit.steps,
        hit.limit.title,
        lower_severity(hit.limit.severity) if lenient else None,
        fix=fix,
    )
    unknown = limit_condition(hit.limit, target)
    return _Reported(hit.limit, found, not unknown, nodes, unknown)


def _from_rules(context: LintContext) -> Iterator[_Reported]:
    for rule in RULES:
        limits = rule_limits(rule)
        for found in rule.find(context):
            targets = _targets(context, found)
            chosen = [limit for limit in limits if not found.limit or limit.id == found.limit]
            for limit in chosen:
                holding = [target for target in targets if record_holds(limit, target)]
                if holding:
                    conditions = [limit_condition(limit, target) for target in holding]
                    nodes = found.nodes
                    yield _Reported(limit, found, not all(conditions), nodes, conditions[0])
                    break


def _targets(context: LintContext, found: RuleMatch) -> list[NodeTarget]:
    """The nodes that a finding applies to: those its pods may be scheduled to, otherwise all."""
    own = [target for w in context.workloads if w.obj is found.obj for target in w.targets]
    return own or [node.target for node in context.target_nodes.nodes] or [NodeTarget()]


def _finding(one: _Reported, lenient: bool) -> LintFinding:
    limit, found = one.limit, one.found
    severity: Severity = found.severity or limit.severity
    if lenient:
        severity = lower_severity(severity)
    remedy = found.remedy or limit.remedy
    if limit.id in _ELSEWHERE:
        remedy += f" (Other linters ask for it: {_ELSEWHERE[limit.id]}. Exempt Windows pods there.)"
    return LintFinding(
        limit,
        severity,
        found.obj.source,
        found.message or limit.title,
        _consequence(one),
        remedy,
        found.obj,
        found.steps,
        span_of(found.obj, found.steps),
        one.nodes,
        found.fix,
    )


def _consequence(one: _Reported) -> str:
    limit = one.limit
    if one.nodes:
        shown = ", ".join(one.nodes[:3]) + (
            f" and {len(one.nodes) - 3} more" if len(one.nodes) > 3 else ""
        )
        where = f"On {'node' if len(one.nodes) == 1 else 'nodes'} {shown}: "
    elif one.condition:
        where = f"On nodes {one.condition}: "
    else:
        where = ""
    message = _PLACEHOLDER.sub(r"<\1>", limit.message.replace("{pod}", one.found.obj.name))
    event = ": ".join(part for part in (limit.reason, message) if part)
    return f"{where}{limit.statement} {event}".rstrip()


def _drop(hit: LimitMatch) -> LintFix | None:
    if hit.limit.fix != "drop":
        return None
    name = next((step for step in reversed(hit.steps) if isinstance(step, str)), "")
    return LintFix(f"drop {name}", (FixStep("drop", hit.steps),))
