"""Asks the registry and the rules about a scene and makes findings of their answers.

Something may be known of a node only in part. A limit that then holds for some nodes and not for others (Docker's, of old
builds, of overlay networks) is told one degree milder, with the condition; where each alternative has a limit of its own,
only the worst is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from transom.lint.findings import RANK, Change, Finding, Fix, Found, lower, span_of
from transom.lint.objects import Object
from transom.lint.rules import RULES, limits_of
from transom.lint.scene import Scene, Workload
from transom.lint.tree import Steps
from transom.windows.advice import condition, excused, matcher
from transom.windows.match import Hit, Matcher, holds
from transom.windows.podchecks import listed
from transom.windows.records import ALL_RUNTIMES, Limit, Severity, Target

# What other linters ask for and Windows ignores, by the names of their checks.
_ELSEWHERE: Final[Mapping[str, str]] = {
    "WIN-SEC-002": "kube-linter privilege-escalation-container, Polaris privilegeEscalationAllowed, Checkov CKV_K8S_20",
    "WIN-SEC-004": "kube-linter drop-net-raw-capability, Polaris insecureCapabilities, Checkov CKV_K8S_37",
    "WIN-SEC-007": "Checkov CKV_K8S_31",
    "WIN-SEC-009": "kube-linter no-read-only-root-fs, Polaris notReadOnlyRootFilesystem, Checkov CKV_K8S_22",
    "WIN-SEC-010": "Checkov CKV_K8S_40",
}
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")


class _Told(NamedTuple):
    limit: Limit
    found: Found
    sure: bool  # on every node it may concern
    nodes: tuple[str, ...]
    condition: str


def findings(scene: Scene) -> Iterator[Finding]:
    told: dict[tuple[int, Steps], list[_Told]] = {}
    for one in (*_from_registry(scene), *_from_rules(scene)):
        told.setdefault((id(one.found.obj), one.found.steps), []).append(one)
    for group in told.values():
        for one, milder in _settle(group):
            yield _finding(one, milder)


def _settle(group: list[_Told]) -> Iterator[tuple[_Told, bool]]:
    """What is told of one place: of what is sure, and of what depends on the node, the worst for each node."""
    sure: dict[str, _Told] = {}
    for one in group:
        if one.sure:
            first = sure.get(one.limit.id, one)
            sure[one.limit.id] = first._replace(nodes=tuple(dict.fromkeys((*first.nodes, *one.nodes))))
    for one in sure.values():
        if not any(_outdoes(other, one) for other in sure.values()):
            yield one, False
    perhaps = sorted((one for one in group if not one.sure), key=lambda one: -RANK[one.limit.severity])
    if not perhaps or any(RANK[one.limit.severity] >= RANK[perhaps[0].limit.severity] for one in sure.values()):
        return
    runtimes = {runtime for one in perhaps for runtime in one.limit.runtimes}
    covered = runtimes == set(ALL_RUNTIMES) and all(one.limit.runtimes != ALL_RUNTIMES for one in perhaps)
    yield perhaps[0], not covered


def _outdoes(one: _Told, other: _Told) -> bool:
    """Whether something worse is known of the same nodes: what is refused need not be called ignored."""
    return RANK[one.limit.severity] > RANK[other.limit.severity] and set(one.nodes) >= set(other.nodes)


def _from_registry(scene: Scene) -> Iterator[_Told]:
    for workload in scene.windows:
        mild = workload.verdict.weight == "hinted"
        for target, nodes in workload.groups:
            for hit in _hits(matcher(target), workload):
                if not excused(hit, workload.spec, workload.steps):
                    fix = _drop(hit) if workload.runs_nowhere_else else None
                    yield _told(hit, workload.obj, target, nodes, fix, mild)
    for obj in scene.objects:
        workloads = scene.concerns_windows(obj)
        if not workloads:
            continue
        for target, nodes in _groups_of(workloads):
            for hit in matcher(target).find(obj.kind, obj.value):
                # Linux nodes may well heed what Windows nodes ignore, so nothing is dropped unasked.
                yield _told(hit, obj, target, nodes, None)


def _hits(limits: Matcher, workload: Workload) -> Iterator[Hit]:
    """In the template, and in the claims that a StatefulSet makes for its pods; places are those in the object."""
    for hit in limits.find("Pod", workload.template):
        yield hit._replace(steps=workload.steps + hit.steps)
    for i, claim in enumerate(listed(workload.obj.spec.get("volumeClaimTemplates"))):
        if isinstance(claim, dict):
            for hit in limits.find("PersistentVolumeClaim", claim):
                yield hit._replace(steps=("spec", "volumeClaimTemplates", i, *hit.steps))


def _groups_of(workloads: list[Workload]) -> list[tuple[Target, tuple[str, ...]]]:
    found: dict[Target, tuple[str, ...]] = {}
    for workload in workloads:
        for target, nodes in workload.groups:
            found[target] = tuple(dict.fromkeys((*found.get(target, ()), *nodes)))
    return list(found.items())


def _told(
    hit: Hit, obj: Object, target: Target, nodes: tuple[str, ...], fix: Fix | None, mild: bool = False
) -> _Told:
    found = Found(obj, hit.steps, hit.limit.title, lower(hit.limit.severity) if mild else None, fix=fix)
    unknown = condition(hit.limit, target)
    return _Told(hit.limit, found, not unknown, nodes, unknown)


def _from_rules(scene: Scene) -> Iterator[_Told]:
    for rule in RULES:
        limits = limits_of(rule)
        for found in rule.find(scene):
            targets = _targets(scene, found)
            chosen = [limit for limit in limits if not found.limit or limit.id == found.limit]
            for limit in chosen:
                holding = [target for target in targets if holds(limit, target)]
                if holding:
                    conditions = [condition(limit, target) for target in holding]
                    nodes = found.nodes
                    yield _Told(limit, found, not all(conditions), nodes, conditions[0])
                    break


def _targets(scene: Scene, found: Found) -> list[Target]:
    """The nodes that something found is about: those that its pods may go to, else all."""
    own = [target for w in scene.workloads if w.obj is found.obj for target in w.targets]
    return own or [node.target for node in scene.landscape.nodes] or [Target()]


def _finding(one: _Told, milder: bool) -> Finding:
    limit, found = one.limit, one.found
    severity: Severity = found.severity or limit.severity
    if milder:
        severity = lower(severity)
    remedy = found.remedy or limit.remedy
    if limit.id in _ELSEWHERE:
        remedy += f" (Other linters ask for it: {_ELSEWHERE[limit.id]}. Exempt Windows pods there.)"
    return Finding(
        limit, severity, found.obj.source, found.message or limit.title, _consequence(one), remedy, found.obj, found.steps,
        span_of(found.obj, found.steps), one.nodes, found.fix,
    )


def _consequence(one: _Told) -> str:
    limit = one.limit
    if one.nodes:
        shown = ", ".join(one.nodes[:3]) + (f" and {len(one.nodes) - 3} more" if len(one.nodes) > 3 else "")
        where = f"On {'node' if len(one.nodes) == 1 else 'nodes'} {shown}: "
    elif one.condition:
        where = f"On nodes {one.condition}: "
    else:
        where = ""
    message = _PLACEHOLDER.sub(r"<\1>", limit.message.replace("{pod}", one.found.obj.name))
    event = ": ".join(part for part in (limit.reason, message) if part)
    return f"{where}{limit.statement} {event}".rstrip()


def _drop(hit: Hit) -> Fix | None:
    if hit.limit.fix != "drop":
        return None
    name = next((step for step in reversed(hit.steps) if isinstance(step, str)), "")
    return Fix(f"drop {name}", (Change("drop", hit.steps),))
