"""Turns sources into a report: reads objects, builds contexts, runs the rules, and drops the
findings that the user ignores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from transom.kit.lazy_dataclass import dataclass
from transom.lint.config import LintConfig
from transom.lint.context import LintContext
from transom.lint.evaluate import evaluate_rules
from transom.lint.findings import RANK, SEVERITIES, LintFinding
from transom.lint.ignores import Ignores
from transom.lint.objects import TEMPLATES, ManifestObject, manifest_objects
from transom.lint.sources import ManifestSource, SourcesRead
from transom.lint.tree import BrokenDocument, TextSpan
from transom.windows.records import Severity, WindowsLimit
from transom.windows.target_nodes import TargetNodes

NOT_YAML: Final = WindowsLimit(
    id="WIN-LINT-000",
    title="This cannot be read",
    statement="kubectl will refuse the document, so nothing in it was looked at.",
    effect="rejected",
    remedy="Fix the YAML.",
    severity="error",
)


@dataclass(slots=True)
class LintReport:
    target_nodes: TargetNodes
    findings: list[LintFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    sources: list[ManifestSource] = field(default_factory=list)
    objects: int = 0
    windows: int = 0  # Windows pods and templates
    silenced: int = 0

    def count(self, severity: str) -> int:
        return sum(finding.severity == severity for finding in self.findings)

    def at_or_above(self, severity: str) -> bool:
        return (
            any(RANK[finding.severity] >= RANK[severity] for finding in self.findings)
            if severity != "none"
            else False
        )


def lint_sources(
    reading: SourcesRead,
    target_nodes: TargetNodes,
    config: LintConfig,
    live: Iterable[ManifestObject] = (),
) -> LintReport:
    report = LintReport(
        target_nodes, [], list(reading.notes), list(reading.problems), reading.sources
    )
    scopes: dict[str, list[ManifestObject]] = {}
    for obj in live:
        scopes.setdefault(obj.source.scope, []).append(obj)
    for source in reading.sources:
        scopes.setdefault(source.scope, []).extend(_objects(source, report))
    classes = _runtime_classes(scopes)
    ignores: dict[int, Ignores] = {}
    for name, members in scopes.items():
        context = LintContext(name, members, target_nodes, classes.get)
        report.objects += len(members)
        report.windows += len(context.windows)
        report.findings += evaluate_rules(context)
    report.findings = [one for one in report.findings if _wanted(one, config, ignores, report)]
    order = {id(source): i for i, source in enumerate(reading.sources)}
    report.findings.sort(key=lambda one: (order.get(id(one.source), -1), *_rank(one)))
    return report


def _rank(finding: LintFinding) -> tuple[TextSpan, str, int, str]:
    """In text order; findings without a position, object by object."""
    title = finding.obj.title if finding.span is None and finding.obj is not None else ""
    return finding.span or TextSpan(0, 0), title, -RANK[finding.severity], finding.id


def _objects(source: ManifestSource, report: LintReport) -> list[ManifestObject]:
    found: list[ManifestObject] = []
    for one in manifest_objects(source):
        if isinstance(one, ManifestObject):
            found.append(one)
        elif "{{" in source.text.text and not source.named:
            report.notes.append(
                f"{source.name}: left out, it looks like a template; lint what it renders to"
            )
            return found
        else:
            report.findings.append(_broken(source, one))
    return found


def _may_hold_pods(kind: str) -> bool:
    return not kind or kind.endswith("List") or any(kind == known for _, known in TEMPLATES)


def _broken(source: ManifestSource, problem: BrokenDocument) -> LintFinding:
    at = min(problem.at, len(source.text.text))
    remedy = NOT_YAML.remedy
    if "{{" in source.text.text:
        remedy = (
            "It looks like a template: lint what it renders to, for instance by `helm template`."
        )
    severity: Severity = "error" if _may_hold_pods(problem.kind) else "warning"
    message = f"not YAML: {problem.message}"
    return LintFinding(
        NOT_YAML, severity, source, message, NOT_YAML.statement, remedy, span=TextSpan(at, at + 1)
    )


def _runtime_classes(scopes: Mapping[str, list[ManifestObject]]) -> dict[str, Mapping[str, Any]]:
    return {
        obj.name: obj.value
        for members in scopes.values()
        for obj in members
        if obj.kind == "RuntimeClass" and obj.group == "node.k8s.io"
    }


def _wanted(
    finding: LintFinding, config: LintConfig, ignores: dict[int, Ignores], report: LintReport
) -> bool:
    finding.severity = config.severities.get(finding.id, finding.severity)
    source = finding.source
    known = ignores.get(id(source))
    if known is None:
        known = ignores[id(source)] = Ignores(source.text)
    if finding.severity not in SEVERITIES or config.ignores(finding) or known.silences(finding):
        report.silenced += 1
        return False
    return True
