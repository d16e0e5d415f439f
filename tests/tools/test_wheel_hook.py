"""Modules without docstrings, comments and annotations are the same programs."""

from __future__ import annotations

import ast

import pytest
from tools.locked import ROOT
from tools.wheel_hook import docstring_of, smaller_source

SOURCE = '''\
"""A module.

With a second line.
"""

from __future__ import annotations
class Fails(Exception):
    """Only documented."""
class Row:
    """Keeps the types of its fields."""
    name: str = "#"
    def find(self, key: str = "a: b", *rest: int, other: dict[str, int] | None = None) -> str | None:
        """é"""
        # only a comment
        text = f"""{key}
            # not a comment: {
                rest
            }"""
        return f"{key}  # {rest}"  # a comment
def many(
    first: int,
    second: dict[
        str, int
    ],
) -> tuple[
    int, str
]: return first, "x"
'''
SMALLER = '''\





from __future__ import annotations
class Fails(Exception):
 ...
class Row:

 name: str = "#"
 def find(self, key = "a: b", *rest, other = None):


  text = f"""{key}
            # not a comment: {
                rest
            }"""
  return f"{key}  # {rest}"
def many(
first,
second: dict[
str, int
],
) -> tuple[
int, str
]: return first, "x"
'''


def test_lines_stay_where_they_are() -> None:
    assert smaller_source(SOURCE.encode()).decode() == SMALLER


def bare(source: bytes) -> str:
    """The syntax tree, without what may be missing."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = docstring_of(node)
            if text is not None:
                only = len(node.body) == 1 and not isinstance(node, ast.Module)
                node.body[:1] = [ast.Expr(ast.Constant(...))] if only else []
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
    return ast.dump(tree)


@pytest.mark.parametrize("package", ["cli", "node", "ingress", "machinery/validation", "windows"])
def test_programs_stay_the_same(package: str) -> None:
    for path in (ROOT / "src/transom" / package).rglob("*.py"):
        source = path.read_bytes()
        smaller = smaller_source(source)
        assert bare(smaller) == bare(source), path
        assert smaller.count(b"\n") == source.count(b"\n")
