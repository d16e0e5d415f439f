"""The syntax tree of a line for cmd.exe."""

from __future__ import annotations

from transom.kit.named_tuple import NamedTuple


class CmdSyntaxError(Exception):
    """Its text is what cmd prints."""


class CmdRedirect(NamedTuple):
    handle: int
    operator: str  # ">", ">>", "<", ">&"
    target: str


class CmdCommand(NamedTuple):
    text: str  # without escapes, with quotes
    redirects: tuple[CmdRedirect, ...] = ()
    silent: bool = False  # began with @


class CmdPair(NamedTuple):
    """`left operator right`; the operator is &, &&, || or |."""

    left: CmdNode
    operator: str
    right: CmdNode


class CmdBlock(NamedTuple):
    body: tuple[CmdNode, ...]
    redirects: tuple[CmdRedirect, ...] = ()


class CmdIf(NamedTuple):
    negated: bool
    fold: bool
    kind: str  # "exist", "defined", "errorlevel", "compare"
    left: str
    operator: str
    right: str
    then: CmdNode
    otherwise: CmdNode | None


class CmdFor(NamedTuple):
    switch: str  # "", "L", "F", "D", "R"
    options: str
    variable: str
    items: str
    body: CmdNode


CmdNode = CmdCommand | CmdPair | CmdBlock | CmdIf | CmdFor
