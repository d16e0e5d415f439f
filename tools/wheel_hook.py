"""hatchling's build hook: what a wheel has besides, and instead of, the files of src/.

It adds the man pages and shell completions that `make man` has written. Modules are installed
without docstrings and without annotations of functions, in all parts but `transom.testing`, which
users import: they are a tenth of the installed size. Lines keep their numbers; the sdist has it all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHARED, SMALLER = "build/share", "build/smaller"
COMPLETE = ("testing",)  # packages whose docstrings and annotations users need
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class SharedFilesHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """A wheel without man pages and completions, for example of `pip install .`, works the same."""
        if version == "editable":
            return
        root = Path(self.root)
        shared = root / SHARED
        for path in sorted(shared.rglob("*")):
            if path.is_file():
                target = f"share/{path.relative_to(shared).as_posix()}"
                build_data["shared_data"][str(path)] = target
        for path in sorted((root / "src").rglob("*.py")):
            name = path.relative_to(root / "src")
            source = path
            if name.parts[1] not in COMPLETE:
                source = root / SMALLER / name
                if not _is_newer(source, path):
                    source.parent.mkdir(parents=True, exist_ok=True)
                    source.write_bytes(smaller_source(path.read_bytes()))
            build_data["force_include"][str(source)] = name.as_posix()


def _is_newer(made: Path, source: Path) -> bool:
    """Whether a file of an earlier build is up to date."""
    if not made.exists():
        return False
    time = made.stat().st_mtime_ns
    return time > max(source.stat().st_mtime_ns, Path(__file__).stat().st_mtime_ns)


def smaller_source(source: bytes) -> bytes:
    """The same program without docstrings and annotations of functions, line by line."""
    lines = source.split(b"\n")
    for first, start, last, end, text in sorted(_removals(ast.parse(source), lines), reverse=True):
        rest = lines[last][end:]
        for number in range(first + 1, last + 1):
            lines[number] = b""
        lines[first] = (lines[first][:start] + text + rest).rstrip()
    return b"\n".join(lines)


def _removals(tree: ast.AST, lines: list[bytes]) -> Iterator[tuple[int, int, int, int, bytes]]:
    """Ranges of the source (line and column, twice), and what stands there instead."""
    for node in ast.walk(tree):
        if isinstance(node, _Documented) and (text := docstring_of(node)) is not None:
            only = len(node.body) == 1 and not isinstance(node, ast.Module)
            yield *_range(text), b"..." if only else b""
        if isinstance(node, ast.arg) and node.annotation is not None:
            first, _, last, end = _range(node.annotation)
            start = node.col_offset + len(node.arg.encode())
            colon = lines[first][start : node.annotation.col_offset].strip()
            if first == last == node.lineno - 1 and colon == b":":
                yield first, start, last, end, b""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            first, start, last, end = _range(node.returns)
            before = lines[first][:start].rstrip()
            if first == last and before.endswith(b"->"):
                yield first, len(before[:-2].rstrip()), last, end, b""


def _range(node: ast.expr | ast.Expr) -> tuple[int, int, int, int]:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.lineno - 1, node.col_offset, node.end_lineno - 1, node.end_col_offset


def docstring_of(node: _Documented) -> ast.Expr | None:
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return first if isinstance(first.value.value, str) else None
    return None
