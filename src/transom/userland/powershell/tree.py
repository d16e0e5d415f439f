"""The syntax tree of a PowerShell script. Nothing here runs.

Dataclasses rather than named tuples, as for sh and cmd: mypy compares named tuples member by member and does not terminate on a
tree of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import zip_longest
from typing import Any

from transom.kit.lazy_dataclass import dataclass
from transom.userland.powershell.extents import SourceExtent

# ---- expressions ----


@dataclass(frozen=True, slots=True)
class ValueLiteral:
    """A number or a string without variables; also a value that was already computed."""

    value: Any


@dataclass(frozen=True, slots=True)
class ExpandableString:
    parts: tuple[PsNode, ...]


@dataclass(frozen=True, slots=True)
class VariableReference:
    name: str


@dataclass(frozen=True, slots=True)
class SubExpression:
    """`$( ... )`"""

    body: StatementBlock


@dataclass(frozen=True, slots=True)
class ArrayExpression:
    """`@( ... )`"""

    body: StatementBlock


@dataclass(frozen=True, slots=True)
class ArrayLiteral:
    """`1, 2, 3`"""

    items: tuple[PsNode, ...]


@dataclass(frozen=True, slots=True)
class HashtableLiteral:
    pairs: tuple[tuple[PsNode, PsNode], ...]


@dataclass(frozen=True, slots=True)
class Parenthesized:
    inner: PsNode


@dataclass(frozen=True, slots=True)
class ScriptParameter:
    """`type` is lower case and without `System.`; "" for any. `choices` are those of ValidateSet,
    `limits` those of ValidateRange, `pattern` that of ValidatePattern, `check` the text of
    ValidateScript.
    """

    name: str
    default: PsNode | None
    type: str = ""
    mandatory: bool = False
    from_pipeline: bool = False
    from_property: bool = False  # of an object in the pipeline
    choices: tuple[str, ...] = ()
    limits: tuple[float, float] | None = None
    aliases: tuple[str, ...] = ()
    not_empty: bool = False
    pattern: str = ""
    check: str = ""
    attributed: bool = False  # has [Parameter()]


@dataclass(frozen=True, slots=True)
class ScriptBlockLiteral:
    """`binding` is the attribute CmdletBinding, `text` what is between the braces."""

    parameters: tuple[ScriptParameter, ...]
    body: StatementBlock
    binding: str = ""
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class TypeLiteral:
    name: str


@dataclass(frozen=True, slots=True)
class CastExpression:
    type: str
    operand: PsNode


@dataclass(frozen=True, slots=True)
class UnaryExpression:
    operator: str
    operand: PsNode


@dataclass(frozen=True, slots=True)
class BinaryExpression:
    operator: str
    left: PsNode
    right: PsNode


@dataclass(frozen=True, slots=True)
class IncrementExpression:
    """`++` or `--`, before or after its target."""

    operator: str
    target: PsNode
    postfix: bool


@dataclass(frozen=True, slots=True)
class IndexExpression:
    target: PsNode
    index: PsNode


@dataclass(frozen=True, slots=True)
class MemberExpression:
    """`target.name`; with `arguments`, a method call."""

    target: PsNode
    name: PsNode
    arguments: tuple[PsNode, ...] | None


@dataclass(frozen=True, slots=True)
class StaticMemberExpression:
    """`[type]::name`; with `arguments`, a method call."""

    target: PsNode
    name: PsNode
    arguments: tuple[PsNode, ...] | None


# ---- commands ----


@dataclass(frozen=True, slots=True)
class ParameterArgument:
    """`-Name`"""

    name: str


@dataclass(frozen=True, slots=True)
class NamedArgument:
    """`-Name:value`"""

    name: str
    value: PsNode


@dataclass(frozen=True, slots=True)
class SplattedArgument:
    """`@name`: the values of a hashtable or of an array, as arguments."""

    name: str


@dataclass(frozen=True, slots=True)
class StreamRedirect:
    stream: str  # "1", "2", "*"
    operator: str  # ">" or ">>"
    target: PsNode


@dataclass(frozen=True, slots=True)
class CommandNode:
    """`operator` is "&", "." or ""."""

    name: PsNode
    arguments: tuple[PsArgument, ...]
    redirects: tuple[StreamRedirect, ...]
    operator: str
    extent: SourceExtent | None = field(default=None, compare=False)
    name_extent: SourceExtent | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class PipelineNode:
    stages: tuple[PsNode, ...]


@dataclass(frozen=True, slots=True)
class PipelineChain:
    """`&&` or `||`"""

    operator: str
    left: PsNode
    right: PsNode


@dataclass(frozen=True, slots=True)
class Assignment:
    operator: str
    target: PsNode
    source: PsNode


@dataclass(frozen=True, slots=True)
class StatementValue:
    """The output of a statement, as the source of an assignment."""

    statement: PsNode


@dataclass(frozen=True, slots=True)
class RedirectedExpression:
    value: PsNode
    redirects: tuple[StreamRedirect, ...]


# ---- statements ----


@dataclass(frozen=True, slots=True)
class StatementBlock:
    statements: tuple[PsNode, ...]
    extents: tuple[SourceExtent, ...] = field(default=(), compare=False)  # of the statements

    def located(self) -> Iterator[tuple[PsNode, SourceExtent | None]]:
        return zip_longest(self.statements, self.extents)

    def rest(self) -> StatementBlock:
        """Without the first statement."""
        return StatementBlock(self.statements[1:], self.extents[1:])


@dataclass(frozen=True, slots=True)
class IfStatement:
    branches: tuple[tuple[PsNode, StatementBlock], ...]
    otherwise: StatementBlock | None


@dataclass(frozen=True, slots=True)
class WhileStatement:
    condition: PsNode
    body: StatementBlock


@dataclass(frozen=True, slots=True)
class DoStatement:
    condition: PsNode
    body: StatementBlock
    until: bool


@dataclass(frozen=True, slots=True)
class ForStatement:
    start: PsNode | None
    condition: PsNode | None
    step: PsNode | None
    body: StatementBlock


@dataclass(frozen=True, slots=True)
class ForeachStatement:
    variable: str
    items: PsNode
    body: StatementBlock


@dataclass(frozen=True, slots=True)
class SwitchStatement:
    """`mode` is "", "wildcard", "regex", "exact" or "casesensitive"; the pattern of `default` is None."""

    mode: str
    subject: PsNode
    branches: tuple[tuple[PsNode | None, StatementBlock], ...]


@dataclass(frozen=True, slots=True)
class CatchClause:
    """Without types it catches everything."""

    types: tuple[str, ...]
    body: StatementBlock


@dataclass(frozen=True, slots=True)
class TryStatement:
    body: StatementBlock
    handlers: tuple[CatchClause, ...]
    cleanup: StatementBlock | None


@dataclass(frozen=True, slots=True)
class TrapStatement:
    handler: CatchClause


@dataclass(frozen=True, slots=True)
class NamedBlock:
    """`begin`, `process` or `end` of a function."""

    name: str
    body: StatementBlock


@dataclass(frozen=True, slots=True)
class LabeledStatement:
    label: str
    statement: PsNode


@dataclass(frozen=True, slots=True)
class EnumStatement:
    name: str
    members: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ClassMember:
    """A property, or with a script a method; a constructor has the name of its class."""

    name: str
    type: str
    static: bool
    default: PsNode | None
    script: ScriptBlockLiteral | None
    hidden: bool = False
    base_arguments: tuple[PsNode, ...] | None = None  # of a constructor: `: base(...)`


@dataclass(frozen=True, slots=True)
class ClassStatement:
    name: str
    base: str
    members: tuple[ClassMember, ...]


@dataclass(frozen=True, slots=True)
class FunctionStatement:
    name: str
    script: ScriptBlockLiteral


@dataclass(frozen=True, slots=True)
class ParamStatement:
    parameters: tuple[ScriptParameter, ...]
    binding: str = ""


@dataclass(frozen=True, slots=True)
class ReturnStatement:
    value: PsNode | None


@dataclass(frozen=True, slots=True)
class ExitStatement:
    value: PsNode | None


@dataclass(frozen=True, slots=True)
class ThrowStatement:
    value: PsNode | None


@dataclass(frozen=True, slots=True)
class BreakStatement:
    label: str = ""


@dataclass(frozen=True, slots=True)
class ContinueStatement:
    label: str = ""


PsExpression = (
    ValueLiteral
    | ExpandableString
    | VariableReference
    | SubExpression
    | ArrayExpression
    | ArrayLiteral
    | HashtableLiteral
    | Parenthesized
    | ScriptBlockLiteral
    | TypeLiteral
    | CastExpression
    | UnaryExpression
    | BinaryExpression
    | IncrementExpression
    | IndexExpression
    | MemberExpression
    | StaticMemberExpression
)
PsStatement = (
    StatementBlock
    | IfStatement
    | WhileStatement
    | DoStatement
    | ForStatement
    | ForeachStatement
    | SwitchStatement
    | TryStatement
    | TrapStatement
    | NamedBlock
    | LabeledStatement
    | EnumStatement
    | ClassStatement
    | FunctionStatement
    | ParamStatement
    | ReturnStatement
    | ExitStatement
    | ThrowStatement
    | BreakStatement
    | ContinueStatement
    | PipelineChain
    | PipelineNode
    | CommandNode
    | Assignment
    | StatementValue
    | RedirectedExpression
)
PsNode = PsExpression | PsStatement
BoundArgument = PsNode | ParameterArgument | NamedArgument
PsArgument = BoundArgument | SplattedArgument
