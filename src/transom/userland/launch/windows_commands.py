"""Finds executables and batch files on Windows by name."""

from __future__ import annotations

import ntpath
from collections.abc import Callable

from transom.userland.api import ProgramContext
from transom.userland.cmd.interpreter import CmdInterpreter
from transom.userland.files import FileView
from transom.userland.launch import windows_table as table
from transom.userland.launch.server_table import program_for
from transom.userland.process import Command, Process
from transom.userland.subprogram import command_from_program
from transom.userland.windows.help_texts import help_text
from transom.userland.windows.switches import refused_switch
from transom.userland.windows.unsupported_programs import (
    NOT_SUPPORTED,
    find_unsupported_program,
    unsupported_message,
    unsupported_subcommand,
)

_SYSTEM = (
    "c:\\windows\\system32",
    "c:\\windows",
    "c:\\windows\\syswow64",
    "c:\\windows\\system32\\windowspowershell\\v1.0",
)
_TOOLS = "c:\\bin"  # in images with busybox
_BINARY = b"MZ"
_SERVER_CORE = ("servercore", "windows")

NodeCommand = Callable[[str, str], Command | None]
"""A program by its name and the path where it was found ("" for one of Windows' own)."""


def find_windows_command(
    context: ProgramContext, name: str, cwd: str, node_command: NodeCommand | None = None
) -> Command:
    """Raises FileNotFoundError when the image has no such program, PermissionError for a file that is not executable.
    `node_command` knows the programs that only a node has."""
    files = FileView(context, cwd)
    bare = name.strip('"').replace("/", "\\")
    directory = ntpath.dirname(bare)
    base = ntpath.basename(bare).lower()
    found = ""
    for candidate in _candidates(context, bare, directory):
        try:
            if files.stat(candidate).kind != "file":
                continue
        except OSError:
            continue
        extension = ntpath.splitext(candidate)[1].lower()
        if extension in (".cmd", ".bat"):
            return _batch(files.absolute(candidate))
        if extension == ".ps1":
            continue
        if files.read(candidate)[:2] != _BINARY and extension != ".exe":
            raise PermissionError(name)  # not a valid Win32 application
        found = files.absolute(candidate)
        break
    factory = program_for(context, bare)
    if factory is not None:
        return command_from_program(factory)
    stem = base.removesuffix(".exe").removesuffix(".com")
    if (
        directory
        and files.absolute(directory).lower() not in _SYSTEM
        and not files.exists(bare)
        and not files.exists(bare + ".exe")
    ):
        raise FileNotFoundError(name)
    command = node_command(stem, found) if node_command is not None else None
    of_busybox = command is None and ntpath.dirname(found).lower() == _TOOLS
    if command is None:
        command = (
            table.find_busybox_tool(stem) if of_busybox else table.find_windows_tool(context, stem)
        )
    if command is None and context.image.userland in _SERVER_CORE:
        command = find_unsupported_program(stem)
    if command is None:
        raise FileNotFoundError(name)
    return command if of_busybox else _with_switches(stem, _with_subcommands(stem, command))


def _with_subcommands(name: str, command: Command) -> Command:
    """Refuses the subcommands that are not simulated."""

    async def run(process: Process) -> int:
        refused = unsupported_subcommand(name, process.argv[1:])
        if refused:
            process.complain(unsupported_message(refused))
            return NOT_SUPPORTED
        result = command(process)
        return result if isinstance(result, int) else int(await result)

    return run


def _with_switches(name: str, command: Command) -> Command:
    """Answers /?, and refuses switches that the command does not perform."""
    shown = help_text(name)
    if shown is None:
        return command

    async def run(process: Process) -> int:
        if process.argv[1:] == ["/?"]:
            process.write(shown)
            return 0
        refused = refused_switch(name, process.argv[1:])
        if refused is not None:
            process.complain(refused[0])
            return refused[1]
        result = command(process)
        return result if isinstance(result, int) else int(await result)

    return run


def _candidates(context: ProgramContext, name: str, directory: str) -> list[str]:
    names = (
        [name]
        if ntpath.splitext(name)[1]
        else [name + extension for extension in (".com", ".exe", ".bat", ".cmd")]
    )
    if directory:
        return names
    path = next((value for key, value in context.env.items() if key.lower() == "path"), "")
    folders = [folder.rstrip("\\") for folder in path.split(";") if folder]
    return names + [f"{folder}\\{candidate}" for folder in folders for candidate in names]


def _batch(path: str) -> Command:
    async def run(process: Process) -> int:
        return await CmdInterpreter(process).run_file(path, process.argv[1:])

    return run
