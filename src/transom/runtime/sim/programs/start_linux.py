"""How a Linux container's command becomes a program."""

from __future__ import annotations

import posixpath

from transom.runtime.sim.program_api import Program, ProgramContext
from transom.runtime.sim.programs import launch
from transom.runtime.sim.programs.process import Process, TaskProgram
from transom.runtime.sim.programs.servers.idle import idle_for
from transom.runtime.sim.programs.servers.table import factory_of_image, generic, program_for
from transom.runtime.sim.programs.sh.parser import parse
from transom.runtime.sim.programs.sh.tree import Literal, ShellSyntaxError, Simple

_SHELLS = frozenset(("sh", "bash", "ash", "dash", "/bin/sh", "/bin/bash", "/bin/ash", "/bin/dash", "/usr/bin/bash"))


def start(context: ProgramContext) -> Program:
    argv = context.argv
    wrapped = _without_entrypoint_script(context)
    if wrapped is not None:
        context.argv = argv = wrapped
    idle = idle_for(context, _sole_command(context, argv))
    if idle is not None:
        return idle
    factory = program_for(context, argv[0])
    if factory is None and wrapped is None:
        factory = factory_of_image(context)
    if factory is not None:
        return factory(context)
    probe = Process.__new__(Process)
    probe.context, probe.cwd, probe.umask = context, context.cwd, 0o022
    try:
        command = launch.find(probe, argv[0], context.env.get("PATH"))
    except FileNotFoundError:
        if context.main and context.image.userland == "any" and not context.image.program:
            return generic(context)  # nobody knows the image: its own program is taken to be a server
        raise
    return TaskProgram(context, command)


def _without_entrypoint_script(context: ProgramContext) -> tuple[str, ...] | None:
    """The usual `docker-entrypoint.sh` runs what follows it; alone, the image's program."""
    entrypoint = context.image.entrypoint
    argv = context.argv
    if not entrypoint or not entrypoint[0].endswith("entrypoint.sh") or argv[: len(entrypoint)] != entrypoint:
        return None
    rest = argv[len(entrypoint) :]
    if not rest or rest[0].startswith("-"):
        return None
    return rest


def _sole_command(context: ProgramContext, argv: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments of the only command of `sh -c`, which the shell puts in its own place; else `argv` as it is."""
    if len(argv) != 3 or argv[1] != "-c" or argv[0] not in _SHELLS:
        return argv
    if not launch.shell_there(context, posixpath.basename(argv[0])):
        return argv
    try:
        node = parse(argv[2])
    except ShellSyntaxError:
        return argv
    if not isinstance(node, Simple) or node.assignments or node.redirects:
        return argv
    words: list[str] = []
    for position, word in enumerate(node.words):
        if len(word) != 1 or not isinstance(word[0], Literal) or any(c in word[0].text for c in "*?[~{"):
            return argv
        if position == 0 and word[0].text == "exec" and len(node.words) > 1:
            continue
        words.append(word[0].text)
    return tuple(words)
