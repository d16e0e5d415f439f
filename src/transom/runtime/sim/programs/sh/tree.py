"""What a shell script says, as a tree of plain values. Nothing here runs.

Not named tuples: a type checker compares those member by member, and never comes to an end in a tree of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Literal:
    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """`$name`, `${name}` and its forms. `operator` is what stands after the name: "" for none, "length" for `${#name}`."""

    name: str
    operator: str = ""
    operand: tuple[Part, ...] = ()
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Substitution:
    body: Node
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic:
    expression: tuple[Part, ...]
    quoted: bool = False


Part = Literal | Parameter | Substitution | Arithmetic
Word = tuple[Part, ...]


@dataclass(slots=True)
class Redirect:
    """`fd` is -1 for `&>`, which takes both outputs. A here-document keeps its text in `target`."""

    fd: int
    operator: str
    target: Word = ()


@dataclass(frozen=True, slots=True)
class Simple:
    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    commands: tuple[Node, ...]
    negated: bool = False
    timed: bool = False


@dataclass(frozen=True, slots=True)
class AndOr:
    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """Commands one after the other; True marks those that run in the background."""

    items: tuple[tuple[Node, bool], ...]


@dataclass(frozen=True, slots=True)
class Group:
    body: Node


@dataclass(frozen=True, slots=True)
class Subshell:
    body: Node


@dataclass(frozen=True, slots=True)
class If:
    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node | None


@dataclass(frozen=True, slots=True)
class While:
    condition: Node
    body: Node
    until: bool


@dataclass(frozen=True, slots=True)
class For:
    name: str
    words: tuple[Word, ...] | None  # None: "$@"
    body: Node


@dataclass(frozen=True, slots=True)
class CountingFor:
    """bash's `for ((a; b; c))`."""

    start: Word
    condition: Word
    step: Word
    body: Node


@dataclass(frozen=True, slots=True)
class Case:
    subject: Word
    branches: tuple[tuple[tuple[Word, ...], Node], ...]


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    body: Node


@dataclass(frozen=True, slots=True)
class Redirected:
    """A compound command with redirections behind it."""

    body: Node
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class Test:
    """bash's `[[ ... ]]`."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class ArithmeticCommand:
    """bash's `(( ... ))`."""

    expression: Word


Node = (
    Simple
    | Pipeline
    | AndOr
    | Sequence
    | Group
    | Subshell
    | If
    | While
    | For
    | CountingFor
    | Case
    | Function
    | Redirected
    | Test
    | ArithmeticCommand
)


class ShellSyntaxError(Exception):
    """The text is the shell's own, without its name in front."""


class Incomplete(ShellSyntaxError):
    """The text ends within a construct: an interactive shell asks for more."""


@dataclass(slots=True)
class PendingDocument:
    """A here-document whose text begins after the line that names it."""

    redirect: Redirect
    delimiter: str
    expand: bool
    strip_tabs: bool
    done: bool = field(default=False)
