"""grep, egrep, fgrep."""

from __future__ import annotations

import re

from transom.userland.files import error_text
from transom.userland.posix.commands.expressions import basic_expression, extended_expression
from transom.userland.posix.commands.options import ParsedOptions, option_number, parse_options
from transom.userland.posix.commands.text import open_input, read_lines
from transom.userland.preemption import check_slice
from transom.userland.process import Command, Process
from transom.userland.regex import Pattern, PatternTooComplexError, compile_pattern
from transom.userland.streams import ByteSource


def _expression(process: Process, options: ParsedOptions, patterns: list[str]) -> str:
    """One regular expression that matches what any of the patterns matches."""
    extended = "E" in options or process.name == "egrep" or "P" in options
    fixed = "F" in options or process.name == "fgrep"
    pieces: list[str] = []
    for pattern in patterns:
        check_slice()
        expression = (
            re.escape(pattern)
            if fixed
            else extended_expression(pattern)
            if extended
            else basic_expression(pattern)
        )
        if "w" in options:
            expression = rf"\b(?:{expression})\b"
        if "x" in options:
            expression = f"^(?:{expression})$"
        pieces.append(f"(?:{expression})")
    return "|".join(pieces)


async def grep(process: Process) -> int:
    options = parse_options(
        process,
        "efmABC",
        long_names={
            "ignore-case": "i",
            "invert-match": "v",
            "count": "c",
            "quiet": "q",
            "silent": "q",
            "line-number": "n",
            "only-matching": "o",
            "fixed-strings": "F",
            "extended-regexp": "E",
            "recursive": "r",
            "files-with-matches": "l",
            "word-regexp": "w",
            "max-count": "m",
            "no-filename": "h",
            "regexp": "e",
        },
    )
    operands = list(options.operands)
    patterns = list(options.values.get("e", []))
    for path in options.values.get("f", []):
        patterns.extend(process.files.text(path).splitlines())
    if not patterns:
        if not operands:
            process.complain(
                "grep: missing pattern"
                if not process.gnu
                else "Usage: grep [OPTION]... PATTERNS [FILE]..."
            )
            return 2
        patterns = operands.pop(0).split("\n")
    try:
        compiled = compile_pattern(
            _expression(process, options, patterns), ignore_case="i" in options
        )
    except PatternTooComplexError:
        raise
    except re.error:
        return process.fail(f"bad regex '{patterns[0]}': Invalid regexp", 2)
    recursive = "r" in options or "R" in options
    paths = operands or (["."] if recursive else ["-"])
    if recursive:
        expanded: list[str] = []
        for path in paths:
            try:
                expanded.extend(
                    place for place, state in process.files.walk(path) if state.kind == "file"
                )
            except OSError:
                expanded.append(path)
        named = "h" not in options and (len(expanded) > 1 or process.files.is_directory(paths[0]))
        paths = expanded
    else:
        named = ("H" in options or len(paths) > 1) and "h" not in options
    found = False
    failed = False
    for path in paths:
        try:
            source = open_input(process, path)
        except OSError as error:
            if "s" not in options:
                process.complain(f"grep: {path}: {error_text(error)}")
            failed = True
            continue
        shown = "(standard input)" if path == "-" else path
        hit = await _grep_one(
            process, compiled, source, f"{shown}:" if named else "", options, shown
        )
        found = found or hit
        if found and "q" in options:
            return 0
    return 2 if failed and not found else 0 if found else 1


async def _grep_one(
    process: Process,
    compiled: Pattern,
    source: ByteSource,
    prefix: str,
    options: ParsedOptions,
    shown: str,
) -> bool:
    context, count = "{}: invalid context length argument", "invalid max count"
    around = options.value("C", "0")
    before = option_number(process, options.value("B", around), context, code=2)
    after = option_number(process, options.value("A", around), context, code=2)
    limit = option_number(process, options.value("m", "0"), count, code=2)
    history: list[tuple[int, str]] = []
    number = hits = 0
    remaining = last_printed = 0
    async for raw in read_lines(source):
        number += 1
        line = raw.decode("utf-8", "surrogateescape").rstrip("\n")
        match = compiled.search(line)
        if (match is not None) != ("v" in options):
            hits += 1
            if "q" in options:
                return True
            if "l" in options:
                process.write(shown + "\n")
                return True
            if "c" not in options:
                if "o" in options and match is not None:
                    start = prefix + (f"{number}:" if "n" in options else "")
                    for text in (each[0] for each in compiled.finditer(line) if each[0]):
                        process.write(f"{start}{text}\n")
                else:
                    if (
                        (before or after)
                        and last_printed
                        and number - len(history) > last_printed + 1
                    ):
                        process.write("--\n")
                    for old_number, old in history:
                        process.write(
                            prefix.replace(":", "-")
                            + (f"{old_number}-" if "n" in options else "")
                            + old
                            + "\n"
                        )
                    process.write(prefix + (f"{number}:" if "n" in options else "") + line + "\n")
                    last_printed = number
            history.clear()
            remaining = after
            if limit and hits >= limit:
                break
        elif remaining and "c" not in options:
            process.write(
                prefix.replace(":", "-") + (f"{number}-" if "n" in options else "") + line + "\n"
            )
            remaining -= 1
            last_printed = number
        elif before:
            history.append((number, line))
            del history[: len(history) - before]
        await process.breathe()
    if "L" in options and not hits:
        process.write(shown + "\n")
    if "c" in options:
        process.write(f"{prefix}{hits}\n")
    return hits > 0


COMMANDS: dict[str, Command] = {"egrep": grep, "fgrep": grep, "grep": grep}
