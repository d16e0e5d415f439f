"""What a line for cmd.exe says, as a tree of plain values."""

from __future__ import annotations

from typing import NamedTuple


class CmdSyntaxError(Exception):
    """The text is what cmd prints."""


class Redirect(NamedTuple):
    handle: int
    operator: str  # ">", ">>", "<", ">&"
    target: str


class Command(NamedTuple):
    text: str  # escapes are gone, quotes are not
    redirects: tuple[Redirect, ...] = ()
    silent: bool = False  # began with @


class Pair(NamedTuple):
    """`left operator right`; the operator is &, &&, || or |."""

    left: Node
    operator: str
    right: Node


class Block(NamedTuple):
    body: tuple[Node, ...]
    redirects: tuple[Redirect, ...] = ()


class If(NamedTuple):
    negated: bool
    fold: bool
    kind: str  # "exist", "defined", "errorlevel", "compare"
    left: str
    operator: str
    right: str
    then: Node
    otherwise: Node | None


class For(NamedTuple):
    switch: str  # "", "L", "F", "D", "R"
    options: str
    variable: str
    items: str
    body: Node


Node = Command | Pair | Block | If | For
