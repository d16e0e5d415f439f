"""Modules without docstrings, comments and annotations are the same programs."""

from __future__ import annotations

import ast

import pytest
from tools.locked import ROOT
from tools.wheel_hook import TYPE_MODULES, docstring_of, is_for_type_checkers, smaller_source

SOURCE = '''\
"""A module.

With a second line.
"""

from __future__ import annotations
from collections.abc import Iterable, Iterator
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
)
from types import TracebackType
if TYPE_CHECKING:
    from transom.kit import clock
    from transom.kit import pki  # both lazily
else:
    clock = lazily("transom.kit.clock")
LIMITS: dict[str, int] = {"a": 1}
class Fails(Exception):
    """Only documented."""
class Row:
    """Keeps the types of its fields."""
    name: str = "#"
    rows: Iterator[str]
    def __init__(self, rows: Iterable[Any]) -> None:
        self.rows: Iterator = rows
        self.first: dict[
            str, Any
        ] = {}
        kept: int
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
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any





if TYPE_CHECKING:
 pass

else:
 clock = lazily("transom.kit.clock")
LIMITS = {"a": 1}
class Fails(Exception):
 ...
class Row:

 name: str = "#"
 rows: Iterator[str]
 def __init__(self, rows):
  self.rows = rows
  self.first: dict[
  str, Any
  ] = {}
  kept: int
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
    fields = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = docstring_of(node)
            if text is not None:
                only = len(node.body) == 1 and not isinstance(node, ast.Module)
                node.body[:1] = [ast.Expr(ast.Constant(...))] if only else []
        if isinstance(node, ast.ClassDef):
            fields |= {id(field) for field in node.body}
        if isinstance(node, ast.If) and is_for_type_checkers(node):
            node.body = [ast.Pass()]
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.AnnAssign) and node.value is not None and id(node) not in fields:
            node.annotation = ast.Name("Any")
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            node.__class__ = ast.AnnAssign  # as if it had one
            target = node.targets[0]
            simple = int(isinstance(target, ast.Name))
            node.target, node.annotation, node.simple = target, ast.Name("Any"), simple  # type: ignore[attr-defined]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.ImportFrom) and node.module in TYPE_MODULES)
    ]
    return ast.dump(tree)


def type_names(source: bytes) -> dict[str, str | None]:
    """The names that a module imports from those of annotations."""
    return {
        alias.asname or alias.name: node.module
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom) and node.module in TYPE_MODULES
        for alias in node.names
    }


@pytest.mark.parametrize("package", ["cli", "node", "ingress", "machinery/validation", "windows"])
def test_programs_stay_the_same(package: str) -> None:
    for path in (ROOT / "src/transom" / package).rglob("*.py"):
        source = path.read_bytes()
        smaller = smaller_source(source)
        assert bare(smaller) == bare(source), path
        kept, names = type_names(smaller), type_names(source)
        used = {node.id for node in ast.walk(ast.parse(smaller)) if isinstance(node, ast.Name)}
        assert kept == {name: names[name] for name in names if name in used}, path
        assert smaller.count(b"\n") == source.count(b"\n")
