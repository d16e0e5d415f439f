"""Lints text from a browser: findings, the fix as a diff, and the rehearsal of an upgrade.

The same calls as `transom lint` and `transom lint --from --to`; for worker threads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from transom.lint.config import LintConfig
from transom.lint.engine import LintReport, lint_sources
from transom.lint.fixes.apply import apply_fixes
from transom.lint.output import MACHINE
from transom.lint.output.json import report_document
from transom.lint.output.text import render_text, report_summary
from transom.lint.output.upgrade import render_upgrade, upgrade_document
from transom.lint.sources import ManifestSource, SourcesRead
from transom.lint.text import SourceText
from transom.lint.upgrade import UpgradeReport, rehearse_upgrade, upgrade_nodes
from transom.machinery.errors import ApiError
from transom.web.pages.node_choice import NodeChoice
from transom.windows.target_nodes import TargetNodes, target_nodes_from_options

MOST_FINDINGS: Final = 500
_FILE: Final = "manifest.yaml"
REPORT_FORMATS: Final[Mapping[str, tuple[Callable[[LintReport], str], str]]] = {
    "text": (render_text, "lint.txt"),
    "json": (MACHINE["json"], "lint.json"),
    "sarif": (MACHINE["sarif"], "lint.sarif"),
    "junit": (MACHINE["junit"], "lint.xml"),
}

UPGRADE_FORMATS: Final[Mapping[str, tuple[Callable[[UpgradeReport], str], str]]] = {
    "text": (render_upgrade, "upgrade.txt"),
    "json": (lambda report: json.dumps(upgrade_document(report), indent=2) + "\n", "upgrade.json"),
}


def check_manifest(text: str, choice: NodeChoice, later: NodeChoice | None) -> dict[str, Any]:
    """The report as a document, with `diff` and `fixed`; `rehearsal` if nodes after an upgrade are
    chosen.
    """
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
    if later is not None:
        rehearsal = upgrade_document(_rehearse(text, choice, later))
        more = max(0, len(rehearsal["items"]) - MOST_FINDINGS)
        found["rehearsal"] = {
            **rehearsal,
            "items": rehearsal["items"][:MOST_FINDINGS],
            "more": more,
        }
    return found


def render_report(
    text: str, choice: NodeChoice, form: str, later: NodeChoice | None = None
) -> dict[str, str]:
    """The report, or that of a rehearsal, as a file: its name and text."""
    if later is not None:
        if form not in UPGRADE_FORMATS:
            raise ApiError(400, "BadRequest", "a rehearsal is saved as text or JSON")
        render_rehearsal, name = UPGRADE_FORMATS[form]
        return {"name": name, "text": render_rehearsal(_rehearse(text, choice, later))}
    render, name = REPORT_FORMATS[form]
    return {"name": name, "text": render(_lint(_source(text), _nodes(choice)))}


def _rehearse(text: str, before: NodeChoice, after: NodeChoice) -> UpgradeReport:
    sources = SourcesRead([_source(text)])
    return rehearse_upgrade(sources, upgrade_nodes(*before), upgrade_nodes(*after), LintConfig())


def _source(text: str) -> ManifestSource:
    return ManifestSource(_FILE, SourceText(text), _FILE)


def _nodes(choice: NodeChoice) -> TargetNodes:
    return target_nodes_from_options(choice.release, choice.build, choice.runtime, choice.network)


def _lint(source: ManifestSource, nodes: TargetNodes) -> LintReport:
    return lint_sources(SourcesRead([source]), nodes, LintConfig())
