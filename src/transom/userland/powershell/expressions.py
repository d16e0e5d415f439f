"""PowerShell's expressions: operators, literals, members. The parser of statements extends this one."""

from __future__ import annotations

import re

from transom.userland.powershell.lexer import IncompleteScript, ParseFault, Scanner
from transom.userland.powershell.tree import (
    ArrayExpression,
    ArrayLiteral,
    Assignment,
    BinaryExpression,
    CastExpression,
    HashtableLiteral,
    IncrementExpression,
    IndexExpression,
    MemberExpression,
    Parenthesized,
    PsNode,
    RedirectedExpression,
    ScriptBlockLiteral,
    ScriptParameter,
    StatementBlock,
    StaticMemberExpression,
    StreamRedirect,
    SubExpression,
    TypeLiteral,
    UnaryExpression,
    ValueLiteral,
    VariableReference,
)

# Each also exists with an `i` (ignores case, the default) and with a `c` (respects it).
_WITH_CASE = (
    "eq",
    "ne",
    "gt",
    "ge",
    "lt",
    "le",
    "like",
    "notlike",
    "match",
    "notmatch",
    "contains",
    "notcontains",
    "in",
    "notin",
    "replace",
    "split",
)
COMPARISONS = tuple(f"-{prefix}{name}" for prefix in ("", "i", "c") for name in _WITH_CASE)
_OPERATOR_LEVELS: tuple[tuple[str, ...], ...] = (
    ("-and", "-or", "-xor"),
    ("-band", "-bor", "-bxor"),
    (
        *COMPARISONS,
        "-is",
        "-isnot",
        "-as",
        "-join",
        "-shl",
        "-shr",
    ),
    ("+", "-"),
    ("*", "/", "%"),
    ("-f",),
    ("..",),
)
_ASSIGNMENTS = ("+=", "-=", "*=", "/=", "%=", "=")
REDIRECT_PATTERN = re.compile(r"(\d|\*)?(>>|>)(&\d)?")
TYPE_PATTERN = re.compile(r"\[([A-Za-z_][\w.`]*(?:\[[\w.,\s]*\])?)\]")


_CHANGEABLE = (VariableReference, MemberExpression, IndexExpression, StaticMemberExpression)


class ExpressionParser(Scanner):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.separated = False  # commas separate arguments here instead of building arrays

    # Implemented by the parser of statements, which expressions contain
    def statements(self, end: str) -> StatementBlock:
        raise NotImplementedError

    def pipeline(self) -> PsNode:
        raise NotImplementedError

    def statement_value(self) -> PsNode:
        raise NotImplementedError

    def argument(self) -> PsNode:
        raise NotImplementedError

    def _with_parameters(
        self, parameters: tuple[ScriptParameter, ...], body: StatementBlock, start: int
    ) -> ScriptBlockLiteral:
        raise NotImplementedError

    def expression(self) -> PsNode:
        left = self.operation(0)
        self.blanks()
        for operator in _ASSIGNMENTS:
            if self.starts(operator) and not self.starts("=="):
                self.position += len(operator)
                self.blanks(newlines=True)
                return Assignment(operator, left, self.statement_value())
        redirect = REDIRECT_PATTERN.match(self.text, self.position)
        if redirect is not None:
            self.position = redirect.end()
            self.blanks()
            target = ValueLiteral(redirect[3]) if redirect[3] else self.argument()
            own = StreamRedirect(redirect[1] or "1", redirect[2], target)
            return RedirectedExpression(left, (own,))
        return left

    def operation(self, level: int) -> PsNode:
        if level == len(_OPERATOR_LEVELS):
            return self.listed()
        left = self.operation(level + 1)
        while True:
            saved = self.position
            self.blanks()
            operator = self._operator(_OPERATOR_LEVELS[level])
            if operator is None:
                self.position = saved
                return left
            self.blanks(newlines=True)
            left = BinaryExpression(operator, left, self.operation(level + 1))

    def listed(self) -> PsNode:
        """Values separated by commas are an array. Commas bind tighter than every operator."""
        items = [self.unary()]
        while not self.separated:
            saved = self.position
            self.blanks()
            if not self.take(","):
                self.position = saved
                break
            self.blanks(newlines=True)
            items.append(self.unary())
        return items[0] if len(items) == 1 else ArrayLiteral(tuple(items))

    def _operator(self, operators: tuple[str, ...]) -> str | None:
        for operator in operators:
            length = len(operator)
            if operator[0] == "-" and len(operator) > 1:
                if self.starts_word(operator):
                    self.position += length
                    return operator
            elif self.starts(operator):
                following = self.text[self.position + length : self.position + length + 1]
                if following == "=" or (operator in "+-" and following == operator):
                    continue
                if operator == "-" and following.isalpha():
                    continue
                self.position += length
                return operator
        return None

    def unary(self) -> PsNode:
        self.blanks()
        for operator in ("-not", "-bnot", "-join", "-split", "-isplit", "-csplit"):
            if self.starts_word(operator):
                self.position += len(operator)
                return UnaryExpression(operator, self.unary())
        if self.starts("++") or self.starts("--"):
            operator = self.peek(2)
            self.position += 2
            return IncrementExpression(operator, self.unary(), False)
        if self.peek() in ("!", "-", "+"):
            operator = self.peek()
            self.position += 1
            return UnaryExpression("-not" if operator == "!" else operator, self.unary())
        if self.take(","):
            return ArrayLiteral((self.unary(),))
        match = TYPE_PATTERN.match(self.text, self.position)
        if match is not None and not self.text.startswith("::", match.end()):
            self.position = match.end()
            self.blanks()
            if not self.at_end() and self.peek() not in ";|)},\n.":
                return CastExpression(match[1], self.unary())
            return self.postfix(TypeLiteral(match[1]))
        return self.postfix(self.primary())

    def primary(self) -> PsNode:
        saved, self.separated = self.separated, False
        try:
            return self._primary()
        finally:
            self.separated = saved

    def _primary(self) -> PsNode:
        c = self.peek()
        if self.starts('@"') or self.starts("@'") or c in ("'", '"'):
            return self.string()
        if self.take("@("):
            return ArrayExpression(self.statements(")"))
        if self.take("@{"):
            return self._hashtable()
        if self.take("$("):
            return SubExpression(self.statements(")"))
        if c == "$":
            variable = self.variable()
            if variable is None:
                raise ParseFault("Unexpected token '$' in expression or statement.")
            return variable
        if self.take("("):
            self.blanks(newlines=True)
            node = self.pipeline()
            self.blanks(newlines=True)
            self.expect(")")
            return Parenthesized(node)
        if self.take("{"):
            start = self.position
            return self._with_parameters((), self.statements("}"), start)
        match = TYPE_PATTERN.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
            return TypeLiteral(match[1])
        number = self.number()
        if number is not None:
            return number
        if self.at_end():
            raise IncompleteScript("An expression was expected after '('.")
        token = re.split(r"[\s;)}]", self.text[self.position :], maxsplit=1)[0] or c
        raise ParseFault(f"Unexpected token '{token}' in expression or statement.")

    def _hashtable(self) -> PsNode:
        pairs: list[tuple[PsNode, PsNode]] = []
        while True:
            self.separators()
            if self.take("}"):
                return HashtableLiteral(tuple(pairs))
            if self.at_end():
                raise IncompleteScript("The hash literal was incomplete.")
            word = re.compile(r"[A-Za-z_][\w-]*").match(self.text, self.position)
            key: PsNode
            if word is not None:
                self.position = word.end()
                key = ValueLiteral(word[0])
            else:
                key = self.unary()
            self.blanks()
            self.expect("=")
            self.blanks(newlines=True)
            pairs.append((key, self.statement_value()))

    def postfix(self, node: PsNode) -> PsNode:
        while True:
            if self.starts("::"):
                self.position += 2
                name = self._member_name()
                node = StaticMemberExpression(
                    node, name, self._call_arguments() if self.take("(") else None
                )
            elif self.peek() == "." and (
                self.text[self.position + 1 : self.position + 2].isalpha()
                or self.text[self.position + 1 : self.position + 2] in "_$'\""
            ):
                self.position += 1
                member = self._member_name()
                node = MemberExpression(
                    node, member, self._call_arguments() if self.take("(") else None
                )
            elif self.peek() == "[" and (
                not isinstance(node, ValueLiteral) or isinstance(node.value, str)
            ):
                self.position += 1
                self.blanks(newlines=True)
                index = self.pipeline()
                self.blanks(newlines=True)
                self.expect("]")
                node = IndexExpression(node, index)
            elif self.starts("++") or self.starts("--"):
                operator = self.peek(2)
                if not isinstance(node, _CHANGEABLE):
                    return node
                self.position += 2
                return IncrementExpression(operator, node, True)
            else:
                return node

    def _member_name(self) -> PsNode:
        if self.peek() == "$":
            variable = self.variable()
            if variable is not None:
                return variable
        if self.peek() in "'\"":
            return self.string()
        match = re.compile(r"\w+").match(self.text, self.position)
        if match is None:
            raise ParseFault("Missing property name after reference operator.")
        self.position = match.end()
        return ValueLiteral(match[0])

    def _one_of_many(self) -> PsNode:
        saved, self.separated = self.separated, True
        try:
            return self.operation(0)
        finally:
            self.separated = saved

    def _call_arguments(self) -> tuple[PsNode, ...]:
        out: list[PsNode] = []
        while True:
            self.blanks(newlines=True)
            if self.take(")"):
                return tuple(out)
            out.append(self._one_of_many())
            self.blanks(newlines=True)
            if not self.take(",") and not self.starts(")"):
                raise ParseFault("Missing ')' in method call.")
