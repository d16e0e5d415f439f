"""The report of an upgrade rehearsal, as text and as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from transom.kit.escaping import escape_line
from transom.lint.upgrade import UpgradeReport
from transom.lint.upgrade_checks import Outcome, UpgradeItem
from transom.windows.records import NodeTarget
from transom.windows.releases import release_text
from transom.windows.wording import build_name

_HEADS: Final[dict[Outcome, str]] = {
    "breaks": "Breaks",
    "changes": "Changes",
    "works": "No longer a problem",
}


def render_upgrade(report: UpgradeReport) -> str:
    lines = [f"From {_target(report.before)}", f"To   {_target(report.after)}"]
    for outcome, head in _HEADS.items():
        items = report.of(outcome)
        nodes = [limit for other, limit in report.nodes if other == outcome]
        if not items and not nodes:
            continue
        lines += ["", f"{head}:"]
        lines += _grouped(items)
        for limit in nodes:
            lines.append(f"  {limit.id}  nodes: {limit.title}")
            if outcome != "works":
                lines.append(f"      change: {limit.remedy}")
    broken = len(report.of("breaks"))
    lines += [
        "",
        f"{report.objects} {'object' if report.objects == 1 else 'objects'}: "
        f"{broken} {'change' if broken == 1 else 'changes'} needed before the upgrade, "
        f"{len(report.of('changes'))} to look at.",
    ]
    return "\n".join(lines) + "\n"


def _grouped(items: list[UpgradeItem]) -> Iterator[str]:
    by_record: dict[str, list[UpgradeItem]] = {}
    for item in items:
        by_record.setdefault(item.record.id, []).append(item)
    for id, members in sorted(by_record.items()):
        yield f"  {id}  {members[0].record.title}"
        for item in members:
            yield escape_line(f"    {item.place}: {item.obj}: {item.message or item.path}")
        if members[0].outcome != "works":
            for remedy in dict.fromkeys(item.remedy for item in members):
                yield f"      change: {remedy}"


def upgrade_document(report: UpgradeReport) -> dict[str, Any]:
    return {
        "from": _target(report.before),
        "to": _target(report.after),
        "objects": report.objects,
        "items": [
            {
                "id": item.record.id,
                "title": item.record.title,
                "outcome": item.outcome,
                "object": item.obj,
                "place": item.place,
                "path": item.path,
                "message": item.message,
                "remedy": item.remedy,
            }
            for item in report.items
        ],
        "nodes": [
            {"id": limit.id, "title": limit.title, "outcome": outcome, "remedy": limit.remedy}
            for outcome, limit in report.nodes
        ],
    }


def _target(target: NodeTarget) -> str:
    build = f"build {build_name(target.build)}" if target.build else "any build"
    return f"Kubernetes {release_text(target.release)}, {build}, {target.runtime or 'any runtime'}"
