"""hatchling's build hook: what a wheel has besides, and instead of, the files of src/.

It adds the man pages and shell completions that `make man` has written. Modules are installed
without docstrings, comments and annotations of functions, and indented by one space, in all parts
but `transom.testing`, which users import: that makes the installed modules a fifth smaller. Lines
keep their numbers; the sdist has it all.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHARED, SMALLER = "build/share", "build/smaller"
COMPLETE = ("testing",)  # packages whose docstrings and annotations users need
# From Python 3.12 on, a formatted string is several tokens.
_STRING_STARTS = {number for number, name in tokenize.tok_name.items() if name == "FSTRING_START"}
_STRING_ENDS = {number for number, name in tokenize.tok_name.items() if name == "FSTRING_END"}
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
    """The same program, line by line, with nothing that only its readers and type checkers need."""
    return _without_layout(_without_notes(source))


def _without_layout(source: bytes) -> bytes:
    """Without comments, and with one space for each level of indentation."""
    lines = source.decode().split("\n")
    kept, starts, strings = set[int](), dict[int, int](), list[int]()
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source.decode()).readline):
        first, last = token.start[0], token.end[0]
        if token.type == tokenize.INDENT:
            depth += 1
        elif token.type == tokenize.DEDENT:
            depth -= 1
        elif token.type == tokenize.COMMENT:
            lines[first - 1] = lines[first - 1][: token.start[1]].rstrip()
        else:
            starts.setdefault(first, depth)
        if token.type in _STRING_STARTS:
            strings.append(first)
        if token.type in _STRING_ENDS:
            first = strings.pop()
        if token.type in _STRING_ENDS or token.type == tokenize.STRING:
            kept.update(range(first + 1, last + 1))  # the lines of a long string stay as they are
    for number, line in enumerate(lines, 1):
        if number not in kept:
            lines[number - 1] = (" " * starts.get(number, 0) + line.lstrip()).rstrip()
    return "\n".join(lines).encode()


def _without_notes(source: bytes) -> bytes:
    """Without docstrings and annotations of functions."""
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
