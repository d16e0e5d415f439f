"""The shell's integer arithmetic: C operators on variables."""

from __future__ import annotations

import re
from collections.abc import Callable

from transom.userland.preemption import check_slice

_TOKEN = re.compile(
    r"\s*(0[xX][0-9a-fA-F]+|\d+#[0-9a-zA-Z]+|\d+|[A-Za-z_]\w*|\*\*|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--"
    r"|[-+*/%&|^]=|[-+*/%<>=!~&|^?:(),])"
)
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<=", ">=", "<", ">"),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_ASSIGNMENTS = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="))


class ArithmeticFault(Exception):
    """Its text is the shell's message."""


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise ArithmeticFault("divide by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_OPERATE: dict[str, Callable[[int, int], int]] = {
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<<": lambda a, b: _wrap(a << (b & 63)),
    ">>": lambda a, b: a >> (b & 63),
    "+": lambda a, b: _wrap(a + b),
    "-": lambda a, b: _wrap(a - b),
    "*": lambda a, b: _wrap(a * b),
    "/": _divide,
    "%": lambda a, b: a - b * _divide(a, b),
}


def evaluate(text: str, get: Callable[[str], str], put: Callable[[str, str], None]) -> int:
    tokens: list[str] = []
    position = 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise ArithmeticFault("arithmetic syntax error")
        tokens.append(match[1])
        position = match.end()
        check_slice()
    if not tokens:
        return 0
    evaluator = _Evaluator(tokens, get, put)
    value = evaluator.comma()
    if evaluator.position != len(tokens):
        raise ArithmeticFault("arithmetic syntax error")
    return _wrap(value)


def _wrap(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


class _Evaluator:
    def __init__(
        self, tokens: list[str], get: Callable[[str], str], put: Callable[[str, str], None]
    ) -> None:
        self.tokens = tokens
        self.position = 0
        self.skipping = 0  # inside the branch of && || ?: that is not taken: no assignments
        self.get = get
        self.put = put

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self) -> str:
        check_slice()
        token = self.peek()
        self.position += 1
        return token

    def number(self, name: str) -> int:
        value = self.get(name).strip()
        if not value:
            return 0
        try:
            return arithmetic_literal(value)
        except ValueError:
            return evaluate(value, self.get, self.put)

    def assign(self, name: str, value: int) -> int:
        if not self.skipping:
            self.put(name, str(_wrap(value)))
        return value

    def comma(self) -> int:
        value = self.assignment()
        while self.peek() == ",":
            self.take()
            value = self.assignment()
        return value

    def assignment(self) -> int:
        name = self.peek()
        following = self.tokens[self.position + 1] if self.position + 1 < len(self.tokens) else ""
        if (name[:1].isalpha() or name[:1] == "_") and following in _ASSIGNMENTS:
            self.position += 2
            value = self.assignment()
            if following != "=":
                value = _OPERATE[following[:-1]](self.number(name), value)
            return self.assign(name, value)
        return self.ternary()

    def ternary(self) -> int:
        condition = self.binary(0)
        if self.peek() != "?":
            return condition
        self.take()
        first = self._maybe(bool(condition), self.assignment)
        if self.take() != ":":
            raise ArithmeticFault("arithmetic syntax error")
        second = self._maybe(not condition, self.assignment)
        return first if condition else second

    def _maybe(self, wanted: bool, parse: Callable[[], int]) -> int:
        self.skipping += not wanted
        try:
            return parse()
        except ArithmeticFault:
            if wanted:
                raise
            return 0
        finally:
            self.skipping -= not wanted

    def binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self.power()
        value = self.binary(level + 1)
        while (operator := self.peek()) in _LEVELS[level]:
            self.take()
            if operator in ("&&", "||"):
                needed = bool(value) == (operator == "&&")
                other = self._maybe(needed, lambda: self.binary(level + 1))
                value = (
                    int(bool(value) and bool(other))
                    if operator == "&&"
                    else int(bool(value) or bool(other))
                )
            else:
                value = _OPERATE[operator](value, self.binary(level + 1))
        return value

    def power(self) -> int:
        base = self.unary()
        if self.peek() == "**":
            self.take()
            exponent = self.power()
            if exponent < 0:
                raise ArithmeticFault("exponent less than 0")
            return _wrap(pow(base, exponent, 1 << 64))
        return base

    def unary(self) -> int:
        token = self.take()
        if token == "-":
            return -self.unary()
        if token == "+":
            return self.unary()
        if token == "!":
            return int(not self.unary())
        if token == "~":
            return ~self.unary()
        if token in ("++", "--"):
            name = self.take()
            return self.assign(name, self.number(name) + (1 if token == "++" else -1))
        if token == "(":
            value = self.comma()
            if self.take() != ")":
                raise ArithmeticFault("arithmetic syntax error")
            return value
        if token[:1].isdigit():
            try:
                return arithmetic_literal(token)
            except ValueError:
                raise ArithmeticFault("arithmetic syntax error") from None
        if token[:1].isalpha() or token[:1] == "_":
            value = self.number(token)
            if self.peek() in ("++", "--"):
                self.assign(token, value + (1 if self.take() == "++" else -1))
            return value
        raise ArithmeticFault("arithmetic syntax error")


def arithmetic_literal(text: str) -> int:
    """Decimal, `0x` hexadecimal, `0` octal, `base#digits`."""
    sign = -1 if text.startswith("-") else 1
    body = text.lstrip("+-")
    if "#" in body:
        base, _, digits = body.partition("#")
        return sign * int(digits, int(base))
    if body[:2].lower() == "0x":
        return sign * int(body, 16)
    if len(body) > 1 and body[0] == "0":
        return sign * int(body, 8)
    return sign * int(body, 10)
