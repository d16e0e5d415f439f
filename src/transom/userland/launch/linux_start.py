"""Starts the program that the command of a Linux container names."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from transom.kit.lazy import lazy_function
from transom.userland.api import Program, ProgramContext
from transom.userland.launch.server_table import assumed_server, image_program, program_for
from transom.userland.launch.shells import has_shell
from transom.userland.posix.scripts import find_posix_command
from transom.userland.posix.sh.parser import parse_shell
from transom.userland.posix.sh.tree import Literal, ShellSyntaxError, Simple
from transom.userland.process import TaskProgram
from transom.userland.servers.idle import linux_idle_program

if TYPE_CHECKING:
    from transom.userland.launch.linux_commands import find_linux_command
else:  # servers need no commands
    find_linux_command = lazy_function(
        "transom.userland.launch.linux_commands", "find_linux_command"
    )

_SHELLS = frozenset(
    ("sh", "bash", "ash", "dash", "/bin/sh", "/bin/bash", "/bin/ash", "/bin/dash", "/usr/bin/bash")
)


def start_linux_program(context: ProgramContext) -> Program:
    argv = context.argv
    wrapped = _without_entrypoint_script(context)
    if wrapped is not None:
        context.argv = argv = wrapped
    idle = linux_idle_program(context, _sole_command(context, argv))
    if idle is not None:
        return idle
    factory = program_for(context, argv[0])
    if factory is None and wrapped is None:
        factory = image_program(context)
    if factory is not None:
        return factory(context)
    path = context.env.get("PATH")
    try:
        command = find_posix_command(context, argv[0], context.cwd, path, find_linux_command)
    except FileNotFoundError:
        if context.main and context.image.userland == "any" and not context.image.program:
            return assumed_server(context)  # an unknown image: assume that its program is a server
        raise
    return TaskProgram(context, command, find_linux_command)


def _without_entrypoint_script(context: ProgramContext) -> tuple[str, ...] | None:
    """The command after the usual `docker-entrypoint.sh`, which runs it; None if the script is
    alone.
    """
    entrypoint = context.image.entrypoint
    argv = context.argv
    if (
        not entrypoint
        or not entrypoint[0].endswith("entrypoint.sh")
        or argv[: len(entrypoint)] != entrypoint
    ):
        return None
    rest = argv[len(entrypoint) :]
    if not rest or rest[0].startswith("-"):
        return None
    return rest


def _sole_command(context: ProgramContext, argv: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments of the only command of `sh -c`, which the shell execs; otherwise `argv`
    unchanged.
    """
    if len(argv) != 3 or argv[1] != "-c" or argv[0] not in _SHELLS:
        return argv
    if not has_shell(context, posixpath.basename(argv[0])):
        return argv
    try:
        node = parse_shell(argv[2])
    except ShellSyntaxError:
        return argv
    if not isinstance(node, Simple) or node.assignments or node.redirects:
        return argv
    words: list[str] = []
    for position, word in enumerate(node.words):
        if (
            len(word) != 1
            or not isinstance(word[0], Literal)
            or any(c in word[0].text for c in "*?[~{")
        ):
            return argv
        if position == 0 and word[0].text == "exec" and len(node.words) > 1:
            continue
        words.append(word[0].text)
    return tuple(words)
