"""findstr, find, sort and more, as in Windows."""

from __future__ import annotations

import ntpath
import re
from fnmatch import fnmatchcase
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.userland.limits import MAX_LINES, check_size
from transom.userland.preemption import check_slice, sort_in_slices
from transom.userland.process import Command, Process
from transom.userland.regex import Pattern, compile_pattern


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
            if len(paths) > 1 and process.files.is_directory(path):
                continue
            process.complain(
                f"FINDSTR: Cannot open {path}"
                if process.name == "findstr"
                else f"File not found - {path.upper()}"
            )
            return None
        out.extend((path, line) for line in _split(text))
        check_size(len(out), MAX_LINES)
    return out


def _expand(process: Process, pattern: str, deep: bool) -> list[str]:
    """The files of a path with wildcards; with `deep` also those in the directories below."""
    folder, mask = ntpath.split(pattern.replace("/", "\\"))
    if not deep and not set("*?") & set(pattern):
        return [pattern]
    mask = "*" if mask == "*.*" else mask.lower()
    out: list[str] = []
    todo = [folder]
    while todo:
        here = todo.pop(0)
        try:
            names = process.files.listdir(here or ".")
        except OSError:
            continue
        for name in names:
            path = ntpath.join(here, name)
            if process.files.is_directory(path):
                if deep:
                    todo.append(path)
            elif fnmatchcase(name.lower(), mask):
                out.append(path)
        check_size(len(out) + len(todo), MAX_LINES)
    return out


_PRINTABLE: Final = bytes({*b"\t\n\r\f\x1a", *range(32, 127), *range(128, 256)})
_LETTERS: Final = "belrsixvnmp"  # the switches of findstr that have no value
_NOT_PERFORMED: Final = ("/o", "/f:", "/a:")  # with /offline


class _BadCommandLineError(Exception):
    """findstr does not perform it."""


class _FindOptions(NamedTuple):
    switches: set[str]
    patterns: list[str]
    paths: list[str]
    folders: list[str]
    literal: bool


def _find_options(process: Process) -> _FindOptions:
    switches, patterns, paths = set[str](), list[str](), list[str]()
    folders, literal = [""], False
    for argument in process.argv[1:]:
        if argument.startswith("-"):  # as good as a slash
            argument = "/" + argument[1:]
        lower = argument.lower()
        if lower.startswith("/c:"):
            patterns.append(argument[3:].strip('"'))
            literal = True
        elif lower.startswith("/r:"):
            patterns.append(argument[3:])
        elif lower.startswith("/g:"):
            patterns += [line for line in _split(process.files.text(argument[3:])) if line]
        elif lower.startswith("/d:"):
            folders = argument[3:].strip('"').split(";")
        elif argument.startswith("/"):
            if lower.startswith(_NOT_PERFORMED):
                raise _BadCommandLineError
            for letter in lower[1:]:
                if letter not in _LETTERS:
                    process.complain(f"FINDSTR: /{letter} ignored")
            switches.update(lower[1:])
        elif not patterns:
            patterns = argument.split()
        else:
            paths.append(argument)
    return _FindOptions(switches, patterns, paths, folders, literal)


def _find_expression(options: _FindOptions) -> Pattern:
    switches, patterns = options.switches, options.patterns
    escape = "l" in switches or (options.literal and "r" not in switches)
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
        return compile_pattern("|".join(pieces), ignore_case="i" in switches)
    except re.error:
        literal = "|".join(re.escape(p) for p in patterns)
        return compile_pattern(literal, ignore_case="i" in switches)


def _is_printable(process: Process, path: str) -> bool:
    try:
        data = process.files.read(path)
    except OSError:
        return True
    return not data.translate(None, _PRINTABLE)


async def findstr(process: Process) -> int:
    try:
        options = _find_options(process)
    except _BadCommandLineError:
        process.complain("FINDSTR: Bad command line")
        return 2
    switches, requested = options.switches, options.paths
    if not options.patterns:
        process.complain("FINDSTR: Bad command line")
        return 2
    within = [ntpath.join(folder, path) for folder in options.folders for path in requested]
    paths = [one for path in within for one in _expand(process, path, "s" in switches)]
    if requested and not paths:
        process.complain(f"FINDSTR: Cannot open {requested[0]}")
        return 1
    if "p" in switches:
        paths = [path for path in paths if _is_printable(process, path)]
        if requested and not paths:
            return 1
    found = await _lines(process, paths)
    if found is None:
        return 1
    several = len(paths) > 1 or "s" in switches or any(set("*?") & set(one) for one in requested)
    expression = _find_expression(options)
    hit, shown, before, number = False, set[str](), "", 0
    for path, line in found:
        number = number + 1 if path == before else 1
        before = path
        if (expression.search(line) is not None) == ("v" in switches):
            continue
        hit = True
        if "m" not in switches:
            prefix = f"{path}:" if several else ""
            process.write(f"{prefix}{f'{number}:' if 'n' in switches else ''}{line}\r\n")
        elif path not in shown:
            process.write(f"{path}\r\n")
            shown.add(path)
    return int(not hit)


async def windows_find(process: Process) -> int:
    switches = {argument.lower() for argument in process.argv[1:] if argument.startswith("/")}
    operands = [argument for argument in process.argv[1:] if not argument.startswith("/")]
    if not operands:
        process.complain("FIND: Parameter format not correct")
        return 2
    wanted = operands[0]
    paths = [one for path in operands[1:] for one in _expand(process, path, False)]
    if operands[1:] and not paths:
        process.complain(f"File not found - {operands[1].upper()}")
        return 1
    found = await _lines(process, paths)
    if found is None:
        return 1
    fold = "/i" in switches
    hits: dict[str, list[tuple[int, str]]] = {path: [] for path in paths or [""]}
    counts = dict.fromkeys(hits, 0)
    for path, line in found:
        check_slice()
        counts[path] += 1
        inside = (wanted.lower() in line.lower()) if fold else wanted in line
        if (inside and wanted != "") != ("/v" in switches):  # "" is in no line
            hits[path].append((counts[path], line))
    for path, rows in hits.items():
        header = f"\r\n---------- {path.upper()}" if path else ""
        if "/c" in switches:
            process.write(f"{header}{': ' if header else ''}{len(rows)}\r\n")
            continue
        if header:
            process.write(header + "\r\n")
        for number, line in rows:
            process.write((f"[{number}]" if "/n" in switches else "") + line + "\r\n")
    return int(not any(hits.values()))


async def windows_sort(process: Process) -> int:
    """/R reverses, /+n compares from the n-th character, /O names the file for the result."""
    operands: list[str] = []
    reverse, first, output = False, 1, ""
    words = iter(process.argv[1:])
    for word in words:
        lower = word.lower()
        if lower in ("/r", "/reverse"):
            reverse = True
        elif lower in ("/o", "/output"):
            output = next(words, "")
        elif lower.startswith("/+") and lower[2:].isdigit() and int(lower[2:]):
            first = int(lower[2:])
        elif word.startswith("/"):
            process.complain("Invalid switch.")
            return 1
        else:
            operands.append(word)
    found = await _lines(process, operands)
    if found is None:
        return 1
    ordered = sort_in_slices(found, lambda row: row[1][first - 1 :].lower(), reverse=reverse)
    if output:
        process.files.write(output, "".join(f"{line}\r\n" for _, line in ordered).encode())
        return 0
    for _, line in ordered:
        process.write(line + "\r\n")
    return 0


async def more(process: Process) -> int:
    """`+n` begins at line n (the first is 0), `/s` joins blank lines, `/tn` is the width of tabs."""
    words = process.argv[1:]
    operands = [word for word in words if not word.startswith(("/", "+"))]
    switches = [word[1:].lower() for word in words if word.startswith("/")]
    start = next((int(word[1:]) for word in words if re.fullmatch(r"\+\d+", word)), 0)
    tab = next((int(one[1:]) for one in switches if re.fullmatch(r"t\d{1,3}", one)), 8)
    found = await _lines(process, operands)
    blank = False
    for number, (_, line) in enumerate(found or []):
        if number < start or ("s" in switches and blank and not line.strip()):
            continue
        blank = not line.strip()
        process.write(line.expandtabs(tab or 1) + "\r\n")
    return int(found is None)


COMMANDS: dict[str, Command] = {
    "find": windows_find,
    "findstr": findstr,
    "more": more,
    "sort": windows_sort,
}
