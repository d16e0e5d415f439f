"""JUnit XML, which all CI systems read: a suite for each file, a failed test case for each finding,
a passed one for files without findings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from transom.kit.lazy import lazy_import
from transom.lint.engine import LintReport
from transom.lint.findings import LintFinding

if TYPE_CHECKING:
    from xml.etree import ElementTree as Xml
else:  # only this format needs it
    Xml = lazy_import("xml.etree.ElementTree")

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: LintReport) -> str:
    failing = [finding for finding in report.findings if finding.severity != "info"]
    root = Xml.Element(
        "testsuites", name="transom lint", tests=str(_tests(report)), failures=str(len(failing))
    )
    for name, findings in _files(report):
        bad = sum(finding.severity != "info" for finding in findings)
        suite = Xml.SubElement(
            root,
            "testsuite",
            name=_clean(name),
            tests=str(max(1, len(findings))),
            failures=str(bad),
            errors="0",
            skipped="0",
        )
        if not findings:
            Xml.SubElement(suite, "testcase", classname=_clean(name), name="no findings")
        for finding in findings:
            _case(suite, name, finding)
    Xml.indent(root)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"
    )


def _files(report: LintReport) -> Iterator[tuple[str, list[LintFinding]]]:
    by_name: dict[str, list[LintFinding]] = {source.name: [] for source in report.sources}
    for finding in report.findings:
        by_name.setdefault(finding.source.name, []).append(finding)
    yield from by_name.items()


def _tests(report: LintReport) -> int:
    return sum(max(1, len(findings)) for _, findings in _files(report))


def _case(suite: Xml.Element, name: str, finding: LintFinding) -> None:
    line, column = finding.place
    title = (
        f"{finding.id} {finding.obj.title} {finding.path}"
        if finding.obj is not None
        else finding.id
    )
    case = Xml.SubElement(
        suite, "testcase", classname=_clean(name), name=_clean(f"{title}:{line}:{column}")
    )
    text = _clean(
        "\n".join(
            part
            for part in (f"{name}:{line}:{column}", finding.consequence, finding.remedy)
            if part
        )
    )
    if finding.severity == "info":
        Xml.SubElement(case, "system-out").text = _clean(f"{finding.message}\n{text}")
    else:
        failure = Xml.SubElement(
            case, "failure", message=_clean(finding.message), type=finding.severity
        )
        failure.text = text


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)
