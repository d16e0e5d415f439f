"""Applies the fixes of a report: edits the text, parses it again, and keeps an edit only if the
result is exactly as intended.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable
from dataclasses import field

from transom.kit.lazy_dataclass import dataclass
from transom.lint.findings import LintFinding
from transom.lint.fixes.edits import make_edit
from transom.lint.fixes.values import with_change
from transom.lint.sources import ManifestSource
from transom.lint.text import SourceText
from transom.lint.tree import YamlDocument, parse_documents

Key = tuple[str, str, str, str]

_ROUNDS = 8  # one fix may enable another: removed fields allow spec.os


@dataclass(slots=True)
class FixedSource:
    """The outcome for one source."""

    source: ManifestSource
    before: str
    fixed: list[LintFinding] = field(default_factory=list)

    @property
    def after(self) -> str:
        return self.source.text.text

    def diff(self) -> str:
        name = self.source.name.lstrip("/")
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            f"a/{name}",
            f"b/{name}",
        )
        return "".join(
            line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
            for line in lines
        )


def apply_fixes(
    sources: Iterable[ManifestSource], look: Callable[[], list[LintFinding]]
) -> tuple[list[FixedSource], list[LintFinding]]:
    """Applies fixes until none are left. `look` lints the current sources; the second result is its
    final report. Sources without a file are changed in memory only.
    """
    changed = {id(source): FixedSource(source, source.text.text) for source in sources}
    refused: set[Key] = set()
    findings = look()
    for _ in range(_ROUNDS):
        found = False
        for source_id in changed:
            own = [
                one
                for one in findings
                if id(one.source) == source_id and one.fix and _key(one) not in refused
            ]
            if own:
                found = True
                _fix_source(changed[source_id], own, refused)
        if not found:
            break
        findings = look()
    return [one for one in changed.values() if one.after != one.before], findings


def _fix_source(changed: FixedSource, findings: list[LintFinding], refused: set[Key]) -> None:
    """Processes documents from last to first, so that earlier positions stay valid."""
    by_start: dict[int, list[LintFinding]] = {}
    for finding in findings:
        if finding.obj is not None and finding.obj.document is not None:
            by_start.setdefault(finding.obj.document.start, []).append(finding)
        else:
            refused.add(_key(finding))
    for start in sorted(by_start, reverse=True):
        own = by_start[start]
        end = own[0].obj.document.end  # type: ignore[union-attr]
        text = changed.source.text.text
        body = text[start:end]
        for finding in own:
            after = _attempt(body, finding)
            if after is None:
                refused.add(_key(finding))
            else:
                body = after
                changed.fixed.append(finding)
        changed.source.text = SourceText(text[:start] + body + text[end:])


def _attempt(body: str, finding: LintFinding) -> str | None:
    """The text of a document with a fix applied; None if the result is not as intended."""
    obj, fix = finding.obj, finding.fix
    assert obj is not None and fix is not None
    document = _single(body)
    for change in fix.changes:
        if document is None:
            return None
        try:
            wanted = with_change(document.value, change._replace(steps=obj.steps + change.steps))
        except (KeyError, IndexError, TypeError, AttributeError):
            return None
        one = make_edit(document, obj.steps, change)
        if one is None:
            return None
        body = body[: one.start] + one.text + body[one.end :]
        document = _single(body)
        if document is None or document.value != wanted:
            return None
    return body if not finding.source.name.endswith(".json") or _is_json(body) else None


def _is_json(body: str) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


def _single(body: str) -> YamlDocument | None:
    found = list(parse_documents(SourceText(body)))
    return found[0] if len(found) == 1 and isinstance(found[0], YamlDocument) else None


def _key(finding: LintFinding) -> Key:
    return finding.id, finding.source.name, finding.obj.title if finding.obj else "", finding.path
