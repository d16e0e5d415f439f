"""Command lines: what Windows starts programs with, made of arguments and of an image's configuration. Pure.

A Windows process gets one string and takes it apart itself, mostly by the rules of CommandLineToArgvW. Whoever has
arguments has to quote them so that these rules give them back. Docker's builder stores the shell form of ENTRYPOINT and CMD
as one string that is a command line already, and says so by `ArgsEscaped`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from transom.kit.argv import arguments
from transom.runtime.api import ContainerConfig

_BEFORE_QUOTE: Final = re.compile(r'(\\*)"')
_AT_END: Final = re.compile(r"(\\+)$")


def quote(argument: str) -> str:
    """One argument. Backslashes count only before a quotation mark, and before the one that we put at the end."""
    escaped = _BEFORE_QUOTE.sub(r'\1\1\\"', argument)
    if argument and not any(c in argument for c in " \t"):
        return escaped
    return '"' + _AT_END.sub(r"\1\1", escaped) + '"'


def join(arguments: Iterable[str]) -> str:
    return " ".join(quote(argument) for argument in arguments)


def split(line: str) -> list[str]:
    """As CommandLineToArgvW: in the program's name backslashes mean nothing, quotes only group."""
    program, rest = _program(line)
    return [program, *arguments(rest)] if line.strip(" \t") else []


def of_container(config: ContainerConfig, image: Mapping[str, Any]) -> str:
    """`image` is the `config` of an image's configuration. Empty: there is nothing to run.

    A command of the container's own leaves nothing of the image's. Only what comes from the image can be escaped already,
    and that is its first string: an entrypoint, or the command if there is none.
    """
    entrypoint = list(image.get("Entrypoint") or ())
    arguments = [*(config.command or entrypoint), *(config.args or (() if config.command else image.get("Cmd") or ()))]
    if not arguments:
        return ""
    ready = bool(image.get("ArgsEscaped")) and not config.command and bool(entrypoint or not config.args)
    if not ready:
        return join(arguments)
    return " ".join((arguments[0], *(quote(argument) for argument in arguments[1:])))


def program(line: str) -> str:
    return _program(line)[0]


def _program(line: str) -> tuple[str, str]:
    line = line.lstrip(" \t")
    if line.startswith('"'):
        name, _, rest = line[1:].partition('"')
        return name, rest
    end = next((i for i, c in enumerate(line) if c in " \t"), len(line))
    return line[:end].replace('"', ""), line[end:]
