"""SARIF 2.1.0, which code hosts show beside the code."""

from __future__ import annotations

from hashlib import sha256
from json import dumps
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from transom import __version__
from transom.lint.engine import LintReport
from transom.lint.findings import LintFinding
from transom.windows.records import WindowsLimit

_LEVELS: Final = {"error": "error", "warning": "warning", "info": "note", "none": "none"}


def render_sarif(report: LintReport) -> str:
    limits = list({finding.id: finding.limit for finding in report.findings}.values())
    index = {limit.id: i for i, limit in enumerate(limits)}
    run = {
        "tool": {
            "driver": {
                "name": "transom-lint",
                "version": __version__,
                "rules": [_rule(limit) for limit in limits],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report)],
        "results": [_result(finding, index[finding.id]) for finding in report.findings],
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return (
        dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)
        + "\n"
    )


def _invocation(report: LintReport) -> dict[str, Any]:
    notes = [{"level": "note", "message": {"text": note}} for note in report.notes]
    notes += [{"level": "error", "message": {"text": problem}} for problem in report.problems]
    return {
        "executionSuccessful": not report.problems,
        **({"toolExecutionNotifications": notes} if notes else {}),
    }


def _rule(limit: WindowsLimit) -> dict[str, Any]:
    return {
        "id": limit.id,
        "shortDescription": {"text": limit.title},
        "fullDescription": {"text": limit.statement},
        "help": {"text": limit.remedy},
        "defaultConfiguration": {"level": _LEVELS[limit.severity]},
        "properties": {"tags": ["kubernetes", "windows", limit.effect]},
    }


def _result(finding: LintFinding, rule: int) -> dict[str, Any]:
    location: dict[str, Any] = {}
    if finding.source.path is not None or finding.span is not None:
        physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.source.name)}}
        if finding.span is not None:
            (line, column), (end_line, end_column) = finding.place, finding.end
            physical["region"] = {
                "startLine": line,
                "startColumn": column,
                "endLine": end_line,
                "endColumn": end_column,
                "snippet": {"text": finding.source.text.line(line)},
            }
        location["physicalLocation"] = physical
    if finding.obj is not None:
        name = f"{finding.obj.title}: {finding.path}"
        location["logicalLocations"] = [{"fullyQualifiedName": name, "kind": "resource"}]
    parts = (finding.message, finding.consequence, finding.remedy)
    return {
        "ruleId": finding.id,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": "\n".join(part for part in parts if part)},
        "locations": [location],
        "partialFingerprints": {"transom/v1": _fingerprint(finding)},
    }


def _fingerprint(finding: LintFinding) -> str:
    """A fingerprint that stays the same when lines move."""
    title = finding.obj.title if finding.obj is not None else ""
    return sha256(
        "\0".join((finding.id, finding.source.name, title, finding.path)).encode()
    ).hexdigest()[:32]


def _uri(name: str) -> str:
    path = PurePath(name)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
