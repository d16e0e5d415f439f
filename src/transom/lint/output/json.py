"""One JSON document, for scripts. Keys may be added but never change."""

from __future__ import annotations

from json import dumps
from typing import Any

from transom.lint.engine import LintReport
from transom.lint.findings import SEVERITIES, LintFinding
from transom.windows.releases import release_text


def render_json(report: LintReport) -> str:
    return dumps(report_document(report), indent=2, ensure_ascii=False) + "\n"


def report_document(report: LintReport) -> dict[str, Any]:
    targets = list(dict.fromkeys(node.target for node in report.target_nodes.nodes))
    return {
        "findings": [_finding(finding) for finding in report.findings],
        "notes": report.notes,
        "problems": report.problems,
        "summary": {
            **{severity: report.count(severity) for severity in SEVERITIES},
            "silenced": report.silenced,
            "files": len(report.sources),
            "objects": report.objects,
            "windowsPodTemplates": report.windows,
        },
        "targets": [
            {
                "release": release_text(target.release),
                "build": target.build,
                "runtime": target.runtime,
                "network": target.network,
                "features": sorted(target.features),
                "nodes": [
                    node.name
                    for node in report.target_nodes.nodes
                    if node.name and node.target == target
                ],
            }
            for target in targets
        ],
    }


def _finding(finding: LintFinding) -> dict[str, Any]:
    line, column = finding.place
    end_line, end_column = finding.end
    obj = finding.obj
    return {
        "id": finding.id,
        "severity": finding.severity,
        "file": finding.source.name,
        "line": line,
        "column": column,
        "endLine": end_line,
        "endColumn": end_column,
        "kind": obj.kind if obj else "",
        "namespace": obj.namespace if obj else "",
        "name": obj.name if obj else "",
        "path": finding.path,
        "origin": obj.origin if obj else "",
        "title": finding.limit.title,
        "message": finding.message,
        "effect": finding.limit.effect,
        "consequence": finding.consequence,
        "remedy": finding.remedy,
        "nodes": list(finding.nodes),
        "fixable": finding.fix is not None,
    }
