"""Imports: which code may import late, and that late imports are visible to the import contracts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import grimp
import pytest

import transom

SOURCE = Path(transom.__file__).parent
CLI = SOURCE / "cli"
HELPER = SOURCE / "kit" / "lazy.py"
_LATE = re.compile(r"^[ \t].*\bimport\b|import_module|__import__|lazy_|TYPE_CHECKING", re.MULTILINE)
MODULES = sorted(path for path in SOURCE.rglob("*.py") if CLI not in path.parents)


def late_imports(tree: ast.AST) -> Iterator[ast.AST]:
    """Imports inside of functions, in whatever form."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom | ast.Import):
                    yield node


def dynamic_imports(tree: ast.AST) -> Iterator[ast.AST]:
    """Calls of `import_module` and `__import__` with the name of one of our own modules."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called in ("import_module", "__import__"):
            name = ast.unparse(node.args[0]).lstrip("f'\"")
            if name.startswith(("transom", "{__name__}")):
                yield node


def deferred_modules(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Arguments of `lazy_import` and `lazy_function`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "lazy_import":
                yield ast.literal_eval(node.args[0]), node
            elif node.func.id == "lazy_function":
                module, name = (ast.literal_eval(argument) for argument in node.args)
                yield f"{module}.{name}", node


def type_checking_imports(tree: ast.Module) -> set[str]:
    found = set()
    for block in tree.body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for node in block.body:
                if isinstance(node, ast.ImportFrom):
                    found |= {f"{node.module}.{alias.name}" for alias in node.names}
                elif isinstance(node, ast.Import):
                    found |= {alias.name for alias in node.names}
    return found


@cache
def _parsed(path: Path) -> ast.Module:
    """Empty if the file cannot have a late import, because parsing all files takes long."""
    text = path.read_text()
    return ast.parse(text if _LATE.search(text) else "")


def _name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def test_only_the_command_line_and_the_helper_import_late() -> None:
    found = [
        f"{_name(path)}:{node.lineno}"  # type: ignore[attr-defined]
        for path in MODULES
        if path != HELPER
        for tree in [_parsed(path)]
        for node in (*late_imports(tree), *dynamic_imports(tree))
    ]
    assert found == [], "use kit.lazy instead"


def test_contracts_see_what_is_imported_late() -> None:
    """`lazy_import("a.b")` stands beside `from a import b` under TYPE_CHECKING."""
    found = [
        f"{_name(path)}:{node.lineno}: {module}"
        for path in MODULES
        if path != HELPER
        for tree in [_parsed(path)]
        for module, node in deferred_modules(tree)
        if module not in type_checking_imports(tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    from transom.kit import clock",
        "def f():\n    import transom.kit.clock",
        "def f():\n    import yaml",
        "class A:\n    async def f(self):\n        if x:\n            from transom.kit import clock",
    ],
)
def test_a_late_import_is_found(code: str) -> None:
    assert list(late_imports(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    importlib.import_module('transom.kit.clock')",
        "import_module(f'transom.{name}')",
        "import_module(f'{__name__}.{name}')",
    ],
)
def test_a_dynamic_import_is_found(code: str) -> None:
    assert list(dynamic_imports(ast.parse(code)))


def test_a_module_that_is_not_ours_may_be_imported_by_its_name() -> None:
    assert not list(dynamic_imports(ast.parse("def f():\n    import_module('re2')")))


def test_modules_do_not_import_each_other_in_cycles() -> None:
    """Imports under TYPE_CHECKING count."""
    graph = grimp.build_graph("transom", cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert [sorted(group) for group in strongly_connected(imports) if len(group) > 1] == []


def test_a_cycle_is_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert [group for group in strongly_connected(imports) if len(group) > 1] == [{"b", "c"}]


def strongly_connected(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """Kosaraju's algorithm, without recursion."""
    importers: dict[str, set[str]] = {name: set() for name in imports}
    for name, imported in imports.items():
        for other in imported:
            importers[other].add(name)
    finished: list[str] = []
    _search(imports, imports, finished, set())
    seen: set[str] = set()
    groups = []
    for name in reversed(finished):
        if name not in seen:
            group: list[str] = []
            _search([name], importers, group, seen)
            groups.append(set(group))
    return groups


def _search(
    starts: Iterable[str], edges: Mapping[str, set[str]], finished: list[str], seen: set[str]
) -> None:
    """Appends each module that is reached once all that it leads to are there."""
    for start in starts:
        if start in seen:
            continue
        seen.add(start)
        path = [(start, iter(edges[start]))]
        while path:
            name, left = path[-1]
            following = next((other for other in left if other not in seen), None)
            if following is None:
                finished.append(name)
                path.pop()
            else:
                seen.add(following)
                path.append((following, iter(edges[following])))
