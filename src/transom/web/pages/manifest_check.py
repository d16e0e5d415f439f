"""Lints text from a browser: findings, the fix as a diff, and what another release would say.

The same calls as `transom lint`; for worker threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from transom.lint.config import LintConfig
from transom.lint.engine import LintReport, lint_sources
from transom.lint.findings import LintFinding
from transom.lint.fixes.apply import apply_fixes
from transom.lint.output import MACHINE
from transom.lint.output.json import report_document
from transom.lint.output.text import render_text, report_summary
from transom.lint.sources import ManifestSource, SourcesRead
from transom.lint.text import SourceText
from transom.web.pages.node_choice import NodeChoice
from transom.windows.records import Release
from transom.windows.releases import release_text
from transom.windows.target_nodes import TargetNodes, target_nodes_from_options

MOST_FINDINGS: Final = 500
_FILE: Final = "manifest.yaml"
REPORT_FORMATS: Final[Mapping[str, tuple[Callable[[LintReport], str], str]]] = {
    "text": (render_text, "lint.txt"),
    "json": (MACHINE["json"], "lint.json"),
    "sarif": (MACHINE["sarif"], "lint.sarif"),
    "junit": (MACHINE["junit"], "lint.xml"),
}


def check_manifest(text: str, choice: NodeChoice, rehearse: Release | None) -> dict[str, Any]:
    """The report as a document, with `diff` and `fixed`; `rehearsal` if another release is asked."""
    nodes = _nodes(choice)
    report = _lint(_source(text), nodes)
    found = report_document(report)
    source = _source(text)
    few = len(report.findings) <= MOST_FINDINGS  # fixes lint again after each round
    changed = apply_fixes([source], lambda: _lint(source, nodes).findings)[0] if few else []
    found |= {
        "findings": found["findings"][:MOST_FINDINGS],
        "more": max(0, len(found["findings"]) - MOST_FINDINGS),
        "checked": report_summary(report).strip().rpartition("\n")[2],
        "diff": "".join(one.diff() for one in changed),
        "fixed": source.text.text if changed else None,
        "fixes": sum(len(one.fixed) for one in changed),
    }
    if rehearse is not None:
        later = _lint(_source(text), _nodes(choice._replace(release=rehearse)))
        found["rehearsal"] = {"release": release_text(rehearse), **_difference(report, later)}
    return found


def render_report(text: str, choice: NodeChoice, form: str) -> dict[str, str]:
    """The report as a file: its name and text."""
    render, name = REPORT_FORMATS[form]
    return {"name": name, "text": render(_lint(_source(text), _nodes(choice)))}


def _source(text: str) -> ManifestSource:
    return ManifestSource(_FILE, SourceText(text), _FILE)


def _nodes(choice: NodeChoice) -> TargetNodes:
    return target_nodes_from_options(choice.release, choice.build, choice.runtime, choice.network)


def _lint(source: ManifestSource, nodes: TargetNodes) -> LintReport:
    return lint_sources(SourcesRead([source]), nodes, LintConfig())


def _difference(before: LintReport, after: LintReport) -> dict[str, Any]:
    """Findings that only one of two reports has."""
    old, new = ({_key(one) for one in report.findings} for report in (before, after))
    return {
        "added": [_line(one) for one in after.findings if _key(one) not in old][:MOST_FINDINGS],
        "removed": [_line(one) for one in before.findings if _key(one) not in new][:MOST_FINDINGS],
    }


def _key(finding: LintFinding) -> tuple[str, str, str]:
    return finding.id, finding.obj.title if finding.obj else "", finding.path


def _line(finding: LintFinding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "severity": finding.severity,
        "line": finding.place[0],
        "message": finding.message,
        "remedy": finding.remedy,
    }
