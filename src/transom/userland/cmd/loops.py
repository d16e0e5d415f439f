"""The values of cmd's `for` loops."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from transom.userland.cmd.state import CmdState
from transom.userland.cmd.tree import CmdFor


async def loop_values(shell: CmdState, node: CmdFor) -> AsyncIterator[dict[str, str]]:
    """The values of the loop variables for each iteration."""
    items = shell.replaced(node.items)
    if node.switch == "L":
        for number in _numbers(items):
            yield {node.variable: str(number)}
    elif node.switch == "F":
        async for bound in _lines(shell, node, items):
            yield bound
    elif node.switch == "R":
        base = node.options or "."
        for place, state in shell.process.files.walk(shell.process.files.absolute(base)):
            if state.kind == "directory":
                for mask in _words(items):
                    for name in shell.names(f"{place}\\{mask}", directories=False):
                        yield {node.variable: name}
    else:
        for word in _words(items):
            if "*" in word or "?" in word:
                for name in shell.names(word.strip('"'), directories=node.switch == "D"):
                    yield {node.variable: name}
            else:
                yield {node.variable: word}


def _words(text: str) -> list[str]:
    return re.findall(r'"[^"]*"|[^\s,;=]+', text)


def _numbers(text: str) -> range:
    pieces = [piece for piece in re.split(r"[\s,;]+", text.strip()) if piece]
    numbers = [int(piece) if re.fullmatch(r"[-+]?\d+", piece) else 0 for piece in pieces]
    start, step, end = (*numbers, 0, 0, 0)[:3]
    if step == 0:
        return range(0)
    return range(start, end + (1 if step > 0 else -1), step)


async def _lines(shell: CmdState, node: CmdFor, items: str) -> AsyncIterator[dict[str, str]]:
    options = node.options
    separators = re.search(
        r"delims=(.*?)(?=\s+(?:tokens|eol|skip|usebackq)|$)", options, re.IGNORECASE
    )
    delimiters = separators[1] if separators is not None else " \t"
    skip = re.search(r"skip=(\d+)", options, re.IGNORECASE)
    wanted = re.search(r"tokens=(\S+)", options, re.IGNORECASE)
    end_of_line = re.search(r"eol=(.)", options, re.IGNORECASE)
    comment = end_of_line[1] if end_of_line is not None else ";"
    backquotes = "usebackq" in options.lower()
    command, string = ("`", "'") if backquotes else ("'", '"')
    if items.startswith(command) and items.endswith(command):
        content = await shell.capture(_unescaped(items[1:-1]))
    elif items.startswith(string) and items.endswith(string):
        content = items[1:-1]
    else:
        content = ""
        for path in _words(items):
            try:
                content += shell.process.files.text(path.strip('"'))
            except OSError:
                shell.complain(f"The system cannot find the file {path}.")
                shell.error_level = 1
                return
    lines = content.replace("\r\n", "\n").split("\n")
    for line in lines[int(skip[1]) if skip is not None else 0 :]:
        if not line or line.startswith(comment):
            continue
        bound = _tokens(line, delimiters, wanted[1] if wanted is not None else "1", node.variable)
        if bound is not None:
            yield bound


def _unescaped(command: str) -> str:
    """The carets that hide operators from the outer command line: `dir ^| find "x"`."""
    parts = command.split('"')
    parts[::2] = [re.sub(r"\^(.)", r"\1", part) for part in parts[::2]]
    return '"'.join(parts)


def _tokens(line: str, delimiters: str, wanted: str, variable: str) -> dict[str, str] | None:
    rest_from: int | None = None
    numbers: list[int] = []
    for piece in wanted.rstrip("*").rstrip(",").split(","):
        first, dash, last = piece.partition("-")
        if first.isdigit():
            numbers.extend(range(int(first), int(last or first) + 1) if dash else [int(first)])
    if wanted.endswith("*"):
        rest_from = max(numbers, default=0)
    pieces: list[tuple[str, int]] = []
    if delimiters:
        pieces = [
            (match[0], match.end()) for match in re.finditer(f"[^{re.escape(delimiters)}]+", line)
        ]
    else:
        pieces = [(line, len(line))]
    if not pieces:
        return None
    bound: dict[str, str] = {}
    code = ord(variable)
    for offset, number in enumerate(numbers):
        bound[chr(code + offset)] = pieces[number - 1][0] if number <= len(pieces) else ""
    if rest_from is not None:
        start = (
            pieces[rest_from - 1][1]
            if 0 < rest_from <= len(pieces)
            else 0
            if rest_from == 0
            else len(line)
        )
        bound[chr(code + len(numbers))] = line[start:].lstrip(delimiters)
    return bound
