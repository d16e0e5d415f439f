"""Workflow commands, which GitHub shows as annotations of a pull request."""

from __future__ import annotations

from typing import Final

from transom.lint.engine import LintReport
from transom.lint.findings import LintFinding

_COMMANDS: Final = {"error": "error", "warning": "warning", "info": "notice"}


def render_github(report: LintReport) -> str:
    return "".join(f"{_line(finding)}\n" for finding in report.findings)


def _line(finding: LintFinding) -> str:
    line, column = finding.place
    properties = [("file", finding.source.name)]
    if line:
        properties += [
            ("line", str(line)),
            ("col", str(column)),
            ("endColumn", str(finding.end[1])),
        ]
    properties.append(("title", f"{finding.id} {finding.limit.title}"))
    where = f"{finding.obj.title}: {finding.path}" if finding.obj is not None else ""
    text = "\n".join(
        part for part in (finding.message, where, finding.consequence, finding.remedy) if part
    )
    shown = ",".join(f"{key}={_property(value)}" for key, value in properties)
    return f"::{_COMMANDS[finding.severity]} {shown}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
