"""The pages of docs/windows, made from the records: `python -m transom.windows.pages docs/windows` writes them.

A test compares the pages with the records, so neither can change alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from transom.windows import statements, wording
from transom.windows.builds import BUILDS, HNS_FEATURES, has
from transom.windows.limits import LIMITS
from transom.windows.records import Limit, Record, Release, Support
from transom.windows.releases import DEFAULT, GATES, RELEASES, text
from transom.windows.support import SUPPORT

R = TypeVar("R", Limit, Support)
_MADE = "<!-- Made from src/transom/windows by `make docs`. -->\n\n"


def pages() -> dict[str, str]:
    """File name -> text."""
    made = {"README.md": _overview(), "builds.md": _builds(), "document.md": _document(DEFAULT)}
    for area, records in _by_area(LIMITS).items():
        made[f"limits-{area.lower()}.md"] = _limits(area, records)
    made["supported.md"] = _supported()
    return {name: _MADE + body for name, body in made.items()}


def write(folder: Path) -> None:
    """Also removes pages that there is no record for any more."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages()
    for name, body in made.items():
        (folder / name).write_text(body, encoding="utf-8")
    for old in folder.glob("*.md"):
        if old.name not in made and old.read_text(encoding="utf-8").startswith(_MADE):
            old.unlink()


def _overview() -> str:
    lines = [
        "# Windows", "",
        "What Windows nodes can and cannot do, as records that Transom itself reads: admission warnings, `transom lint` and",
        "these pages. On the terminal, `transom matrix` lists them for a release and build, and `transom explain` tells more",
        "of one.", "",
        "- [Builds, releases, runtimes and features](builds.md)",
        "- [What works](supported.md)",
        "- [The documents' statements and what becomes of them](document.md)", "", "## Limits", "",
    ]
    for area, records in _by_area(LIMITS).items():
        lines.append(f"- [{wording.AREAS[area]}](limits-{area.lower()}.md): {len(records)}")
    lines += [
        "", "## Changing a record", "",
        "Limits are in `src/transom/windows/limits`, what works is in `support`, one file for each area. Ids are never used",
        'again. A record is shown by a test with the mark `@pytest.mark.windows("WIN-...")`, or with the id of one of its',
        "statements. `make docs` then writes these pages and the list of tests; CI refuses stale ones.",
    ]
    return "\n".join(lines) + "\n"


def _builds() -> str:
    lines = ["# Builds, releases, runtimes and features", "", "## Builds of Windows Server", ""]
    lines += _table(
        ("build", "release", "product", "channel", "image tags", "HNS"),
        (
            (str(b.number), b.release, b.product, b.channel, ", ".join(b.tags), ".".join(map(str, b.hns)))
            for b in BUILDS.values()
        ),
    )
    lines += [
        "", "HNS is the version of the host networking service. Updates raise it; where no version is published for a build,",
        "the table has one with the features that the build is known to have.",
        "", "## What the host networking service can do", "",
    ]
    lines += _table(
        ("feature", "builds"),
        ((name, ", ".join(str(b.number) for b in BUILDS.values() if has(b, name)) or "none") for name in HNS_FEATURES),
    )
    lines += ["", "## Releases of Kubernetes", ""]
    lines += _table(
        ("release", "builds that make nodes", "Docker", "containerd", "pause image"),
        (
            (
                text(facts.release), ", ".join(map(wording.build_name, facts.builds)), facts.docker or "-",
                f"{facts.containerd} ({facts.containerd_stage})" if facts.containerd else "-", f"`{facts.pause}`",
            )
            for facts in RELEASES.values()
        ),
    )
    lines += ["", "## Features", "", "Names without a feature gate are in italics.", ""]
    lines += _table(
        ("feature", "what", "alpha", "beta", "stable", "deprecated", "removed"),
        (
            (
                f"`{gate.name}`" if gate.flag else f"*{gate.name}*", gate.about,
                *(text(when) if when else "" for when in (gate.alpha, gate.beta, gate.stable, gate.deprecated, gate.removed)),
            )
            for gate in GATES.values()
        ),
    )
    return "\n".join(lines) + "\n"


def _limits(area: str, records: list[Limit]) -> str:
    lines = [f"# Limits: {wording.AREAS[area]}", ""]
    for limit in records:
        lines += [f"## {limit.id}: {_escaped(limit.title)}", "", _escaped(limit.statement), ""]
        rows = [
            ("on a Windows node", f"{wording.EFFECTS[limit.effect]}" + (f" (`{limit.reason}`)" if limit.reason else "")),
            ("message", f"`{limit.message}`" if limit.message else ""),
            ("holds", wording.where(limit)),
            ("fields", ", ".join(f"`{wording.field(field)}`" for field in limit.fields)),
            ("together with", ", ".join(f"`{wording.field(field)}`" for field in limit.given)),
            ("remedy", _escaped(limit.remedy)),
            ("note", _escaped(limit.note)),
            ("document", _source(limit)),
        ]
        lines += [f"- {name}: {value}" for name, value in rows if value]
        lines.append("")
    return "\n".join(lines)


def _supported() -> str:
    lines = ["# What works on Windows", ""]
    for area, records in _by_area(SUPPORT).items():
        lines += [f"## {wording.AREAS[area]}", ""]
        lines += _table(
            ("id", "what", "", "holds", "how"),
            (
                (r.id, f"**{_cell(r.title)}** {_cell(r.statement)}", wording.outcome(r), wording.where(r), _cell(r.enable))
                for r in records
            ),
        )
        lines.append("")
    return "\n".join(lines)


def _document(release: Release) -> str:
    lines = [
        "# The documents' statements", "",
        f"Each statement by its id, the records that hold it, and what a cluster of release {text(release)} does.",
        "`transom matrix --document` also names the tests that show it.", "",
    ]
    lines += _table(
        ("id", "about", "records", "this cluster"),
        ((row.id, _cell(row.about), ", ".join(row.records), row.does) for row in statements.rows(release)),
    )
    return "\n".join(lines) + "\n"


def _source(record: Record) -> str:
    found = ", ".join(record.checklist)
    return f"{record.section} ({found})" if found else record.section


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, tuple("---" for _ in head), *rows)]


def _escaped(words: str) -> str:
    return words.replace("\\", "\\\\").replace("*", "\\*").replace("<", "&lt;")


def _cell(words: str) -> str:
    return _escaped(words).replace("|", "\\|")


def _by_area(records: Mapping[str, R]) -> dict[str, list[R]]:
    found: dict[str, list[R]] = {}
    for record in records.values():
        found.setdefault(wording.area(record), []).append(record)
    return found


if __name__ == "__main__":
    write(Path(sys.argv[1]))
