"""From the text of an expression to its tree. Limits on size and depth, and the error texts, are
those of cel-go.
"""

from __future__ import annotations

from collections.abc import Mapping

from transom.kit.cel.ast import (
    CallNode,
    ConstNode,
    ExprNode,
    IdentNode,
    ListNode,
    MapNode,
    SelectNode,
    StructNode,
)
from transom.kit.cel.errors import Issues
from transom.kit.cel.lexer import CelToken, bytes_value, text_value, tokenize
from transom.kit.cel.macros import Macro, MacroError
from transom.kit.cel.values import MAX_INT, MAX_UINT, MIN_INT, Uint

_MAX_SIZE = 100_000
_MAX_DEPTH = 250
_EXPRESSION = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, "
    "STRING, BYTES, IDENTIFIER}"
)
_RESERVED = frozenset(
    (
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    )
)
_RELATIONS = {
    "<": "_<_",
    "<=": "_<=_",
    ">": "_>_",
    ">=": "_>=_",
    "==": "_==_",
    "!=": "_!=_",
    "in": "@in",
}
_ADDITIVE = {"+": "_+_", "-": "_-_"}
_MULTIPLICATIVE = {"*": "_*_", "/": "_/_", "%": "_%_"}
_BINARY = frozenset((*_RELATIONS, *_ADDITIVE, *_MULTIPLICATIVE, "&&", "||"))
_Flat = list[ExprNode | CelToken]


class _SyntaxError(Exception):
    pass


class _TooDeepError(Exception):
    pass


def parse_expression(
    source: str, issues: Issues, macros: Mapping[tuple[str, int, bool], Macro]
) -> ExprNode | None:
    """The tree, or None if the text has errors (reported in the issues)."""
    if len(source) > _MAX_SIZE:
        issues.report(
            -1, f"expression code point size exceeds limit: size: {len(source)}, limit {_MAX_SIZE}"
        )
        return None
    parser = _Parser(source, issues, macros)
    try:
        node = parser.whole()
    except _SyntaxError:
        return None
    except (_TooDeepError, RecursionError):
        issues.report(-1, f"expression recursion limit exceeded: {_MAX_DEPTH}")
        return None
    return None if issues else node


class _Parser:
    def __init__(
        self, source: str, issues: Issues, macros: Mapping[tuple[str, int, bool], Macro]
    ) -> None:
        self._issues = issues
        self._macros = macros
        self._tokens = tokenize(source, issues)
        self._at = 0
        self._token = self._tokens[0]
        self._depth = 0

    def _advance(self) -> CelToken:
        token = self._token
        if token.kind != "EOF":
            self._at += 1
            self._token = self._tokens[self._at]
        return token

    def _fail(self, message: str, pos: int | None = None) -> _SyntaxError:
        self._issues.report(self._token.pos if pos is None else pos, f"Syntax error: {message}")
        return _SyntaxError()

    def _expect(self, kind: str) -> CelToken:
        if self._token.kind == kind:
            return self._advance()
        following = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        if self._token.kind == "EOF":
            raise self._fail(f"missing '{kind}' at '<EOF>'")
        if following.kind == kind:
            raise self._fail(f"extraneous input '{self._token.text}' expecting '{kind}'")
        raise self._fail(f"mismatched input '{self._token.text}' expecting '{kind}'")

    def whole(self) -> ExprNode:
        node = self._expr()
        if self._token.kind != "EOF":
            last = self._tokens[self._at + 1].kind == "EOF"
            word = "extraneous" if last else "mismatched"
            raise self._fail(f"{word} input '{self._token.text}' expecting <EOF>")
        return node

    def _expr(self) -> ExprNode:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _TooDeepError
        node = self._binary()
        if self._token.kind == "?":
            pos = self._advance().pos
            first = self._binary()
            self._expect(":")
            node = CallNode(pos, "_?_:_", [node, first, self._expr()])
        self._depth -= 1
        return node

    def _binary(self) -> ExprNode:
        flat: _Flat = [self._operand()]
        while self._token.kind in _BINARY:
            flat.append(self._advance())
            flat.append(self._operand())
        return flat[0] if len(flat) == 1 else _logical(flat, "||")  # type: ignore[return-value]

    def _operand(self) -> ExprNode:
        """Signs, a primary expression, and what is selected, called or indexed on it."""
        token = self._token
        signs: list[CelToken] = []
        number_next = self._tokens[min(self._at + 1, len(self._tokens) - 1)].kind in (
            "NUM_INT",
            "NUM_FLOAT",
        )
        if token.kind == "!" or (token.kind == "-" and not number_next):
            kind = token.kind
            while self._token.kind == kind:
                following = self._tokens[min(self._at + 1, len(self._tokens) - 1)].kind
                if kind == "-" and signs and following in ("NUM_INT", "NUM_FLOAT"):
                    break
                signs.append(self._advance())
        node = self._members(self._primary())
        if len(signs) % 2:
            node = CallNode(signs[0].pos, "!_" if signs[0].kind == "!" else "-_", [node])
        return node

    def _members(self, node: ExprNode) -> ExprNode:
        count = 0
        while self._token.kind in (".", "["):
            count += 1
            if count >= _MAX_DEPTH:
                raise _TooDeepError
            opening = self._advance()
            optional = self._token.kind == "?"
            if optional:
                self._advance()
            if opening.kind == "[":
                index = self._expr()
                self._expect("]")
                node = CallNode(opening.pos, "_[?_]" if optional else "_[_]", [node, index])
                continue
            if self._token.kind != "IDENTIFIER":
                shown = "" if self._token.kind == "EOF" else self._token.text
                raise self._fail(f"no viable alternative at input '.{shown}'")
            name = self._advance()
            if self._token.kind == "(" and not optional:
                pos = self._advance().pos
                node = self._call(pos, name.text, self._arguments(), node)
            elif optional:
                node = CallNode(opening.pos, "_?._", [node, ConstNode(name.pos, name.text)])
            else:
                node = SelectNode(opening.pos, node, name.text)
        return node

    def _arguments(self) -> list[ExprNode]:
        out: list[ExprNode] = []
        if self._token.kind == "EOF":  # no argument has to follow
            either = _EXPRESSION.replace("'(', ", "'(', ')', ", 1)
            raise self._fail(f"mismatched input '<EOF>' expecting {either}")
        if self._token.kind != ")":
            out.append(self._expr())
            while self._token.kind == ",":
                self._advance()
                out.append(self._expr())
        self._expect(")")
        return out

    def _primary(self) -> ExprNode:
        token = self._token
        kind = token.kind
        if kind in ("IDENTIFIER", "."):
            return self._name()
        if kind in ("NUM_INT", "NUM_FLOAT", "NUM_UINT", "-"):
            return self._number()
        if kind == "(":
            self._advance()
            node = self._expr()
            self._expect(")")
            return node
        if kind == "[":
            return self._list()
        if kind == "{":
            return self._map()
        if kind in ("STRING", "BYTES"):
            self._advance()
            return ConstNode(
                token.pos, text_value(token.text) if kind == "STRING" else bytes_value(token.text)
            )
        if kind in ("true", "false", "null"):
            self._advance()
            return ConstNode(token.pos, None if kind == "null" else kind == "true")
        raise self._fail(f"mismatched input '{token.text}' expecting {_EXPRESSION}")

    def _number(self) -> ExprNode:
        start = self._token.pos
        sign = ""
        if self._token.kind == "-":
            sign = "-"
            self._advance()
        token = self._advance()
        text = token.text
        if token.kind == "NUM_FLOAT":
            return ConstNode(start, float(sign + text))
        if token.kind == "NUM_UINT":
            unsigned = _integer(text[:-1])
            if unsigned > MAX_UINT:
                self._issues.report(start, "invalid uint literal")
                unsigned = 0
            return ConstNode(start, Uint(unsigned))
        if token.kind != "NUM_INT":
            raise self._fail(f"mismatched input '{text}' expecting {_EXPRESSION}", token.pos)
        number = -_integer(text) if sign else _integer(text)
        if not MIN_INT <= number <= MAX_INT:
            self._issues.report(start, "invalid int literal")
            number = 0
        return ConstNode(start, number)

    def _name(self) -> ExprNode:
        first = self._token
        dotted = ""
        if first.kind == ".":
            self._advance()
            dotted = "."
            if self._token.kind != "IDENTIFIER":
                shown = "" if self._token.kind == "EOF" else self._token.text
                raise self._fail(f"no viable alternative at input '.{shown}'")
        name = self._advance()
        if self._token.kind == "(":
            pos = self._advance().pos
            return self._call(pos, dotted + name.text, self._arguments(), None)
        struct = self._struct_name(dotted + name.text)
        if struct is not None:
            return self._struct(struct)
        if name.text in _RESERVED:
            self._issues.report(name.pos, f"reserved identifier: {name.text}")
        return IdentNode(name.pos, dotted + name.text)

    def _struct_name(self, first: str) -> str | None:
        """`a.b.C` if the dotted name continues up to a `{`."""
        at, parts = self._at, [first]
        while self._tokens[at].kind == "." and self._tokens[at + 1].kind == "IDENTIFIER":
            parts.append(self._tokens[at + 1].text)
            at += 2
        if self._tokens[at].kind != "{":
            return None
        self._at = at
        self._token = self._tokens[at]
        return ".".join(parts)

    def _struct(self, name: str) -> ExprNode:
        pos = self._expect("{").pos
        fields: list[tuple[str, ExprNode, bool, int]] = []
        while self._token.kind != "}":
            optional = self._token.kind == "?"
            if optional:
                self._advance()
            if self._token.kind != "IDENTIFIER":
                raise self._fail(
                    f"mismatched input '{self._token.text}' expecting {{'}}', ',', '?', "
                    f"IDENTIFIER, ESC_IDENTIFIER}}"
                )
            field = self._advance()
            colon = self._expect(":").pos
            fields.append((field.text, self._expr(), optional, colon))
            if self._token.kind != ",":
                break
            self._advance()
        self._expect("}")
        return StructNode(pos, name, fields)

    def _list(self) -> ExprNode:
        pos = self._advance().pos
        items: list[ExprNode] = []
        optional: set[int] = set()
        while self._token.kind != "]":
            if self._token.kind == "?":
                self._advance()
                optional.add(len(items))
            items.append(self._expr())
            if self._token.kind != ",":
                break
            self._advance()
        self._expect("]")
        return ListNode(pos, items, frozenset(optional))

    def _map(self) -> ExprNode:
        pos = self._advance().pos
        entries: list[tuple[ExprNode, ExprNode, bool]] = []
        while self._token.kind != "}":
            optional = self._token.kind == "?"
            if optional:
                self._advance()
            key = self._expr()
            self._expect(":")
            entries.append((key, self._expr(), optional))
            if self._token.kind != ",":
                break
            self._advance()
        self._expect("}")
        return MapNode(pos, entries)

    def _call(self, pos: int, name: str, args: list[ExprNode], target: ExprNode | None) -> ExprNode:
        macro = self._macros.get((name, len(args), target is not None))
        if macro is not None:
            try:
                expanded = macro(pos, target, args)
            except MacroError as error:
                self._issues.report(error.pos, error.message)
                return ConstNode(pos, None)
            if expanded is not None:
                return expanded
        return CallNode(pos, name, args, target)


def _integer(text: str) -> int:
    if text.startswith("0x"):
        return int(text[2:], 16)
    return int(text) if len(text) <= 30 else MAX_UINT + 1


def _logical(flat: _Flat, operator: str) -> ExprNode:
    terms: list[_Flat] = [[]]
    positions: list[int] = []
    for part in flat:
        if isinstance(part, CelToken) and part.kind == operator:
            positions.append(part.pos)
            terms.append([])
        else:
            terms[-1].append(part)
    inner = _and if operator == "||" else _relation
    nodes = [inner(term) for term in terms]
    if len(nodes) == 1:
        return nodes[0]
    return _balanced(nodes, positions, f"_{operator}_", 0, len(positions) - 1)


def _and(flat: _Flat) -> ExprNode:
    return flat[0] if len(flat) == 1 else _logical(flat, "&&")  # type: ignore[return-value]


def _balanced(
    nodes: list[ExprNode], positions: list[int], function: str, low: int, high: int
) -> ExprNode:
    middle = (low + high + 1) // 2
    left = (
        nodes[middle] if middle == low else _balanced(nodes, positions, function, low, middle - 1)
    )
    right = (
        nodes[middle + 1]
        if middle == high
        else _balanced(nodes, positions, function, middle + 1, high)
    )
    return CallNode(positions[middle], function, [left, right])


def _relation(flat: _Flat) -> ExprNode:
    return _left(
        flat,
        _RELATIONS,
        lambda part: _left(part, _ADDITIVE, lambda p: _left(p, _MULTIPLICATIVE, _single)),
    )


def _single(flat: _Flat) -> ExprNode:
    return flat[0]  # type: ignore[return-value]


def _left(flat: _Flat, operators: Mapping[str, str], inner: object) -> ExprNode:
    if len(flat) == 1:
        return flat[0]  # type: ignore[return-value]
    node: ExprNode | None = None
    pending: CelToken | None = None
    part: _Flat = []
    count = 0
    for item in [*flat, None]:
        if item is None or (isinstance(item, CelToken) and item.kind in operators):
            operand = inner(part)  # type: ignore[operator]
            node = (
                operand
                if node is None or pending is None
                else CallNode(pending.pos, operators[pending.kind], [node, operand])
            )
            count += 1
            if count > _MAX_DEPTH:
                raise _TooDeepError
            pending, part = item, []
        else:
            part.append(item)
    assert node is not None
    return node
