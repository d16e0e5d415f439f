"""Release differences are in the tables of `machinery/releases` only."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import transom

SOURCE = Path(transom.__file__).parent


COMPARED = re.compile(r"release[^\n]* [<>]|[<>]=? [^\n]*release")
# What may compare releases: their tables, and the records of facts about Windows.
RELEASE_TABLES = ("machinery/releases/", "machinery/served_since.py", "windows/")


def is_release(node: ast.expr, constants: set[str]) -> bool:
    """`(1, 24)`, `Release(1, 24)`, or the name of a constant with such a value."""
    if isinstance(node, ast.Tuple):
        return ast.unparse(node).startswith("(1, ") and len(node.elts) == 2
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id.endswith("Release")
    return isinstance(node, ast.Name) and node.id in constants


def release_constants(tree: ast.Module) -> set[str]:
    found = set()
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and is_release(statement.value, set()):
            found |= {ast.unparse(target) for target in statement.targets}
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            found |= (
                {ast.unparse(statement.target)} if is_release(statement.value, set()) else set()
            )
    return found


def compared_releases(source: str) -> list[str]:
    """Comparisons by order of something called a release with a fixed one."""
    tree = ast.parse(source)
    constants = release_constants(tree) | {"TABLES_SINCE"}
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and "release" in ast.unparse(node)
        and any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops)
        and any(is_release(side, constants) for side in (node.left, *node.comparators))
    ]


@pytest.mark.parametrize(
    "source",
    [
        "release >= (1, 24)",
        "old.release < (1, 24) <= new.release",
        "SINCE = (1, 24)\nconfig.release >= SINCE",
        "SINCE: Final = Release(1, 24)\nfeatures.release < SINCE",
    ],
)
def test_comparisons_with_a_release_are_found(source: str) -> None:
    assert compared_releases(source)


def test_only_the_tables_of_releases_compare_releases() -> None:
    found = {
        name: compared
        for path in SOURCE.rglob("*.py")
        if not (name := str(path.relative_to(SOURCE))).startswith(RELEASE_TABLES)
        and COMPARED.search(source := path.read_text())  # parsing all files takes long
        and (compared := compared_releases(source))
    }
    assert not found, "give the difference a name in machinery/releases"
