"""The pages of docs/windows, generated from the records: `python -m transom.windows.pages
docs/windows` writes them.

A test compares the pages with the records, so neither can change alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from transom.windows import statements, wording
from transom.windows.builds import BUILDS, HNS_FEATURES, has_hns_feature
from transom.windows.limits import LIMITS
from transom.windows.records import Record, Release, WindowsLimit, WindowsSupport
from transom.windows.releases import DEFAULT, GATES, RELEASES, release_text
from transom.windows.support import SUPPORT

R = TypeVar("R", WindowsLimit, WindowsSupport)
_MADE = "<!-- Made from src/transom/windows by `make docs`. -->\n\n"


def record_pages() -> dict[str, str]:
    """File name -> text."""
    made = {"README.md": _overview(), "builds.md": _builds(), "document.md": _document(DEFAULT)}
    for area, records in _by_area(LIMITS).items():
        made[f"limits-{area.lower()}.md"] = _limits(area, records)
    made["supported.md"] = _supported()
    return {name: _MADE + body for name, body in made.items()}


def write_pages(folder: Path) -> None:
    """Also removes pages without a record."""
    folder.mkdir(parents=True, exist_ok=True)
    made = record_pages()
    for name, body in made.items():
        (folder / name).write_text(body, encoding="utf-8")
    for old in folder.glob("*.md"):
        if old.name not in made and old.read_text(encoding="utf-8").startswith(_MADE):
            old.unlink()


def _overview() -> str:
    lines = [
        "# Windows",
        "",
        "What Windows nodes can and cannot do. Admission warnings, `transom lint`, `transom doctor` and these",
        "pages use the same records. `transom matrix` lists them for a release and build, and",
        "`transom explain` shows one.",
        "",
        "- [Builds, releases, runtimes and features](builds.md)",
        "- [What works](supported.md)",
        "- [The Kubernetes documentation, point by point](document.md)",
        "",
        "## Limitations",
        "",
    ]
    for area, records in _by_area(LIMITS).items():
        lines.append(f"- [{wording.AREAS[area]}](limits-{area.lower()}.md): {len(records)}")
    lines += [
        "",
        "## Changing a record",
        "",
        "Limitations are in `src/transom/windows/limits`, supported features in `src/transom/windows/support`,",
        "one file per area. Ids are never reused. A test that covers a record has the mark",
        '`@pytest.mark.windows("WIN-...")`. Run `make docs` after a change; CI rejects stale pages.',
    ]
    return "\n".join(lines) + "\n"


def _builds() -> str:
    lines = ["# Builds, releases, runtimes and features", "", "## Builds of Windows Server", ""]
    lines += _table(
        ("build", "release", "product", "channel", "image tags", "HNS"),
        (
            (
                str(b.number),
                b.release,
                b.product,
                b.channel,
                ", ".join(b.tags),
                ".".join(map(str, b.hns)),
            )
            for b in BUILDS.values()
        ),
    )
    lines += [
        "",
        (
            "HNS is the version of the host networking service. Updates raise it; if no "
            "version is published for a build,"
        ),
        "the table has a version with the known features of the build.",
        "",
        "## What the host networking service can do",
        "",
    ]
    lines += _table(
        ("feature", "builds"),
        (
            (
                name,
                ", ".join(str(b.number) for b in BUILDS.values() if has_hns_feature(b, name))
                or "none",
            )
            for name in HNS_FEATURES
        ),
    )
    lines += ["", "## Releases of Kubernetes", ""]
    lines += _table(
        ("release", "supported builds", "Docker", "containerd", "pause image"),
        (
            (
                release_text(facts.release),
                ", ".join(map(wording.build_name, facts.builds)),
                facts.docker or "-",
                f"{facts.containerd} ({facts.containerd_stage})" if facts.containerd else "-",
                f"`{facts.pause}`",
            )
            for facts in RELEASES.values()
        ),
    )
    lines += ["", "## Features", "", "Names without a feature gate are in italics.", ""]
    lines += _table(
        ("feature", "what", "alpha", "beta", "stable", "deprecated", "removed"),
        (
            (
                f"`{gate.name}`" if gate.flag else f"*{gate.name}*",
                gate.about,
                *(
                    release_text(when) if when else ""
                    for when in (gate.alpha, gate.beta, gate.stable, gate.deprecated, gate.removed)
                ),
            )
            for gate in GATES.values()
        ),
    )
    return "\n".join(lines) + "\n"


def _limits(area: str, records: list[WindowsLimit]) -> str:
    lines = [f"# Limitations: {wording.AREAS[area]}", ""]
    for limit in records:
        lines += [f"## {limit.id}: {_escaped(limit.title)}", "", _escaped(limit.statement), ""]
        rows = [
            (
                "on a Windows node",
                f"{wording.EFFECTS[limit.effect]}"
                + (f" (`{limit.reason}`)" if limit.reason else ""),
            ),
            ("message", f"`{limit.message}`" if limit.message else ""),
            ("applies", wording.record_location(limit)),
            ("fields", ", ".join(f"`{wording.field_wording(field)}`" for field in limit.fields)),
            (
                "together with",
                ", ".join(f"`{wording.field_wording(field)}`" for field in limit.given),
            ),
            ("remedy", _escaped(limit.remedy)),
            ("note", _escaped(limit.note)),
            ("documentation", _source(limit)),
        ]
        lines += [f"- {name}: {value}" for name, value in rows if value]
        lines.append("")
    return "\n".join(lines)


def _supported() -> str:
    lines = ["# What works on Windows", ""]
    for area, records in _by_area(SUPPORT).items():
        lines += [f"## {wording.AREAS[area]}", ""]
        lines += _table(
            ("id", "what", "", "applies", "how"),
            (
                (
                    r.id,
                    f"**{_cell(r.title)}** {_cell(r.statement)}",
                    wording.record_outcome(r),
                    wording.record_location(r),
                    _cell(r.enable),
                )
                for r in records
            ),
        )
        lines.append("")
    return "\n".join(lines)


def _document(release: Release) -> str:
    lines = [
        "# The Kubernetes documentation, point by point",
        "",
        (
            f"The points of [Windows containers in Kubernetes]({wording.INTRO_PAGE}), the records that "
            f"cover them, and the behaviour of Transom with release {release_text(release)}."
        ),
        "",
    ]
    lines += _table(
        ("id", "about", "records", "Transom"),
        (
            (row.id, _cell(row.about), ", ".join(row.records), row.does)
            for row in statements.statement_rows(release)
        ),
    )
    return "\n".join(lines) + "\n"


def _source(record: Record) -> str:
    return f"[{record.section or 'Kubernetes'}]({wording.documentation_page(record)})"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, tuple("---" for _ in head), *rows)]


def _escaped(words: str) -> str:
    return words.replace("\\", "\\\\").replace("*", "\\*").replace("<", "&lt;")


def _cell(words: str) -> str:
    return _escaped(words).replace("|", "\\|")


def _by_area(records: Mapping[str, R]) -> dict[str, list[R]]:
    found: dict[str, list[R]] = {}
    for record in records.values():
        found.setdefault(wording.record_area(record), []).append(record)
    return found


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
