"""The human-readable format: position, source line, effect and remedy.

Texts of manifests are escaped: a name with a line end could forge findings, or commands for the CI
system that shows the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Final

from transom.kit.escaping import escape_line
from transom.lint.engine import LintReport
from transom.lint.findings import LintFinding
from transom.windows.builds import BUILDS
from transom.windows.records import NodeTarget, Release
from transom.windows.releases import release_text
from transom.windows.wording import documentation_page

_COLOURS: Final = {"error": "31", "warning": "33", "info": "36", "bold": "1", "dim": "2"}
WIDTH: Final = 110  # of a line, where there is no narrower terminal
_TAB: Final = "    "


def render_text(report: LintReport, colours: bool = False, width: int = WIDTH) -> str:
    colouring = _coloured if colours else _plain
    release = report.target_nodes.release
    parts = [_finding(finding, release, colouring, width) for finding in report.findings]
    parts += [f"{colouring('note:', 'dim')} {escape_line(note)}\n" for note in report.notes]
    return "\n".join((*parts, report_summary(report)))


def report_summary(report: LintReport) -> str:
    counts = [
        _number(report.count(severity), name)
        for severity, name in (("error", "error"), ("warning", "warning"), ("info", "info"))
        if report.count(severity)
    ]
    nothing = "Not all files could be checked" if report.problems else "No findings"
    found = ", ".join(counts) or nothing
    silenced = f" ({report.silenced} silenced)" if report.silenced else ""
    files = f" in {_number(len(report.sources), 'file')}" if report.sources else ""
    fixable = sum(finding.fix is not None for finding in report.findings)
    fixes = f"{fixable} fixable with --fix.\n" if fixable else ""
    return (
        f"{found}{silenced}: {_number(report.objects, 'object')}{files}, "
        f"{_number(report.windows, 'pod template')} for Windows.\n{fixes}Checked against "
        f"{_nodes(report)}.\n"
    )


def _nodes(report: LintReport) -> str:
    targets = list(dict.fromkeys(node.target for node in report.target_nodes.nodes))
    if not targets:
        return "a cluster without Windows nodes"
    return "; ".join(_target(target) for target in targets[:4]) + (
        "; ..." if len(targets) > 4 else ""
    )


def _target(target: NodeTarget) -> str:
    build = "any build"
    if target.build is not None:
        known = BUILDS.get(target.build)
        build = f"build {target.build}" + (f" ({known.tags[0]})" if known else "")
    features = ", ".join(sorted(target.features))
    return ", ".join(
        part
        for part in (
            f"Kubernetes {release_text(target.release)}",
            f"Windows {build}",
            target.runtime or "any runtime",
            f"{target.network or 'any'} network",
            features,
        )
        if part
    )


def _finding(finding: LintFinding, release: Release, colouring: _Colouring, width: int) -> str:
    line, column = finding.place
    name = escape_line(finding.source.name)
    where = f"{name}:{line}:{column}" if line else name
    lines = [
        (
            f"{colouring(where, 'bold')}: {colouring(finding.severity, finding.severity)} {finding.id}: "
            f"{escape_line(finding.message)}"
        )
    ]
    lines += _excerpt(finding, colouring, width)
    if finding.obj is not None:
        origin = f" (from {finding.obj.origin})" if finding.obj.origin else ""
        place = f"{finding.obj.title}{origin}: {finding.path or 'the whole object'}"
        lines.append(f"  {escape_line(place)}")
    lines += _paragraph("", finding.consequence, width)
    lines += _paragraph("fix: ", finding.remedy, width)
    lines += _paragraph("see: ", documentation_page(finding.limit, release), width)
    return "\n".join(lines) + "\n"


def _excerpt(finding: LintFinding, colouring: _Colouring, width: int) -> Iterator[str]:
    if finding.span is None:
        return
    (line, column), (_, end) = finding.place, finding.end
    text = finding.source.text.line(line)
    number = str(line)
    # Handle tabs and wide characters: the caret is below the reported text.
    before = text[: column - 1].replace("\t", _TAB)
    shown = text.replace("\t", _TAB)
    carets = "^" * max(1, min(len(text[column - 1 : end - 1].replace("\t", _TAB)), width))
    if len(shown) > 2 * width:
        cut = max(0, len(before) - 20)
        shown, before = "..." + shown[cut : cut + width], "..." + before[cut:]
    yield f"  {colouring(number, 'dim')} {colouring('|', 'dim')} {escape_line(shown)}"
    yield (
        f"  {' ' * len(number)} {colouring('|', 'dim')} "
        f"{' ' * len(before)}{colouring(carets, finding.severity)}"
    )


def _paragraph(label: str, text: str, width: int) -> list[str]:
    return (
        wrap(
            escape_line(text),
            width,
            initial_indent=f"  {label}",
            subsequent_indent="  " + " " * len(label),
            break_long_words=False,
            break_on_hyphens=False,
        )
        if text
        else []
    )


def _number(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 or name == "info" else f"{count} {name}s"


class _Colouring:
    def __init__(self, on: bool) -> None:
        self._on = on

    def __call__(self, text: str, colour: str) -> str:
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self._on else text


_plain: Final = _Colouring(False)
_coloured: Final = _Colouring(True)
