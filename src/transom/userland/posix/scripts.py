"""Finds commands as a POSIX shell does: scripts in the directories of PATH, then commands by name."""

from __future__ import annotations

import posixpath

from transom.userland.api import ProgramContext
from transom.userland.files import FileView
from transom.userland.process import Command, FindCommand, Process

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BINARIES = (b"\x7fELF", b"MZ")


def find_posix_command(
    context: ProgramContext, name: str, cwd: str, path: str | None, find_command: FindCommand
) -> Command:
    """Raises FileNotFoundError, PermissionError or IsADirectoryError."""
    files = FileView(context, cwd)
    if "/" in name:
        candidates = [name]
    else:
        candidates = [
            posixpath.join(directory, name) for directory in (path or DEFAULT_PATH).split(":")
        ]
    refused: OSError | None = None
    for candidate in candidates:
        try:
            state = files.stat(candidate)
        except OSError:
            continue
        if state.kind == "directory":
            if "/" in name:
                raise IsADirectoryError(name)
            continue
        if state.kind != "file":
            continue
        content = files.read(candidate) if state.size else b""
        if not content or content.startswith(_BINARIES):
            break  # a binary: its name determines what it does
        if not files.may(candidate, 1):
            refused = PermissionError(name)
            continue
        return _script_command(candidate, content)
    try:
        return find_command(context, name, context.cwd)
    except FileNotFoundError:
        raise refused or FileNotFoundError(name) from None


def find_in_path(process: Process, name: str, path: str | None = None) -> Command:
    """Raises FileNotFoundError, PermissionError or IsADirectoryError."""
    return find_posix_command(
        process.context, name, process.cwd, path, process.program.find_command
    )


def _script_command(path: str, content: bytes) -> Command:
    """A text file with a `#!` line, or without one: then a shell runs it."""
    first = content.split(b"\n", 1)[0].decode("utf-8", "replace")
    interpreter = first[2:].split() if first.startswith("#!") else ["/bin/sh"]

    async def run(process: Process) -> int:
        arguments = interpreter[1:]
        shell = interpreter[0]
        if posixpath.basename(shell) == "env" and arguments:
            shell, arguments = arguments[0], arguments[1:]
        try:
            body = process.program.find_command(process.context, shell, process.context.cwd)
        except FileNotFoundError:
            return process.fail("not found", 127)
        process.argv = [shell, *arguments, path, *process.argv[1:]]
        result = body(process)
        return result if isinstance(result, int) else await result

    return run
