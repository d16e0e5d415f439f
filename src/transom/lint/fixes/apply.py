"""Makes the fixes of a report: edits texts, reads them again, and keeps only what came out exactly as meant."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from transom.lint.findings import Finding
from transom.lint.fixes.edits import edit
from transom.lint.fixes.values import changed
from transom.lint.sources import Source
from transom.lint.text import Text
from transom.lint.tree import Document, documents

Key = tuple[str, str, str, str]

_ROUNDS = 8  # one fix may make room for another: dropped fields for spec.os


@dataclass(slots=True)
class Mended:
    """What became of a source."""

    source: Source
    before: str
    fixed: list[Finding] = field(default_factory=list)

    @property
    def after(self) -> str:
        return self.source.text.text

    def diff(self) -> str:
        name = self.source.name.lstrip("/")
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
        )
        return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def mend(sources: Iterable[Source], look: Callable[[], list[Finding]]) -> tuple[list[Mended], list[Finding]]:
    """Makes fixes until there are none left to make. `look` lints the sources as they are; the second answer is what it
    finds in the end. Sources without a file are changed in memory only."""
    mended = {id(source): Mended(source, source.text.text) for source in sources}
    refused: set[Key] = set()
    findings = look()
    for _ in range(_ROUNDS):
        found = False
        for source_id in mended:
            own = [one for one in findings if id(one.source) == source_id and one.fix and _key(one) not in refused]
            if own:
                found = True
                _mend_one(mended[source_id], own, refused)
        if not found:
            break
        findings = look()
    return [one for one in mended.values() if one.after != one.before], findings


def _mend_one(mended: Mended, findings: list[Finding], refused: set[Key]) -> None:
    """Document by document from the last to the first, so that the places of those to come stay right."""
    by_start: dict[int, list[Finding]] = {}
    for finding in findings:
        if finding.obj is not None and finding.obj.document is not None:
            by_start.setdefault(finding.obj.document.start, []).append(finding)
        else:
            refused.add(_key(finding))
    for start in sorted(by_start, reverse=True):
        own = by_start[start]
        end = own[0].obj.document.end  # type: ignore[union-attr]
        text = mended.source.text.text
        body = text[start:end]
        for finding in own:
            after = _attempt(body, finding)
            if after is None:
                refused.add(_key(finding))
            else:
                body = after
                mended.fixed.append(finding)
        mended.source.text = Text(text[:start] + body + text[end:])


def _attempt(body: str, finding: Finding) -> str | None:
    """The text of a document with a fix made; None if the result would not be what is meant."""
    obj, fix = finding.obj, finding.fix
    assert obj is not None and fix is not None
    document = _single(body)
    for change in fix.changes:
        if document is None:
            return None
        try:
            wanted = changed(document.value, change._replace(steps=obj.steps + change.steps))
        except (KeyError, IndexError, TypeError, AttributeError):
            return None
        one = edit(document, obj.steps, change)
        if one is None:
            return None
        body = body[:one.start] + one.text + body[one.end:]
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


def _single(body: str) -> Document | None:
    found = list(documents(Text(body)))
    return found[0] if len(found) == 1 and isinstance(found[0], Document) else None


def _key(finding: Finding) -> Key:
    return finding.id, finding.source.name, finding.obj.title if finding.obj else "", finding.path
