"""expr: evaluates an expression of its arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NoReturn

from transom.userland.posix.commands.expressions import basic_expression
from transom.userland.preemption import check_slice
from transom.userland.process import Command, Process
from transom.userland.regex import compile_pattern

_MAX_DEPTH: Final = 100
_SYNTAX, _NOT_A_NUMBER = "syntax error", "non-integer argument"
# From the weakest binding to the strongest. `:` binds stronger than all of them.
_LEVELS: Final = (
    ("|",),
    ("&",),
    ("<", "<=", "=", "==", "!=", ">=", ">"),
    ("+", "-"),
    ("*", "/", "%"),
)
_NULL: Final = ("", "0")


class _ExpressionError(Exception):
    pass


def expr(process: Process) -> int:
    words = process.argv[1:]
    if words[:1] == ["--"]:
        words = words[1:]
    parser = _Parser(words)
    try:
        value = parser.level(0)
        if parser.rest():
            raise _ExpressionError(_SYNTAX)
    except _ExpressionError as problem:
        return process.fail(str(problem), 2)
    except re.error:
        return process.fail("invalid regular expression", 2)
    process.write(f"{value}\n")
    return int(value in _NULL)


class _Parser:
    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._at = 0
        self._depth = 0

    def rest(self) -> list[str]:
        return self._words[self._at :]

    def _next(self) -> str:
        if self._at >= len(self._words):
            raise _ExpressionError(_SYNTAX)
        self._at += 1
        return self._words[self._at - 1]

    def level(self, number: int) -> str:
        check_slice()
        if number == len(_LEVELS):
            return self._match()
        value = self.level(number + 1)
        while self.rest() and self.rest()[0] in _LEVELS[number]:
            value = _calculate(value, self._next(), self.level(number + 1))
        return value

    def _match(self) -> str:
        value = self._operand()
        while self.rest()[:1] == [":"]:
            self._next()
            value = _matched(value, self._operand())
        return value

    def _operand(self) -> str:
        word = self._next()
        if word == "(":
            self._depth += 1
            if self._depth > _MAX_DEPTH:
                raise _ExpressionError(_SYNTAX)
            value = self.level(0)
            self._depth -= 1
            if self._next() != ")":
                raise _ExpressionError(_SYNTAX)
            return value
        if not self.rest():
            return word
        match word:
            case "length":
                return str(len(self._operand()))
            case "match":
                return _matched(self._operand(), self._operand())
            case "index":
                text, letters = self._operand(), self._operand()
                return str(next((n for n, c in enumerate(text, 1) if c in letters), 0))
            case "substr":
                text, start, size = (self._operand() for _ in range(3))
                return _part(text, start, size)
            case "quote":
                return self._next()
        return word


def _part(text: str, start: str, size: str) -> str:
    try:
        first, length = int(start), int(size)
    except ValueError:
        return ""
    return text[first - 1 : first - 1 + length] if first > 0 and length > 0 else ""


def _matched(text: str, pattern: str) -> str:
    """What the group matched, otherwise the number of characters."""
    compiled = compile_pattern(basic_expression(pattern.removeprefix("^")))
    found = compiled.match(text)
    if r"\(" in pattern:
        return (found.group(1) or "") if found is not None else ""
    return str(len(found.group(0))) if found is not None else "0"


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,4000}", text) else None


def _integer(text: str) -> int:
    number = _number(text)
    return number if number is not None else _refuse(_NOT_A_NUMBER)


def _refuse(reason: str) -> NoReturn:
    raise _ExpressionError(reason)


def _divide(left: int, right: int) -> int:
    """Rounds towards zero, as C does."""
    if not right:
        _refuse("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_ARITHMETIC: Final[dict[str, Callable[[int, int], int]]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide,
    "%": lambda left, right: left - right * _divide(left, right),
}


def _calculate(left: str, operator: str, right: str) -> str:
    if operator == "|":
        return left if left not in _NULL else right if right not in _NULL else "0"
    if operator == "&":
        return left if left not in _NULL and right not in _NULL else "0"
    if operator in _ARITHMETIC:
        return str(_ARITHMETIC[operator](_integer(left), _integer(right)))
    return str(int(_compare(left, operator, right)))


def _compare(left: str, operator: str, right: str) -> bool:
    numbers = _number(left), _number(right)
    if numbers[0] is not None and numbers[1] is not None:
        sign = (numbers[0] > numbers[1]) - (numbers[0] < numbers[1])
    else:
        sign = (left > right) - (left < right)
    match operator:
        case "<":
            return sign < 0
        case "<=":
            return sign <= 0
        case ">":
            return sign > 0
        case ">=":
            return sign >= 0
        case "!=":
            return sign != 0
    return sign == 0


COMMANDS: dict[str, Command] = {"expr": expr}
