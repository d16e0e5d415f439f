"""awk's grammar. A node is a tuple that begins with its kind."""

from __future__ import annotations

import re
from typing import Any

from transom.kit.caching import text_cache
from transom.userland.posix.commands.expressions import extended_expression
from transom.userland.posix.escapes import unescape
from transom.userland.preemption import check_slice

Node = tuple[Any, ...]
Rule = tuple[Node | None, Node | None, list[Node]]

_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+|\\\n|#[^\n]*)|(?P<newline>\n)|(?P<number>\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)"
    r'|(?P<string>"(?:[^"\\]|\\.)*")|(?P<name>[A-Za-z_]\w*)'
    r"|(?P<op>\*\*|\+\+|--|\+=|-=|\*=|/=|%=|\^=|==|<=|>=|!=|!~|&&|\|\||>>|[-+*/%^!<>|?:~$=,;(){}\[\]])"
)
_BEFORE_VALUE = frozenset(
    (
        "",
        "(",
        ",",
        "{",
        "}",
        ";",
        "\n",
        "!",
        "~",
        "!~",
        "&&",
        "||",
        "=",
        "==",
        "!=",
        "<",
        ">",
        "?",
        ":",
        "print",
    )
)


class AwkFault(Exception):
    """Its text follows `awk: `."""


def _tokens(text: str) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    position = 0
    previous = ""
    while position < len(text):
        check_slice()
        if text[position] == "/" and previous in _BEFORE_VALUE:
            end = position + 1
            while end < len(text) and text[end] != "/":
                end += 2 if text[end] == "\\" else 1
            out.append(("regex", text[position + 1 : end].replace("\\/", "/")))
            position = end + 1
            previous = "value"
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            raise AwkFault("cmd. line:1: Unexpected token")
        position = match.end()
        kind = match.lastgroup or ""
        if kind == "space":
            continue
        out.append((kind, match[0]))
        previous = (
            match[0]
            if kind in ("op", "newline") or match[0] in ("print", "printf", "return", "in")
            else "value"
        )
        if previous in ("printf", "return", "in"):
            previous = "print"
    out.append(("end", ""))
    return out


@text_cache(128, longest=4096)
def _parsed(text: str) -> list[Rule]:
    return _Parser(_tokens(text)).program()


def parse_program(text: str) -> list[Rule]:
    return _parsed(text)


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens = tokens
        self.position = 0
        self.no_redirect = 0  # in parentheses, `>` is a comparison

    @property
    def text(self) -> str:
        return self.tokens[self.position][1]

    @property
    def kind(self) -> str:
        return self.tokens[self.position][0]

    def take(self) -> str:
        check_slice()
        text = self.text
        self.position += 1
        return text

    def accept(self, text: str) -> bool:
        if self.text == text and self.kind in ("op", "name", "newline"):
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise AwkFault(
                "cmd. line:1: Unexpected token"
                if self.kind != "end"
                else "cmd. line:1: Unexpected end of program"
            )

    def skip(self) -> None:
        while self.kind == "newline" or (self.kind == "op" and self.text == ";"):
            self.position += 1

    def newlines(self) -> None:
        while self.kind == "newline":
            self.position += 1

    def program(self) -> list[Rule]:
        rules: list[Rule] = []
        self.skip()
        while self.kind != "end":
            rules.append(self.rule())
            self.skip()
        return rules

    def rule(self) -> Rule:
        first: Node | None = None
        last: Node | None = None
        if self.kind == "name" and self.text in ("BEGIN", "END"):
            first = ("begin",) if self.take() == "BEGIN" else ("end",)
        elif self.text != "{" or self.kind != "op":
            first = self.expression()
            if self.accept(","):
                last = self.expression()
        body: list[Node] = [("print", [], None)]
        if self.kind == "op" and self.text == "{":
            body = self.block()
        return first, last, body

    def block(self) -> list[Node]:
        self.expect("{")
        out: list[Node] = []
        self.skip()
        while not self.accept("}"):
            if self.kind == "end":
                raise AwkFault("cmd. line:1: Unexpected end of program")
            out.append(self.statement())
            self.skip()
        return out

    def body(self) -> list[Node]:
        self.newlines()
        if self.kind == "op" and self.text == "{":
            return self.block()
        if self.accept(";"):
            return []
        return [self.statement()]

    def statement(self) -> Node:
        word = self.text if self.kind == "name" else ""
        parse = _STATEMENTS.get(word)
        if parse is not None:
            self.take()
            return parse(self, word)
        if self.kind == "op" and self.text == "{":
            return ("block", self.block())
        return ("expression", self.expression())

    def print_statement(self, word: str) -> Node:
        arguments: list[Node] = []
        if self.kind not in ("end", "newline") and self.text not in (";", "}", ">", ">>", "|"):
            if self.text == "(" and self._grouped():
                self.take()
                self.no_redirect += 1
                arguments.append(self.expression())
                while self.accept(","):
                    arguments.append(self.expression())
                self.no_redirect -= 1
                self.expect(")")
            else:
                arguments.append(self.expression())
                while self.accept(","):
                    self.newlines()
                    arguments.append(self.expression())
        target: tuple[str, Node] | None = None
        if self.text in (">", ">>") and self.kind == "op":
            target = (self.take(), self.concatenation())
        return (word, arguments, target)

    def _grouped(self) -> bool:
        """Whether the parenthesis that opens here closes at the end of the statement."""
        depth = 0
        for index in range(self.position, len(self.tokens)):
            kind, text = self.tokens[index]
            if kind == "op" and text == "(":
                depth += 1
            elif kind == "op" and text == ")":
                depth -= 1
                if depth == 0:
                    following = self.tokens[index + 1]
                    return following[0] in ("newline", "end") or following[1] in (
                        ";",
                        "}",
                        ">",
                        ">>",
                        "|",
                    )
        return False

    def if_statement(self, word: str) -> Node:
        self.expect("(")
        condition = self.grouped_expression()
        then = self.body()
        saved = self.position
        self.skip()
        if self.kind == "name" and self.text == "else":
            self.take()
            return ("if", condition, then, self.body())
        self.position = saved
        return ("if", condition, then, [])

    def grouped_expression(self) -> Node:
        self.no_redirect += 1
        node = self.expression()
        self.no_redirect -= 1
        self.expect(")")
        return node

    def while_statement(self, word: str) -> Node:
        self.expect("(")
        condition = self.grouped_expression()
        return ("while", [], condition, [], self.body())

    def do_statement(self, word: str) -> Node:
        body = self.body()
        self.skip()
        self.expect("while")
        self.expect("(")
        return ("do", [], self.grouped_expression(), [], body)

    def for_statement(self, word: str) -> Node:
        self.expect("(")
        if (
            self.kind == "name"
            and self.tokens[self.position + 1][1] == "in"
            and self.tokens[self.position + 3][1] == ")"
        ):
            name = self.take()
            self.take()
            array = self.take()
            self.expect(")")
            return ("forin", name, array, self.body())
        self.no_redirect += 1
        start = [] if self.text == ";" else [("expression", self.expression())]
        self.expect(";")
        condition = None if self.text == ";" else self.expression()
        self.expect(";")
        step = [] if self.text == ")" else [("expression", self.expression())]
        self.no_redirect -= 1
        self.expect(")")
        return ("for", start, condition, step, self.body())

    def simple_statement(self, word: str) -> Node:
        return (word,)

    def exit_statement(self, word: str) -> Node:
        if self.kind in ("end", "newline") or self.text in (";", "}"):
            return ("exit", None)
        return ("exit", self.expression())

    def delete_statement(self, word: str) -> Node:
        name = self.take()
        return ("delete", name, self.subscript() if self.accept("[") else None)

    def subscript(self) -> list[Node]:
        self.no_redirect += 1
        out = [self.expression()]
        while self.accept(","):
            out.append(self.expression())
        self.no_redirect -= 1
        self.expect("]")
        return out

    # Expressions by precedence, loosest first
    def expression(self) -> Node:
        left = self.choice()
        if (
            self.kind == "op"
            and self.text in ("=", "+=", "-=", "*=", "/=", "%=", "^=")
            and left[0] in ("name", "field", "index")
        ):
            operator = self.take()
            return ("assign", operator, left, self.expression())
        return left

    def choice(self) -> Node:
        condition = self.either()
        if self.kind == "op" and self.accept("?"):
            first = self.expression()
            self.expect(":")
            return ("choice", condition, first, self.expression())
        return condition

    def either(self) -> Node:
        left = self.both()
        while self.kind == "op" and self.accept("||"):
            self.newlines()
            left = ("or", left, self.both())
        return left

    def both(self) -> Node:
        left = self.membership()
        while self.kind == "op" and self.accept("&&"):
            self.newlines()
            left = ("and", left, self.membership())
        return left

    def membership(self) -> Node:
        left = self.match()
        while self.kind == "name" and self.text == "in":
            self.take()
            left = ("in", list(left[1]) if left[0] == "group" else [left], self.take())
        return left

    def match(self) -> Node:
        left = self.comparison()
        while self.kind == "op" and self.text in ("~", "!~"):
            operator = self.take()
            left = ("match", operator, left, self.comparison())
        return left

    def comparison(self) -> Node:
        left = self.concatenation()
        allowed = (
            ("==", "!=", "<", "<=", ">=", ">")
            if self.no_redirect
            else ("==", "!=", "<", "<=", ">=")
        )
        if self.kind == "op" and self.text == ">" and not self.no_redirect and not self._printing():
            allowed = (*allowed, ">")
        if self.kind == "op" and self.text in allowed:
            operator = self.take()
            return ("compare", operator, left, self.concatenation())
        return left

    def _printing(self) -> bool:
        """Whether the current statement began with print."""
        for index in range(self.position, -1, -1):
            kind, text = self.tokens[index]
            if kind == "newline" or (kind == "op" and text in ("{", "}", ";")):
                return False
            if kind == "name" and text in ("print", "printf"):
                return True
        return False

    def concatenation(self) -> Node:
        left = self.sum()
        while (
            self.kind in ("number", "string", "regex")
            or (self.kind == "name" and self.text != "in")
            or (self.kind == "op" and self.text in ("$", "(", "!", "++", "--"))
        ):
            left = ("concatenate", left, self.sum())
        return left

    def sum(self) -> Node:
        left = self.product()
        while self.kind == "op" and self.text in ("+", "-"):
            operator = self.take()
            left = ("arithmetic", operator, left, self.product())
        return left

    def product(self) -> Node:
        left = self.unary()
        while self.kind == "op" and self.text in ("*", "/", "%"):
            operator = self.take()
            left = ("arithmetic", operator, left, self.unary())
        return left

    def unary(self) -> Node:
        if self.kind == "op" and self.text in ("!", "-", "+"):
            operator = self.take()
            return ({"!": "not", "-": "minus", "+": "plus"}[operator], self.unary())
        return self.power()

    def power(self) -> Node:
        left = self.postfix()
        if self.kind == "op" and self.text in ("^", "**"):
            self.take()
            return ("arithmetic", "^", left, self.unary())
        return left

    def postfix(self) -> Node:
        if self.kind == "op" and self.text in ("++", "--"):
            operator = self.take()
            return ("change", operator, self.primary(), False)
        node = self.primary()
        if (
            self.kind == "op"
            and self.text in ("++", "--")
            and node[0] in ("name", "field", "index")
        ):
            return ("change", self.take(), node, True)
        return node

    def primary(self) -> Node:
        kind, text = self.kind, self.take()
        if kind == "number":
            return ("number", float(text))
        if kind == "string":
            return ("string", unescape(text[1:-1]))
        if kind == "regex":
            return ("regex", extended_expression(text))
        if kind == "op" and text == "$":
            return ("field", self.postfix_operand())
        if kind == "op" and text == "(":
            self.no_redirect += 1
            node = self.expression()
            nodes = [node]
            while self.accept(","):
                nodes.append(self.expression())
            self.no_redirect -= 1
            self.expect(")")
            return node if len(nodes) == 1 else ("group", nodes)
        if kind == "name":
            if self.kind == "op" and self.text == "(" and text not in ("print", "printf"):
                self.take()
                arguments: list[Node] = []
                self.no_redirect += 1
                while self.text != ")":
                    arguments.append(self.expression())
                    if not self.accept(","):
                        break
                self.no_redirect -= 1
                self.expect(")")
                return ("call", text, arguments)
            if text == "length":
                return ("call", "length", [])
            if self.kind == "op" and self.accept("["):
                return ("index", text, self.subscript())
            return ("name", text)
        raise AwkFault(
            "cmd. line:1: Unexpected token"
            if kind != "end"
            else "cmd. line:1: Unexpected end of program"
        )

    def postfix_operand(self) -> Node:
        if self.kind == "op" and self.text in ("++", "--"):
            return self.postfix()
        return self.primary()


_STATEMENTS = {
    "print": _Parser.print_statement,
    "printf": _Parser.print_statement,
    "if": _Parser.if_statement,
    "while": _Parser.while_statement,
    "do": _Parser.do_statement,
    "for": _Parser.for_statement,
    "next": _Parser.simple_statement,
    "break": _Parser.simple_statement,
    "continue": _Parser.simple_statement,
    "exit": _Parser.exit_statement,
    "delete": _Parser.delete_statement,
}
