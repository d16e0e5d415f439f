"""PowerShell's grammar, as far as scripts in manifests go."""

from __future__ import annotations

import re
from functools import lru_cache

from transom.runtime.sim.programs.powershell.lexer import IncompleteScript, Node, ParseFault, Scanner

_OPERATOR_LEVELS: tuple[tuple[str, ...], ...] = (
    ("-and", "-or", "-xor"),
    ("-band", "-bor", "-bxor"),
    (
        "-eq", "-ne", "-gt", "-ge", "-lt", "-le", "-like", "-notlike", "-match", "-notmatch", "-contains", "-notcontains",
        "-in", "-notin", "-is", "-isnot", "-as", "-replace", "-split", "-join", "-ceq", "-cne", "-clike", "-cmatch", "-ieq",
        "-ine", "-ilike", "-imatch", "-creplace", "-ireplace",
    ),
    ("+", "-"),
    ("*", "/", "%"),
    ("-f",),
    ("..",),
)  # fmt: skip
_ASSIGNMENTS = ("+=", "-=", "*=", "/=", "%=", "=")
_STATEMENT_ENDS = frozenset(";|)}\n&")
_REDIRECT = re.compile(r"(\d|\*)?(>>|>)(&\d)?")
_TYPE = re.compile(r"\[([A-Za-z_][\w.`]*(?:\[[\w.,\s]*\])?)\]")
_PARAMETER = re.compile(r"-([A-Za-z_]\w*)(:)?")


@lru_cache(maxsize=256)
def parse(text: str) -> Node:
    """A whole script. Raises ParseFault."""
    parser = _Parser(text)
    return parser.statements("")


class _Parser(Scanner):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.parse_block = _Parser._nested
        self.separated = False  # commas separate here: they make no arrays

    @staticmethod
    def _nested(scanner: Scanner) -> Node:
        """`$( ... )` within a string: what stands after the parenthesis, up to and with the closing one."""
        inner = _Parser(scanner.text)
        inner.position = scanner.position
        block = inner.statements(")")
        scanner.position = inner.position
        return block

    # Statements
    def statements(self, end: str) -> Node:
        """Up to `end`, which is taken; "" is the end of the text."""
        out: list[Node] = []
        while True:
            self.separators()
            if end and self.take(end):
                return ("block", tuple(out))
            if self.at_end():
                if end:
                    raise IncompleteScript(f"Missing closing '{end}' in statement block or type definition.")
                return ("block", tuple(out))
            if self.peek() in ")}":
                raise ParseFault(f"Unexpected token '{self.peek()}' in expression or statement.")
            out.append(self.statement())

    def braces(self) -> Node:
        self.blanks(newlines=True)
        self.expect("{")
        return self.statements("}")

    def condition(self) -> Node:
        self.blanks(newlines=True)
        self.expect("(")
        self.blanks(newlines=True)
        node = self.pipeline()
        self.blanks(newlines=True)
        self.expect(")")
        return node

    def statement(self) -> Node:
        for word, method in _KEYWORDS.items():
            if self.starts_word(word):
                saved = self.position
                self.position += len(word)
                node = method(self, word)
                if node is not None:
                    return node
                self.position = saved
        return self.chain()

    def chain(self) -> Node:
        """Pipelines joined by && and ||."""
        left = self.pipeline()
        while True:
            self.blanks()
            operator = self.peek(2)
            if operator not in ("&&", "||"):
                break
            self.position += 2
            self.blanks(newlines=True)
            left = ("chain", operator, left, self.pipeline())
        self._end_of_statement()
        return left

    def _end_of_statement(self) -> None:
        self.blanks()
        if not self.at_end() and self.peek() not in ";\n)}":
            if self.peek() == "&":  # a background job
                self.position += 1
                return
            token = re.split(r"[\s;)}]", self.text[self.position :], maxsplit=1)[0] or self.peek()
            raise ParseFault(f"Unexpected token '{token}' in expression or statement.")

    def if_(self, word: str) -> Node:
        branches = [(self.condition(), self.braces())]
        otherwise: Node | None = None
        while True:
            saved = self.position
            self.blanks(newlines=True)
            if self.starts_word("elseif"):
                self.position += 6
                branches.append((self.condition(), self.braces()))
                continue
            if self.starts_word("else"):
                self.position += 4
                otherwise = self.braces()
            else:
                self.position = saved
            return ("if", tuple(branches), otherwise)

    def while_(self, word: str) -> Node:
        return ("while", self.condition(), self.braces(), False)

    def do(self, word: str) -> Node:
        body = self.braces()
        self.blanks(newlines=True)
        until = self.starts_word("until")
        if not until and not self.starts_word("while"):
            raise ParseFault("Missing while or until keyword in do loop.")
        self.position += 5
        return ("do", self.condition(), body, until)

    def for_(self, word: str) -> Node:
        self.blanks()
        self.expect("(")
        parts: list[Node | None] = []
        for end in (";", ";", ")"):
            self.blanks(newlines=True)
            parts.append(None if self.starts(end) else self.pipeline())
            self.blanks(newlines=True)
            self.expect(end)
        return ("for", *parts, self.braces())

    def foreach(self, word: str) -> Node | None:
        self.blanks()
        if not self.take("("):
            return None  # the alias of ForEach-Object
        self.blanks(newlines=True)
        variable = self.variable()
        self.blanks()
        if variable is None or not self.starts_word("in"):
            raise ParseFault("Missing 'in' after variable in foreach loop.")
        self.position += 2
        self.blanks(newlines=True)
        items = self.pipeline()
        self.blanks(newlines=True)
        self.expect(")")
        return ("foreach", variable[1], items, self.braces())

    def switch(self, word: str) -> Node:
        mode = ""
        self.blanks()
        while self.take("-"):
            for name in ("wildcard", "regex", "exact", "casesensitive"):
                if self.starts_word(name):
                    self.position += len(name)
                    mode = name
            self.blanks()
        subject = self.condition()
        self.blanks(newlines=True)
        self.expect("{")
        branches: list[tuple[Node | None, Node]] = []
        while True:
            self.separators()
            if self.take("}"):
                return ("switch", mode, subject, tuple(branches))
            if self.starts_word("default"):
                self.position += 7
                branches.append((None, self.braces()))
            else:
                value = self.argument()
                branches.append((value, self.braces()))

    def try_(self, word: str) -> Node:
        body = self.braces()
        handler: Node | None = None
        finally_: Node | None = None
        while True:
            saved = self.position
            self.blanks(newlines=True)
            if self.starts_word("catch"):
                self.position += 5
                self.blanks(newlines=True)
                while (match := _TYPE.match(self.text, self.position)) is not None:
                    self.position = match.end()
                    self.blanks()
                    self.take(",")
                    self.blanks(newlines=True)
                caught = self.braces()
                handler = handler or caught
            elif self.starts_word("finally"):
                self.position += 7
                finally_ = self.braces()
            else:
                self.position = saved
                return ("try", body, handler, finally_)

    def function(self, word: str) -> Node:
        self.blanks()
        match = re.compile(r"[\w:-]+").match(self.text, self.position)
        if match is None:
            raise ParseFault("Missing name after function keyword.")
        self.position = match.end()
        self.blanks()
        parameters: tuple[tuple[str, Node | None], ...] = ()
        if self.take("("):
            parameters = self._parameters()
        body = self.braces()
        return ("function", match[0], self._with_parameters(parameters, body))

    def _parameters(self) -> tuple[tuple[str, Node | None], ...]:
        out: list[tuple[str, Node | None]] = []
        while True:
            self.blanks(newlines=True)
            while True:
                attribute = re.compile(r"\[[^\]]*(?:\[\])?\]").match(self.text, self.position)
                if attribute is None:
                    break
                self.position = attribute.end()
                self.blanks(newlines=True)
            if self.take(")"):
                return tuple(out)
            variable = self.variable()
            if variable is None:
                raise ParseFault("Missing ')' in function parameter list.")
            default: Node | None = None
            self.blanks(newlines=True)
            if self.take("="):
                self.blanks(newlines=True)
                default = self._one_of_many()
            out.append((variable[1], default))
            self.blanks(newlines=True)
            self.take(",")

    def _with_parameters(self, parameters: tuple[tuple[str, Node | None], ...], body: Node) -> Node:
        """A script block's own `param( )` counts too."""
        statements = body[1]
        if statements and statements[0][0] == "param":
            return ("script", statements[0][1], ("block", statements[1:]))
        return ("script", parameters, body)

    def param(self, word: str) -> Node | None:
        self.blanks(newlines=True)
        return ("param", self._parameters()) if self.take("(") else None

    def jump(self, word: str) -> Node | None:
        self.blanks()
        if self.at_end() or self.peek() in ";\n)}":
            return (word, None)
        return (word, self.pipeline())

    def plain_jump(self, word: str) -> Node:
        return (word,)

    # Pipelines
    def pipeline(self) -> Node:
        first = self.element()
        if first[0] == "assign":
            return first
        stages = [first]
        while True:
            self.blanks()
            if self.peek() != "|" or self.starts("||"):
                break
            self.position += 1
            self.blanks(newlines=True)
            stages.append(self.element())
        return ("pipeline", tuple(stages)) if len(stages) > 1 else first

    def element(self) -> Node:
        self.blanks()
        c = self.peek()
        if c in ("&", ".") and self.text[self.position + 1 : self.position + 2] in (" ", "(", "{", "$", '"', "'"):
            self.position += 1
            self.blanks()
            return self.command(self.argument(), c)
        if self._begins_expression(c):
            return self.expression()
        match = re.compile(r"[^\s;|&(){},\"'`$<>]+").match(self.text, self.position)
        if match is None:
            raise ParseFault(
                f"Unexpected token '{c}' in expression or statement." if c else "An expression was expected after '('."
            )
        name_parts = self.bare_word()
        return self.command(name_parts[0] if len(name_parts) == 1 else ("text", name_parts), "")

    def _begins_expression(self, c: str) -> bool:
        if not c:
            return False
        if c in "$\"'(@[{!+" or c.isdigit():
            return True
        return (
            c == "-"
            and re.match(r"-(\d|\(|\$|-|not\b|split\b|join\b|bnot\b)", self.text[self.position :], re.IGNORECASE) is not None
        )

    def command(self, name: Node, operator: str) -> Node:
        arguments: list[Node] = []
        redirects: list[Node] = []
        while True:
            self.blanks()
            c = self.peek()
            if not c or c in _STATEMENT_ENDS or self.starts("&&"):
                break
            match = _REDIRECT.match(self.text, self.position)
            if match is not None:
                self.position = match.end()
                self.blanks()
                target: Node = ("value", match[3]) if match[3] else self.argument()
                redirects.append(("redirect", match[1] or "1", match[2], target))
                continue
            parameter = _PARAMETER.match(self.text, self.position)
            if parameter is not None and not re.match(r"[\w./\\:]", self.text[parameter.end() : parameter.end() + 1] or " "):
                self.position = parameter.end()
                if parameter[2]:
                    self.blanks()
                    arguments.append(("named", parameter[1], self.argument()))
                else:
                    arguments.append(("parameter", parameter[1]))
                continue
            arguments.append(self.argument())
        return ("command", name, tuple(arguments), tuple(redirects), operator)

    def argument(self) -> Node:
        """One argument, or several with commas between them: an array."""
        items = [self._single_argument()]
        while True:
            saved = self.position
            self.blanks()
            if not self.take(","):
                self.position = saved
                break
            self.blanks(newlines=True)
            items.append(self._single_argument())
        return items[0] if len(items) == 1 else ("array", tuple(items))

    def _single_argument(self) -> Node:
        c = self.peek()
        if (
            c in "({\"'["
            or self.starts("@(")
            or self.starts("@{")
            or self.starts('@"')
            or self.starts("@'")
            or self.starts("$(")
        ):
            if c == "[" and not _TYPE.match(self.text, self.position):
                return self._bare()
            node = self.postfix(self.primary())
            if c in "\"'" and not self.at_end() and self.peek() not in " \t\r\n;|)},&":
                rest = self.bare_word()
                return ("text", [node, *rest]) if rest else node
            return node
        if c == "$":
            saved = self.position
            variable = self.variable()
            if variable is not None:
                node = self.postfix(variable)
                if self.at_end() or self.peek() in " \t\r\n;|)},&":
                    return node
                self.position = saved
        return self._bare()

    def _bare(self) -> Node:
        saved = self.position
        number = self.number()
        if number is not None and (self.at_end() or self.peek() in " \t\r\n;|)},&"):
            return number
        self.position = saved
        parts = self.bare_word()
        if not parts:
            token = self.peek()
            raise ParseFault(f"Unexpected token '{token}' in expression or statement.")
        return parts[0] if len(parts) == 1 else ("text", parts)

    # Expressions
    def expression(self) -> Node:
        left = self.operation(0)
        self.blanks()
        for operator in _ASSIGNMENTS:
            if self.starts(operator) and not self.starts("=="):
                self.position += len(operator)
                self.blanks(newlines=True)
                return ("assign", operator, left, self.statement_value())
        redirect = _REDIRECT.match(self.text, self.position)
        if redirect is not None:
            self.position = redirect.end()
            self.blanks()
            target: Node = ("value", redirect[3]) if redirect[3] else self.argument()
            return ("redirected", left, (("redirect", redirect[1] or "1", redirect[2], target),))
        return left

    def statement_value(self) -> Node:
        """What stands behind an equals sign: any statement."""
        for word in ("if", "foreach", "switch", "try", "for", "while", "do"):
            if self.starts_word(word):
                self.position += len(word)
                node = _KEYWORDS[word](self, word)
                if node is not None:
                    return ("collected", node)
        return self.pipeline()

    def operation(self, level: int) -> Node:
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
            left = ("operator", operator, left, self.operation(level + 1))

    def listed(self) -> Node:
        """Values with commas between them: an array. Commas bind tighter than every operator."""
        items = [self.unary()]
        while not self.separated:
            saved = self.position
            self.blanks()
            if not self.take(","):
                self.position = saved
                break
            self.blanks(newlines=True)
            items.append(self.unary())
        return items[0] if len(items) == 1 else ("array", tuple(items))

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

    def unary(self) -> Node:
        self.blanks()
        for operator in ("-not", "-bnot", "-join", "-split"):
            if self.starts_word(operator):
                self.position += len(operator)
                return ("unary", operator, self.unary())
        if self.starts("++") or self.starts("--"):
            operator = self.peek(2)
            self.position += 2
            return ("change", operator, self.unary(), False)
        if self.peek() in ("!", "-", "+"):
            operator = self.peek()
            self.position += 1
            return ("unary", "-not" if operator == "!" else operator, self.unary())
        if self.take(","):
            return ("array", (self.unary(),))
        match = _TYPE.match(self.text, self.position)
        if match is not None and not self.text.startswith("::", match.end()):
            self.position = match.end()
            self.blanks()
            if not self.at_end() and self.peek() not in ";|)},\n.":
                return ("cast", match[1], self.unary())
            return self.postfix(("type", match[1]))
        return self.postfix(self.primary())

    def primary(self) -> Node:
        saved, self.separated = self.separated, False
        try:
            return self._primary()
        finally:
            self.separated = saved

    def _primary(self) -> Node:
        c = self.peek()
        if self.starts('@"') or self.starts("@'") or c in ("'", '"'):
            return self.string()
        if self.take("@("):
            return ("list", self.statements(")"))
        if self.take("@{"):
            return self._hashtable()
        if self.take("$("):
            return ("subexpression", self.statements(")"))
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
            return ("group", node)
        if self.take("{"):
            return ("scriptblock", self._with_parameters((), self.statements("}")))
        match = _TYPE.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
            return ("type", match[1])
        number = self.number()
        if number is not None:
            return number
        if self.at_end():
            raise IncompleteScript("An expression was expected after '('.")
        token = re.split(r"[\s;)}]", self.text[self.position :], maxsplit=1)[0] or c
        raise ParseFault(f"Unexpected token '{token}' in expression or statement.")

    def _hashtable(self) -> Node:
        pairs: list[tuple[Node, Node]] = []
        while True:
            self.separators()
            if self.take("}"):
                return ("hashtable", tuple(pairs))
            if self.at_end():
                raise IncompleteScript("The hash literal was incomplete.")
            word = re.compile(r"[A-Za-z_][\w-]*").match(self.text, self.position)
            key: Node
            if word is not None:
                self.position = word.end()
                key = ("value", word[0])
            else:
                key = self.unary()
            self.blanks()
            self.expect("=")
            self.blanks(newlines=True)
            pairs.append((key, self.statement_value()))

    def postfix(self, node: Node) -> Node:
        while True:
            if self.starts("::"):
                self.position += 2
                name = self._member_name()
                node = ("static", node, name, self._call_arguments() if self.take("(") else None)
            elif self.peek() == "." and (
                self.text[self.position + 1 : self.position + 2].isalpha()
                or self.text[self.position + 1 : self.position + 2] in "_$'\""
            ):
                self.position += 1
                member = self._member_name()
                node = ("member", node, member, self._call_arguments() if self.take("(") else None)
            elif self.peek() == "[" and node[0] != "value":
                self.position += 1
                self.blanks(newlines=True)
                index = self.pipeline()
                self.blanks(newlines=True)
                self.expect("]")
                node = ("index", node, index)
            elif self.starts("++") or self.starts("--"):
                operator = self.peek(2)
                if node[0] not in ("variable", "member", "index"):
                    return node
                self.position += 2
                return ("change", operator, node, True)
            else:
                return node

    def _member_name(self) -> Node:
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
        return ("value", match[0])

    def _one_of_many(self) -> Node:
        saved, self.separated = self.separated, True
        try:
            return self.operation(0)
        finally:
            self.separated = saved

    def _call_arguments(self) -> tuple[Node, ...]:
        out: list[Node] = []
        while True:
            self.blanks(newlines=True)
            if self.take(")"):
                return tuple(out)
            out.append(self._one_of_many())
            self.blanks(newlines=True)
            if not self.take(",") and not self.starts(")"):
                raise ParseFault("Missing ')' in method call.")


_KEYWORDS = {
    "if": _Parser.if_,
    "while": _Parser.while_,
    "do": _Parser.do,
    "for": _Parser.for_,
    "foreach": _Parser.foreach,
    "switch": _Parser.switch,
    "try": _Parser.try_,
    "function": _Parser.function,
    "filter": _Parser.function,
    "param": _Parser.param,
    "return": _Parser.jump,
    "exit": _Parser.jump,
    "throw": _Parser.jump,
    "break": _Parser.plain_jump,
    "continue": _Parser.plain_jump,
}
