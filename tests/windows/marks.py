"""Finds the tests that show what the documents say, by their `windows` marks and by the tables that
they read, without running or importing them.

`python -m tests.windows.marks` removes the records that have tests now from `awaited.txt` (`make docs`
does).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import yaml

from transom.windows.checklist import checklist_statements
from transom.windows.records import Record
from transom.windows.registry import RECORDS

ROOT = Path(__file__).parent.parent.parent
AWAITED = Path(__file__).with_name("awaited.txt")  # records whose tests are still to come
# tests that show a statement and cannot carry its mark
LINKS = Path(__file__).with_name("links.txt")
TABLES = Path(__file__).with_name("predictions")
TRIES = "tests/windows/test_predictions_of_pods.py"


def marks() -> dict[str, list[str]]:
    """Id of a statement or record -> tests, as pytest names them."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "mark.windows" not in source:
            continue
        for test, ids in _marked(ast.parse(source)):
            for id in ids:
                found.setdefault(id, []).append(f"{path.relative_to(ROOT).as_posix()}::{test}")
    for id, test in (*links(), *tried()):
        found.setdefault(id, []).append(test)
    return {id: sorted(set(tests)) for id, tests in sorted(found.items())}


def links() -> list[tuple[str, str]]:
    found = []
    for line in LINKS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            id, test = line.split(" ", 1)
            found.append((id, test))
    return found


def tried() -> list[tuple[str, str]]:
    """Limits that a table says how to try: one test for all of them."""
    keys = [
        id
        for path in sorted(TABLES.glob("*.yaml"))
        for id in yaml.safe_load(path.read_text(encoding="utf-8"))
    ]
    return [(id, f"{TRIES}::test_a_node_does_what_lint_predicts") for id in keys]


def exists(test: str) -> bool:
    path, _, name = test.partition("::")
    file = ROOT / path
    if not file.is_file():
        return False
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    )


def _marked(module: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Tests with their marks: the function's, its class's and the module's `pytestmark`."""
    general = [id for node in module.body for id in _pytestmark(node)]
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            shared = general + [id for mark in node.decorator_list for id in _ids(mark)]
            for inner in node.body:
                if isinstance(
                    inner, ast.FunctionDef | ast.AsyncFunctionDef
                ) and inner.name.startswith("test"):
                    own = [id for mark in inner.decorator_list for id in _ids(mark)]
                    yield f"{node.name}::{inner.name}", shared + own
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test"
        ):
            yield node.name, general + [id for mark in node.decorator_list for id in _ids(mark)]


def _pytestmark(node: ast.stmt) -> list[str]:
    if not (
        isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets)
    ):
        return []
    return _ids(node.value)


def _ids(node: ast.expr) -> list[str]:
    """What `mark.windows(...)` anywhere in an expression is called with."""
    return [
        argument.value
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "windows"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def in_scope() -> list[Record]:
    """Records that this cluster must show: all but those of statements that are for later, or only
    have to be documented.
    """
    known = checklist_statements()
    return [
        r
        for r in RECORDS.values()
        if not r.checklist or any(known[id].scope == "now" for id in r.checklist)
    ]


def unshown(found: dict[str, list[str]]) -> list[str]:
    return [
        record.id
        for record in in_scope()
        if not any(id in found for id in (record.id, *record.checklist))
    ]


def awaited() -> list[str]:
    return [
        line
        for line in AWAITED.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]


def write() -> None:
    """Where transom reads it; what is shown now is no longer awaited. Nothing is ever added to what
    is awaited.
    """
    found = marks()
    still = set(unshown(found))
    lines = AWAITED.read_text(encoding="utf-8").splitlines()
    AWAITED.write_text(
        "".join(f"{line}\n" for line in lines if line.startswith("#") or line in still),
        encoding="utf-8",
    )


if __name__ == "__main__":
    write()
