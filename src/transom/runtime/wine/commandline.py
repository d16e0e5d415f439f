"""Windows command lines, built from arguments and an image's configuration. Pure.

A Windows process receives one string and splits it itself, usually by the rules of
CommandLineToArgvW. Callers must quote arguments so that these rules return them unchanged. Docker's
builder stores the shell form of ENTRYPOINT and CMD as one string that is already a command line,
and marks it with `ArgsEscaped`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.kit.argv import join_arguments, parse_command_line, quote_argument
from transom.runtime.api import ContainerConfig


def split_windows_command_line(line: str) -> list[str]:
    """Like CommandLineToArgvW: in the program's name backslashes are literal, quotes only group."""
    program, rest = _program(line)
    return [program, *parse_command_line(rest)] if line.strip(" \t") else []


def container_command_line(config: ContainerConfig, image: Mapping[str, Any]) -> str:
    """`image` is the `config` of an image's configuration. Empty: there is nothing to run.

    The container's own command replaces the image's entrypoint and command. Only the image's first
    string can already be escaped: an entrypoint, or the command if there is none.
    """
    entrypoint = list(image.get("Entrypoint") or ())
    arguments = [
        *(config.command or entrypoint),
        *(config.args or (() if config.command else image.get("Cmd") or ())),
    ]
    if not arguments:
        return ""
    ready = (
        bool(image.get("ArgsEscaped"))
        and not config.command
        and bool(entrypoint or not config.args)
    )
    if not ready:
        return join_arguments(arguments)
    return " ".join((arguments[0], *(quote_argument(argument) for argument in arguments[1:])))


def _program(line: str) -> tuple[str, str]:
    line = line.lstrip(" \t")
    if line.startswith('"'):
        name, _, rest = line[1:].partition('"')
        return name, rest
    end = next((i for i, c in enumerate(line) if c in " \t"), len(line))
    return line[:end].replace('"', ""), line[end:]
