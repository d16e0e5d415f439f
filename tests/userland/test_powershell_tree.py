"""PowerShell's syntax tree: what the parser returns for scripts."""

from __future__ import annotations

import pytest

from transom.userland.powershell.lexer import IncompleteScript, ParseFault
from transom.userland.powershell.parser import parse_powershell
from transom.userland.powershell.tree import (
    ArrayLiteral,
    Assignment,
    BinaryExpression,
    CommandNode,
    ExpandableString,
    IfStatement,
    IncrementExpression,
    MemberExpression,
    NamedArgument,
    ParameterArgument,
    ParamStatement,
    PipelineNode,
    PsNode,
    ScriptBlockLiteral,
    ScriptParameter,
    SplattedArgument,
    StatementBlock,
    StatementValue,
    StreamRedirect,
    ValueLiteral,
    VariableReference,
)

ONE = ValueLiteral(1)
X = VariableReference("x")


def _echo(*arguments: PsNode) -> CommandNode:
    return CommandNode(ValueLiteral("echo"), arguments, (), "")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("$x = 1", Assignment("=", X, ONE)),
        ("$x++", IncrementExpression("++", X, postfix=True)),
        ("$x + 1, 1", BinaryExpression("+", X, ArrayLiteral((ONE, ONE)))),
        ('"a$x"', ExpandableString((ValueLiteral("a"), X))),
        ("$x.Length", MemberExpression(X, ValueLiteral("Length"), None)),
        ("$x.Trim(1)", MemberExpression(X, ValueLiteral("Trim"), (ONE,))),
        ("echo 1 | echo", PipelineNode((_echo(ONE), _echo()))),
        ("if ($x) { 1 }", IfStatement(((X, StatementBlock((ONE,))),), None)),
        (
            "$x = if ($x) { 1 }",
            Assignment("=", X, StatementValue(IfStatement(((X, StatementBlock((ONE,))),), None))),
        ),
        (
            "echo -Name -Depth:$x @x > y",
            CommandNode(
                ValueLiteral("echo"),
                (ParameterArgument("Name"), NamedArgument("Depth", X), SplattedArgument("x")),
                (StreamRedirect("1", ">", ValueLiteral("y")),),
                "",
            ),
        ),
        (
            "& { param($x = 1) $x }",
            CommandNode(
                ScriptBlockLiteral((ScriptParameter("x", ONE),), StatementBlock((X,))), (), (), "&"
            ),
        ),
        ("param($x)", ParamStatement((ScriptParameter("x", None),))),
    ],
)
def test_a_statement_becomes_one_node(script: str, expected: PsNode) -> None:
    assert parse_powershell(script).statements == (expected,)


@pytest.mark.parametrize(
    ("script", "fault"), [("if ($x) {", IncompleteScript), ("echo )", ParseFault)]
)
def test_a_script_that_does_not_parse(script: str, fault: type[Exception]) -> None:
    with pytest.raises(fault):
        parse_powershell(script)


@pytest.mark.parametrize("script", ["a\nb  && c", 'if (1) { "$(b || c)" }', "& { b && c }"])
def test_windows_powershell_has_no_chains(script: str) -> None:
    assert parse_powershell(script)
    with pytest.raises(ParseFault, match="is not a valid statement separator in this version"):
        parse_powershell(script, chains=False)
