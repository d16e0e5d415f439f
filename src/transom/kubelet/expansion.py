"""`$(VAR)` in commands, arguments, environment values and sub-paths, by Kubernetes' rules.

`$$` stands for one `$`, a reference to an undefined variable is kept as written, and a `$` before
anything else is literal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

# Characters of all variables or arguments of a container. Linux passes 2 MiB to a program; a few
# variables that contain each other twice would become terabytes.
MOST_CHARACTERS: Final = 4 << 20


class ExpansionTooLarge(ValueError):
    """Like E2BIG of execve."""

    def __init__(self) -> None:
        super().__init__("argument list too long")


def expand_variables(text: str, resolve: Callable[[str], str], most: int = MOST_CHARACTERS) -> str:
    """The text with every reference replaced by the result of `resolve` for its name. Raises
    ExpansionTooLarge.
    """
    if "$" not in text:
        return text
    out: list[str] = []
    size = len(text)
    at, end = 0, len(text)
    while True:
        dollar = text.find("$", at)
        if dollar < 0 or dollar + 1 >= end:
            out.append(text[at:])
            return "".join(out)
        out.append(text[at:dollar])
        follows = text[dollar + 1]
        at = dollar + 2
        if follows == "$":
            out.append("$")
        elif follows == "(" and (close := text.find(")", at)) >= 0:
            value = resolve(text[at:close])
            size += len(value)
            if size > most:
                raise ExpansionTooLarge
            out.append(value)
            at = close + 1
        else:
            out.append("$" + follows)


def variable_mapping(*sources: Mapping[str, str]) -> Callable[[str], str]:
    """Looks a name up in each source in turn; a name that none of them has is kept as a
    reference.
    """

    def resolve(name: str) -> str:
        for source in sources:
            value = source.get(name)
            if value is not None:
                return value
        return f"$({name})"

    return resolve


def expand_all_variables(
    texts: Sequence[str] | None, resolve: Callable[[str], str]
) -> tuple[str, ...]:
    """Raises ExpansionTooLarge."""
    out: list[str] = []
    left = MOST_CHARACTERS
    for text in texts or ():
        out.append(expand_variables(text, resolve, left) if "$" in text else text)
        left -= len(out[-1])
    return tuple(out)


class MissingValue(ValueError):
    """A variable that a sub-path references has no value."""


def expand_strictly(text: str, variables: Mapping[str, str]) -> str:
    """Like `expand_variables`, but a missing or empty variable is an error: it would mount more
    than was requested.
    """
    missing = set()

    def resolve(name: str) -> str:
        value = variables.get(name, "")
        if not value:
            missing.add(name)
        return value

    expanded = expand_variables(text, resolve)
    if missing:
        raise MissingValue("missing value for " + ", ".join(sorted(missing)))
    return expanded
