"""Environments: the functions, macros, names and types that expressions may use, and how these
compile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from transom.kit.cel import ast
from transom.kit.cel.checker import Checker, Declarations
from transom.kit.cel.cost import CostEstimator, CostRange, estimate_cost
from transom.kit.cel.errors import CelError, CompileError, Issues, deep_recursion
from transom.kit.cel.functions import Function, merge_functions
from transom.kit.cel.interpreter import CallCharge, CelProgram, MakeStruct, plan_program
from transom.kit.cel.macros import Macro
from transom.kit.cel.parser import parse_expression
from transom.kit.cel.stdlib import STANDARD_FUNCTIONS
from transom.kit.cel.times import parse_cel_duration, parse_timestamp
from transom.kit.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    CelType,
    list_type,
    map_type,
    type_of_type,
)
from transom.kit.regexp import RegexpError, compile_regexp

_TYPE_NAMES: dict[str, tuple[CelType, Any]] = {
    kind.name: (type_of_type(kind), kind)
    for kind in (
        BOOL,
        INT,
        UINT,
        DOUBLE,
        STRING,
        BYTES,
        NULL,
        DURATION,
        TIMESTAMP,
        TYPE,
        list_type(DYN),
        map_type(DYN, DYN),
    )
}


_SHALLOW = 60  # levels of a tree that evaluate within Python's usual recursion limit


def _no_struct(name: str, fields: dict[str, Any]) -> Any:
    raise CelError(f"unknown type '{name}'")


class CelExpression:
    """A compiled expression: its type, the variables it uses, its program, and what it may cost."""

    __slots__ = ("_node", "program", "references", "type")

    def __init__(
        self, node: ast.ExprNode, kind: CelType, references: frozenset[str], program: CelProgram
    ) -> None:
        self._node, self.type, self.references, self.program = node, kind, references, program

    def selects(self, name: str, field: str) -> bool:
        """Whether the expression uses `NAME.FIELD`, also as `NAME.?FIELD`."""
        with deep_recursion():
            return _selects(self._node, name, field)

    def estimate(self, estimator: CostEstimator) -> CostRange:
        with deep_recursion():
            return estimate_cost(self._node, estimator)


def _selects(node: ast.ExprNode | None, name: str, field: str) -> bool:
    if isinstance(node, ast.SelectNode):
        own = isinstance(node.operand, ast.IdentNode) and node.operand.name == name
        return (own and node.field == field) or _selects(node.operand, name, field)
    inner: list[ast.ExprNode | None] = []
    if isinstance(node, ast.CallNode):
        if node.function == "_?._" and len(node.args) == 2:
            operand, chosen = node.args
            if (
                isinstance(operand, ast.IdentNode)
                and operand.name == name
                and isinstance(chosen, ast.ConstNode)
                and chosen.value == field
            ):
                return True
        inner = [*node.args, node.target]
    elif isinstance(node, ast.ListNode):
        inner = [*node.items]
    elif isinstance(node, ast.MapNode):
        inner = [part for entry in node.entries for part in entry[:2]]
    elif isinstance(node, ast.StructNode):
        inner = [entry[1] for entry in node.fields]
    elif isinstance(node, ast.ComprehensionNode):
        inner = [node.iter_range, node.accu_init, node.condition, node.step, node.result]
    return any(_selects(part, name, field) for part in inner)


class CelEnvironment:
    """What does not change between expressions; `compile` adds the variables and the fields of
    object types.
    """

    def __init__(
        self,
        libraries: Iterable[Iterable[Function]],
        macros: Iterable[Mapping[tuple[str, int, bool], Macro]],
        charged: frozenset[str],
        charge: CallCharge,
        types: Mapping[str, tuple[CelType, Any]] | None = None,
    ) -> None:
        self._functions = merge_functions([STANDARD_FUNCTIONS, *libraries])
        self._macros = {key: macro for table in macros for key, macro in table.items()}
        self._charged, self._charge = charged, charge
        self._constants = {**_TYPE_NAMES, **(types or {})}

    def compile(
        self,
        source: str,
        variables: Mapping[str, CelType],
        fields: Mapping[str, Mapping[str, CelType]],
        make_struct: MakeStruct = _no_struct,
    ) -> CelExpression:
        """Raise CompileError with all issues, as cel-go prints them."""
        issues = Issues(source)
        checker = Checker(Declarations(variables, self._constants, self._functions, fields), issues)
        try:
            with deep_recursion():
                node = parse_expression(source, issues, self._macros)
                issues.raise_if_any()
                assert node is not None
                kind = checker.check(node)
                issues.raise_if_any()
                _validate_literals(checker.visited, issues)
                issues.raise_if_any()
                deep = checker.depth > _SHALLOW
                program = plan_program(
                    node, self._functions, self._charged, self._charge, make_struct, deep=deep
                )
        except RecursionError:
            issues = Issues(source)
            issues.report(-1, "expression recursion limit exceeded: 250")
            raise CompileError(str(issues)) from None
        return CelExpression(node, kind, frozenset(checker.references), program)


def _validate_literals(nodes: Iterable[tuple[ast.ExprNode, bool]], issues: Issues) -> None:
    """Times and patterns that are written in the expression must be valid; items of a literal must
    have one type.
    """
    for at, mixed in nodes:
        if isinstance(at, ast.CallNode):
            if at.function in ("duration", "timestamp", "matches") and at.args:
                _validate_argument(at, issues)
        elif isinstance(at, ast.ListNode) and not mixed:
            _same_types([(item, i in at.optional) for i, item in enumerate(at.items)], issues)
        elif isinstance(at, ast.MapNode) and not mixed:
            _same_types([(key, False) for key, _, _ in at.entries], issues)
            _same_types([(value, optional) for _, value, optional in at.entries], issues)


def _same_types(items: list[tuple[ast.ExprNode, bool]], issues: Issues) -> None:
    first: CelType | None = None
    for item, optional in items:
        kind = item.type or DYN
        if optional and kind.params:
            kind = kind.params[0]
        if first is None:
            first = kind
        elif kind != first:
            issues.report(item.pos, f"expected type '{first}' but found '{kind}'")
            return


def _validate_argument(call: ast.CallNode, issues: Issues) -> None:
    argument = call.args[-1] if call.function == "matches" else call.args[0]
    if not isinstance(argument, ast.ConstNode) or not isinstance(argument.value, str):
        return
    try:
        if call.function == "duration":
            parse_cel_duration(argument.value)
        elif call.function == "timestamp":
            parse_timestamp(argument.value)
        else:
            compile_regexp(argument.value)
    except (ValueError, RegexpError, CelError):
        issues.report(argument.pos, f"invalid {call.function} argument")
