"""findstr, find, sort and more, as in Windows."""

from __future__ import annotations

import re

from transom.userland.limits import MAX_LINES, check_size
from transom.userland.preemption import check_slice, sort_in_slices
from transom.userland.process import Command, Process
from transom.userland.regex import compile_pattern


def _split(text: str) -> list[str]:
    check_size(text.count("\n"), MAX_LINES)
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


async def _lines(process: Process, paths: list[str]) -> list[tuple[str, str]] | None:
    """The lines with their file names; None after an error."""
    if not paths:
        text = (await process.read_all()).decode("utf-8", "surrogateescape")
        return [("", line) for line in _split(text)] if text else []
    out: list[tuple[str, str]] = []
    for path in paths:
        try:
            text = process.files.text(path)
        except OSError:
            process.complain(
                f"FINDSTR: Cannot open {path}"
                if process.name == "findstr"
                else f"File not found - {path.upper()}"
            )
            return None
        out.extend((path, line) for line in _split(text))
        check_size(len(out), MAX_LINES)
    return out


async def findstr(process: Process) -> int:
    switches: set[str] = set()
    patterns: list[str] = []
    paths: list[str] = []
    literal = False
    for argument in process.argv[1:]:
        lower = argument.lower()
        if lower.startswith("/c:"):
            patterns.append(argument[3:].strip('"'))
            literal = True
        elif lower.startswith(("/r:", "/g:")):
            patterns.append(argument[3:])
        elif argument.startswith("/"):
            switches.update(lower[1:])
        elif not patterns:
            patterns = argument.split()
        else:
            paths.append(argument)
    if not patterns:
        process.complain("FINDSTR: Bad command line")
        return 2
    found = await _lines(process, paths)
    if found is None:
        return 1
    escape = "l" in switches or (literal and "r" not in switches)
    pieces = [
        re.escape(p) if escape else p.replace("\\<", "\\b").replace("\\>", "\\b") for p in patterns
    ]
    if "b" in switches:
        pieces = [f"^(?:{piece})" for piece in pieces]
    if "e" in switches:
        pieces = [f"(?:{piece})$" for piece in pieces]
    if "x" in switches:
        pieces = [f"^(?:{piece})$" for piece in pieces]
    try:
        expression = compile_pattern("|".join(pieces), ignore_case="i" in switches)
    except re.error:
        expression = compile_pattern(
            "|".join(re.escape(p) for p in patterns), ignore_case="i" in switches
        )
    hit = False
    for number, (path, line) in enumerate(found, 1):
        if (expression.search(line) is not None) == ("v" in switches):
            continue
        hit = True
        if "m" in switches:
            process.write(f"{path}\r\n")
            break
        prefix = f"{path}:" if len(paths) > 1 else ""
        process.write(f"{prefix}{f'{number}:' if 'n' in switches else ''}{line}\r\n")
    return int(not hit)


async def windows_find(process: Process) -> int:
    switches = {argument.lower() for argument in process.argv[1:] if argument.startswith("/")}
    operands = [argument for argument in process.argv[1:] if not argument.startswith("/")]
    if not operands:
        process.complain("FIND: Parameter format not correct")
        return 2
    wanted, paths = operands[0], operands[1:]
    found = await _lines(process, paths)
    if found is None:
        return 1
    fold = "/i" in switches
    hits = []
    for number, (_, line) in enumerate(found, 1):
        check_slice()
        if ((wanted.lower() in line.lower()) if fold else wanted in line) != ("/v" in switches):
            hits.append((number, line))
    header = f"\r\n---------- {paths[0].upper()}" if paths else ""
    if "/c" in switches:
        process.write(f"{header}{': ' if header else ''}{len(hits)}\r\n")
    else:
        if header:
            process.write(header + "\r\n")
        for number, line in hits:
            process.write((f"[{number}]" if "/n" in switches else "") + line + "\r\n")
    return int(not hits)


async def windows_sort(process: Process) -> int:
    operands = [argument for argument in process.argv[1:] if not argument.startswith("/")]
    found = await _lines(process, operands)
    if found is None:
        return 1
    reverse = any(argument.lower() in ("/r", "/reverse") for argument in process.argv[1:])
    for _, line in sort_in_slices(found, lambda row: row[1].lower(), reverse=reverse):
        process.write(line + "\r\n")
    return 0


async def more(process: Process) -> int:
    operands = [argument for argument in process.argv[1:] if not argument.startswith("/")]
    found = await _lines(process, operands)
    for _, line in found or []:
        process.write(line + "\r\n")
    return int(found is None)


COMMANDS: dict[str, Command] = {
    "find": windows_find,
    "findstr": findstr,
    "more": more,
    "sort": windows_sort,
}
