"""The syntax tree of a shell script. Nothing here runs.

Dataclasses rather than named tuples: mypy compares named tuples member by member and does not
terminate on a tree of them.
"""

from __future__ import annotations

from dataclasses import field

from transom.kit.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Literal:
    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class ParameterExpansion:
    """`$name`, `${name}` and its forms. `operator` follows the name: "" for none, "length" for
    `${#name}`.
    """

    name: str
    operator: str = ""
    operand: tuple[Part, ...] = ()
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Substitution:
    body: ShellNode
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic:
    expression: tuple[Part, ...]
    quoted: bool = False


Part = Literal | ParameterExpansion | Substitution | Arithmetic
Word = tuple[Part, ...]


@dataclass(slots=True)
class ShellRedirect:
    """`fd` is -1 for `&>`, which redirects both outputs. The text of a here-document is in
    `target`.
    """

    fd: int
    operator: str
    target: Word = ()


@dataclass(frozen=True, slots=True)
class Simple:
    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    redirects: tuple[ShellRedirect, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    commands: tuple[ShellNode, ...]
    negated: bool = False
    timed: bool = False


@dataclass(frozen=True, slots=True)
class AndOr:
    first: ShellNode
    rest: tuple[tuple[str, ShellNode], ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """Consecutive commands; True marks those that run in the background."""

    items: tuple[tuple[ShellNode, bool], ...]


@dataclass(frozen=True, slots=True)
class BraceGroup:
    body: ShellNode


@dataclass(frozen=True, slots=True)
class Subshell:
    body: ShellNode


@dataclass(frozen=True, slots=True)
class IfCommand:
    branches: tuple[tuple[ShellNode, ShellNode], ...]
    otherwise: ShellNode | None


@dataclass(frozen=True, slots=True)
class WhileLoop:
    condition: ShellNode
    body: ShellNode
    until: bool


@dataclass(frozen=True, slots=True)
class ForLoop:
    name: str
    words: tuple[Word, ...] | None  # None: "$@"
    body: ShellNode


@dataclass(frozen=True, slots=True)
class CountingFor:
    """bash's `for ((a; b; c))`."""

    start: Word
    condition: Word
    step: Word
    body: ShellNode


@dataclass(frozen=True, slots=True)
class CaseCommand:
    subject: Word
    branches: tuple[tuple[tuple[Word, ...], ShellNode], ...]


@dataclass(frozen=True, slots=True)
class FunctionDefinition:
    name: str
    body: ShellNode


@dataclass(frozen=True, slots=True)
class Redirected:
    """A compound command with redirections."""

    body: ShellNode
    redirects: tuple[ShellRedirect, ...]


@dataclass(frozen=True, slots=True)
class Test:
    """bash's `[[ ... ]]`."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class ArithmeticCommand:
    """bash's `(( ... ))`."""

    expression: Word


ShellNode = (
    Simple
    | Pipeline
    | AndOr
    | Sequence
    | BraceGroup
    | Subshell
    | IfCommand
    | WhileLoop
    | ForLoop
    | CountingFor
    | CaseCommand
    | FunctionDefinition
    | Redirected
    | Test
    | ArithmeticCommand
)


class ShellSyntaxError(Exception):
    """Its text is the shell's message without the name."""


class Incomplete(ShellSyntaxError):
    """The text ends inside a construct: an interactive shell prompts for more."""


@dataclass(slots=True)
class PendingDocument:
    """A here-document whose text begins after the line that names it."""

    redirect: ShellRedirect
    delimiter: str
    expand: bool
    strip_tabs: bool
    done: bool = field(default=False)
