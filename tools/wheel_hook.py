"""hatchling's build hook: what a wheel has besides, and instead of, the files of src/.

It adds the man pages and shell completions that `make man` has written. Modules are installed
without docstrings, comments, annotations of functions and variables and imports for type checkers,
and indented by one space, in all parts but `transom.testing`, which users import: that makes the
installed modules a fifth smaller. Lines keep their numbers. The tables of releases are compressed.
The sdist has it all.
"""

from __future__ import annotations

import ast
import io
import tokenize
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHARED, SMALLER = "build/share", "build/smaller"
TABLES = "transom/machinery/releases"  # its tables are compressed
COMPLETE = ("testing",)  # packages whose docstrings and annotations users need
# From Python 3.12 on, a formatted string is several tokens.
_STRING_STARTS = {number for number, name in tokenize.tok_name.items() if name == "FSTRING_START"}
_STRING_ENDS = {number for number, name in tokenize.tok_name.items() if name == "FSTRING_END"}
TYPE_MODULES = ("collections.abc", "types", "typing")
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

# A range of the source (line and column, twice), and what stands there instead
_Edit = tuple[int, int, int, int, bytes]


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
        for path in sorted((root / "src" / TABLES).glob("*.txt")):
            packed = root / SMALLER / TABLES / f"{path.name}.z"
            packed.parent.mkdir(parents=True, exist_ok=True)
            packed.write_bytes(zlib.compress(path.read_bytes(), 9))
            build_data["force_include"][str(packed)] = f"{TABLES}/{packed.name}"


def _is_newer(made: Path, source: Path) -> bool:
    """Whether a file of an earlier build is up to date."""
    if not made.exists():
        return False
    time = made.stat().st_mtime_ns
    return time > max(source.stat().st_mtime_ns, Path(__file__).stat().st_mtime_ns)


def smaller_source(source: bytes) -> bytes:
    """The same program, line by line, with nothing that only its readers and type checkers need."""
    bare = _replace(source, _removals(ast.parse(source), source.split(b"\n")))
    return _without_layout(_replace(bare, _unused_types(ast.parse(bare))))


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


def _replace(source: bytes, edits: Iterable[_Edit]) -> bytes:
    lines = source.split(b"\n")
    for first, start, last, end, text in sorted(edits, reverse=True):
        rest = lines[last][end:]
        for number in range(first + 1, last + 1):
            lines[number] = b""
        lines[first] = (lines[first][:start] + text + rest).rstrip()
    return b"\n".join(lines)


def _removals(tree: ast.AST, lines: list[bytes], *, is_class: bool = False) -> Iterator[_Edit]:
    """Docstrings, annotations other than those of a class's fields, and what is for type checkers."""
    if isinstance(tree, _Documented) and (text := docstring_of(tree)) is not None:
        only = len(tree.body) == 1 and not isinstance(tree, ast.Module)
        yield *_range(text), b"..." if only else b""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and is_for_type_checkers(node):
            first, start, _, _ = _range(node.body[0])
            _, _, last, end = _range(node.body[-1])
            yield first, start, last, end, b"pass"
            for other in node.orelse:
                yield from _removals(other, lines)
            continue
        if isinstance(node, ast.arg) and node.annotation is not None:
            yield from _annotation(node, node.arg, node.annotation, lines)
        if isinstance(node, ast.AnnAssign) and node.value is not None and not is_class:
            yield from _annotation(node, ast.unparse(node.target), node.annotation, lines)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            first, start, last, end = _range(node.returns)
            before = lines[first][:start].rstrip()
            if first == last and before.endswith(b"->"):
                yield first, len(before[:-2].rstrip()), last, end, b""
        yield from _removals(node, lines, is_class=isinstance(node, ast.ClassDef))


def _annotation(
    node: ast.arg | ast.AnnAssign, target: str, annotation: ast.expr, lines: list[bytes]
) -> Iterator[_Edit]:
    """If it is on the line of its variable."""
    first, _, last, end = _range(annotation)
    start = node.col_offset + len(target.encode())
    colon = lines[first][start : annotation.col_offset].strip()
    if first == last == node.lineno - 1 and colon == b":":
        yield first, start, last, end, b""


def is_for_type_checkers(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _unused_types(tree: ast.Module) -> Iterator[_Edit]:
    """Imports of the standard library's names for annotations, if no annotation is left that has them."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in TYPE_MODULES:
            names = [alias.name for alias in node.names if (alias.asname or alias.name) in used]
            if all(alias.asname is None for alias in node.names) and len(names) < len(node.names):
                text = f"from {node.module} import {', '.join(names)}" if names else ""
                yield *_range(node), text.encode()


def _range(node: ast.expr | ast.stmt) -> tuple[int, int, int, int]:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.lineno - 1, node.col_offset, node.end_lineno - 1, node.end_col_offset


def docstring_of(node: _Documented) -> ast.Expr | None:
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return first if isinstance(first.value.value, str) else None
    return None
