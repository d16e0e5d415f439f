"""forfiles: runs a cmd line for each file of a folder."""

from __future__ import annotations

import re
import time
from fnmatch import fnmatchcase
from typing import Final

from transom.machines.windows.time_zones import offset_seconds
from transom.userland.cmd.interpreter import CmdInterpreter
from transom.userland.process import Process

_CMD: Final = re.compile(r"cmd(?:\.exe)?\s+/c\s+", re.IGNORECASE)


def _options(words: list[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith(("/", "-")) and word[1:2].isalpha() and name != "/c":
            name = "/" + word[1:].lower()
            out[name] = ""
        elif name:
            out[name], name = word, ""
    return out


async def forfiles(process: Process) -> int:
    """Runs a command for each file; `@file` and others are replaced in it."""
    options = _options(process.argv[1:])
    files = process.files
    top = options.get("/p", process.cwd).rstrip("\\") or process.cwd
    mask = options.get("/m", "*").lower()
    mask = "*" if mask == "*.*" else mask
    command = options.get("/c", "cmd /c echo @file")
    if not files.is_directory(top):
        process.complain("ERROR: The directory name is invalid.")
        return 1
    names = (
        [path for path, _ in files.walk(top)][1:]
        if "/s" in options
        else [files.join(top, name) for name in files.listdir(top)]
    )
    hits = 0
    process.print_line()
    for path in names:
        await process.breathe()
        base = files.base(path)
        state = files.stat(path, follow=False)
        if not fnmatchcase(base.lower(), mask) or not _old_enough(process, options, state.mtime):
            continue
        hits += 1
        stem, dot, extension = base.rpartition(".")
        offset = offset_seconds(process.context.windows.system.registry, state.mtime)
        moment = time.gmtime(state.mtime + offset)
        relative = ".\\" + files.absolute(path)[len(files.absolute(top).rstrip("\\")) + 1 :]
        values = {
            "@relpath": f'"{relative}"',
            "@fdate": time.strftime("%-m/%-d/%Y", moment),
            "@ftime": time.strftime("%-I:%M:%S %p", moment),
            "@fsize": str(0 if state.kind == "directory" else state.size),
            "@fname": f'"{stem if dot else base}"',
            "@isdir": "TRUE" if state.kind == "directory" else "FALSE",
            "@path": f'"{files.absolute(path)}"',
            "@file": f'"{base}"',
            "@ext": f'"{extension if dot else ""}"',
        }
        line = command
        for name, value in values.items():
            line = line.replace(name, value).replace(name.upper(), value)
        child = process.child(["cmd"])
        child.cwd = files.parent(files.absolute(path))
        try:
            await CmdInterpreter(child).run_line(_CMD.sub("", line, count=1))
        finally:
            child.ended()
    if not hits:
        process.complain(f'ERROR: Files of type "{options.get("/m", "*")}" not found.')
        return 1
    return 0


def _old_enough(process: Process, options: dict[str, str], written: float) -> bool:
    """/d -7: at least seven days old; /d +7: dated seven or more days from now."""
    given = options.get("/d", "")
    if not given.lstrip("+-").isdigit():
        return True
    limit = process.context.clock.time() + int(given) * 86400.0
    return written >= limit if given.startswith("+") else written <= limit
