"""The records: complete, well-formed, matched, covered by tests, and on the documentation's pages."""

from __future__ import annotations

import os
import re
import string
import subprocess
import sys
from pathlib import Path

import pytest
from tests.windows import marks

from transom.windows import checklist, match, pages, registry, wording
from transom.windows.limits import LIMITS
from transom.windows.records import Record, WindowsLimit, WindowsSupport
from transom.windows.support import SUPPORT

SHARED = marks.ROOT.parent / "shared/reference/checklist.md"
CURRENT = SHARED.with_name("checklist-current.md")
MOST_AWAITED = 0  # may only become less
KINDS = {"Pod", "Service", "KubeletConfiguration"}
every = pytest.mark.parametrize("record", registry.RECORDS.values(), ids=list(registry.RECORDS))


@every
def test_a_record_is_well_formed(record: Record) -> None:
    kind = "WIN" if isinstance(record, WindowsLimit) else "SUP"
    assert re.fullmatch(rf"{kind}-({'|'.join(wording.AREAS)})-[0-9]{{3}}", record.id)
    assert record.statement.endswith(".") and record.title[-1] not in ". " and record.section
    assert set(record.checklist) <= set(checklist.checklist_statements())
    assert record.until is None or record.since <= record.until
    assert record.builds[1] is None or record.builds[0] <= record.builds[1]
    assert record.runtimes and record.networks
    if isinstance(record, WindowsLimit):
        assert record.remedy.endswith(".")
        assert all(field.kind in KINDS for field in (*record.fields, *record.given, *record.unless))
        assert all(match.parts_of_pod(field.path) for field in record.fields)
        assert all(
            re.compile(str(field.value)) for field in record.fields if field.test == "matches"
        )
        names = [
            name for _, name, _, _ in string.Formatter().parse(record.message) if name is not None
        ]
        assert all(name.isidentifier() for name in names)
        assert record.severity == "none" or record.fields or record.check
        assert record.fix == "none" or record.fields


def test_ids_are_used_once() -> None:
    modules = [module for package in ("limits", "support") for module in _areas(package)]
    assert (
        len([record for module in modules for record in module])
        == len(registry.RECORDS)
        == len(LIMITS) + len(SUPPORT)
    )


def _areas(package: str) -> list[tuple[Record, ...]]:
    from importlib import import_module

    loaded = import_module(f"transom.windows.{package}")
    return [getattr(area, package.upper()) for area in loaded._AREAS]


def test_every_statement_in_scope_has_a_record() -> None:
    held = registry.records_by_statement()
    assert [
        id
        for id, statement in checklist.checklist_statements().items()
        if statement.scope == "now" and id not in held
    ] == []


def test_every_statement_is_in_the_table() -> None:
    if not SHARED.exists():
        pytest.skip("the list of the documents' statements is not here")
    listed = [
        id
        for path in (SHARED, CURRENT)
        for id in re.findall(
            r"^\| ((?:W-)?[A-Z0-9]+-\d+) \|", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        if path == SHARED or id.startswith("W-")
    ]
    assert set(listed) == set(checklist.checklist_statements())


def test_every_record_in_scope_is_shown_by_a_test() -> None:
    missing = marks.unshown(marks.marks())
    assert sorted(missing) == sorted(marks.awaited()), (
        "mark a test with the record's id, then `make docs`"
    )
    assert len(missing) <= MOST_AWAITED


def test_marks_name_what_there_is() -> None:
    known = {*registry.RECORDS, *checklist.checklist_statements()}
    assert [id for id in marks.marks() if id not in known] == []
    assert [test for _, test in marks.links() if not marks.exists(test)] == []


def test_pages_are_fresh() -> None:
    folder = marks.ROOT / "docs/windows"
    written = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    made = pages.record_pages()
    assert {name: body for name, body in made.items() if written.get(name) != body} == {}, (
        "run `make docs`"
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("win-pod-002", "WIN-POD-002"),
        ("API-23", "WIN-SEC-001"),
        ("readOnlyRootFilesystem", "WIN-SEC-009"),
        ("grace period", "WIN-POD-007"),
        ("WIN-DNS", "WIN-DNS-001"),
        ("network host not found", "WIN-POD-002"),
        ("no such thing", ""),
        ("", ""),
    ],
)
def test_records_are_found(query: str, expected: str) -> None:
    found = registry.find_records(query)
    assert (found[0].id if found else "") == expected


def test_a_search_without_result_gives_a_hint() -> None:
    assert "WIN-POD-002" in registry.similar_records("WIN-POD-0022")
    assert registry.similar_records("hugepagez") == ["hugepages"]


def test_loading_takes_no_time(tmp_path: Path) -> None:
    code = (
        "import time, re, typing, collections.abc\nt = time.process_time()\n"
        "import transom.windows.limits\nprint(time.process_time() - t)"
    )
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    times = [
        float(subprocess.check_output([sys.executable, "-c", code], env=env)) for _ in range(4)
    ]
    assert min(times) < 0.050, "the records take long to import"


def test_both_kinds_of_records_say_where_they_hold() -> None:
    assert wording.record_location(LIMITS["WIN-SEC-021"]) == (
        "up to build 19041, with containerd, before update 17763.1817 or 19041.662"
    )
    assert wording.record_location(LIMITS["WIN-SVC-005"]) == "from 1.20, without dsr"
    assert wording.record_location(SUPPORT["SUP-SVC-012"]) == (
        "from 1.19, from build 19041, on l2bridge networks, from update 19041.610"
    )
    assert wording.record_location(WindowsSupport("SUP-POD-001", "x", "x.")) == "everywhere"
