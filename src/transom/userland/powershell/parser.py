"""PowerShell's grammar, as far as scripts in manifests need it."""

from __future__ import annotations

import re
from collections.abc import Callable

from transom.kit.caching import text_cache
from transom.userland.powershell.expressions import REDIRECT_PATTERN, TYPE_PATTERN, ExpressionParser
from transom.userland.powershell.extents import SourceExtent
from transom.userland.powershell.lexer import IncompleteScript, ParseFault, Scanner
from transom.userland.powershell.parameter_attributes import (
    ATTRIBUTE_NAME,
    declared_parameter,
)
from transom.userland.powershell.tree import (
    ArrayLiteral,
    Assignment,
    BreakStatement,
    CatchClause,
    ClassMember,
    ClassStatement,
    CommandNode,
    ContinueStatement,
    DoStatement,
    EnumStatement,
    ExitStatement,
    ExpandableString,
    ForeachStatement,
    ForStatement,
    FunctionStatement,
    IfStatement,
    LabeledStatement,
    NamedArgument,
    NamedBlock,
    ParameterArgument,
    ParamStatement,
    PipelineChain,
    PipelineNode,
    PsArgument,
    PsNode,
    ReturnStatement,
    ScriptBlockLiteral,
    ScriptParameter,
    SplattedArgument,
    StatementBlock,
    StatementValue,
    StreamRedirect,
    SwitchStatement,
    ThrowStatement,
    TrapStatement,
    TryStatement,
    ValueLiteral,
    WhileStatement,
)

_STATEMENT_ENDS = frozenset(";|)}\n&")
# [string], [object[]], [Parameter(Mandatory = $true)]
_ATTRIBUTE = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]")
_LABEL = re.compile(r":([A-Za-z_]\w*)[ \t]+(?=(?:foreach|for|while|do|switch)\b)", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_]\w*")
_SPLATTED = re.compile(r"@([A-Za-z_]\w*)(?![\w.])")
_PARAMETER = re.compile(r"-([A-Za-z_]\w*)(:)?")


@text_cache(256, longest=4096)
def parse_powershell(text: str, chains: bool = True) -> StatementBlock:
    """A whole script. `chains`: with the operators && and || of PowerShell 7. Raises ParseFault."""
    parser = _Parser(text, chains)
    try:
        return parser.statements("")
    except ParseFault as fault:
        if not fault.token:
            fault.locate(text, parser.position)
        raise


def _joined(parts: list[PsNode]) -> PsNode:
    return parts[0] if len(parts) == 1 else ExpandableString(tuple(parts))


class _Parser(ExpressionParser):
    def __init__(self, text: str, chains: bool) -> None:
        super().__init__(text)
        self._chains = chains
        self.parse_block = self._nested

    def _nested(self, scanner: Scanner) -> StatementBlock:
        """`$( ... )` in a string: from after the opening parenthesis to the closing one."""
        inner = _Parser(scanner.text, self._chains)
        inner.position = scanner.position
        block = inner.statements(")")
        scanner.position = inner.position
        return block

    # Statements
    def statements(self, end: str) -> StatementBlock:
        """Statements up to `end`, which is consumed; "" is the end of the text."""
        out: list[PsNode] = []
        extents: list[SourceExtent] = []
        while True:
            self.separators()
            if end and self.take(end):
                return StatementBlock(tuple(out), tuple(extents))
            if self.at_end():
                if end:
                    raise IncompleteScript(
                        f"Missing closing '{end}' in statement block or type definition."
                    )
                return StatementBlock(tuple(out), tuple(extents))
            if self.peek() in ")}":
                raise ParseFault(f"Unexpected token '{self.peek()}' in expression or statement.")
            start = self.position
            out.append(self.statement())
            extents.append(self._extent(start))

    def _extent(self, start: int) -> SourceExtent:
        """From `start` to here, without the blanks that follow."""
        end = start + len(self.text[start : self.position].rstrip())
        return SourceExtent(self.text, start, end)

    def braces(self) -> StatementBlock:
        self.blanks(newlines=True)
        self.expect("{")
        return self.statements("}")

    def condition(self, keyword: str) -> PsNode:
        self.blanks(newlines=True)
        self.expect("(")
        self.blanks(newlines=True)
        node = self.pipeline()
        self.blanks(newlines=True)
        if not self.at_end() and not self.starts(")"):
            raise ParseFault(
                f"Missing closing ')' after expression in '{keyword}' statement.",
                "MissingEndParenthesisAfterStatement",
            )
        self.expect(")")
        return node

    def statement(self) -> PsNode:
        label = _LABEL.match(self.text, self.position)
        if label is not None:
            self.position = label.end()
            return LabeledStatement(label[1].lower(), self.statement())
        binding = self._attributes()
        for word, method in _KEYWORDS.items():
            if self.starts_word(word):
                saved = self.position
                self.position += len(word)
                node = method(self, word)
                if isinstance(node, ParamStatement):
                    return ParamStatement(node.parameters, binding)
                if node is not None:
                    return node
                self.position = saved
        return self.chain()

    def _attributes(self) -> str:
        """`[CmdletBinding()]` and its like before `param`."""
        saved = self.position
        while (
            ATTRIBUTE_NAME.match(self.text, self.position)
            and (found := _ATTRIBUTE.match(self.text, self.position)) is not None
        ):
            self.position = found.end()
            self.blanks(newlines=True)
        if not self.starts_word("param"):
            self.position = saved
            return ""
        return self.text[saved : self.position].strip()

    def chain(self) -> PsNode:
        """Pipelines joined by && and ||."""
        left = self.pipeline()
        while True:
            self.blanks()
            operator = self.peek(2)
            if operator not in ("&&", "||"):
                break
            if not self._chains:
                raise ParseFault(
                    f"The token '{operator}' is not a valid statement separator in this version.",
                    "InvalidEndOfLine",
                    script=self.text,
                    position=self.position,
                    token=operator,
                )
            self.position += 2
            self.blanks(newlines=True)
            left = PipelineChain(operator, left, self.pipeline())
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

    def if_(self, word: str) -> PsNode:
        branches = [(self.condition("if"), self.braces())]
        otherwise: StatementBlock | None = None
        while True:
            saved = self.position
            self.blanks(newlines=True)
            if self.starts_word("elseif"):
                self.position += 6
                branches.append((self.condition("if"), self.braces()))
                continue
            if self.starts_word("else"):
                self.position += 4
                otherwise = self.braces()
            else:
                self.position = saved
            return IfStatement(tuple(branches), otherwise)

    def while_(self, word: str) -> PsNode:
        return WhileStatement(self.condition("while"), self.braces())

    def do(self, word: str) -> PsNode:
        body = self.braces()
        self.blanks(newlines=True)
        until = self.starts_word("until")
        if not until and not self.starts_word("while"):
            raise ParseFault("Missing while or until keyword in do loop.")
        self.position += 5
        return DoStatement(self.condition("while"), body, until)

    def for_(self, word: str) -> PsNode:
        self.blanks()
        self.expect("(")
        parts: list[PsNode | None] = []
        for end in (";", ";", ")"):
            self.blanks(newlines=True)
            parts.append(None if self.starts(end) else self.pipeline())
            self.blanks(newlines=True)
            self.expect(end)
        start, condition, step = parts
        return ForStatement(start, condition, step, self.braces())

    def foreach(self, word: str) -> PsNode | None:
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
        return ForeachStatement(variable.name, items, self.braces())

    def switch(self, word: str) -> PsNode:
        mode = ""
        self.blanks()
        while self.take("-"):
            for name in ("wildcard", "regex", "exact", "casesensitive"):
                if self.starts_word(name):
                    self.position += len(name)
                    mode = name
            self.blanks()
        subject = self.condition("switch")
        self.blanks(newlines=True)
        self.expect("{")
        branches: list[tuple[PsNode | None, StatementBlock]] = []
        while True:
            self.separators()
            if self.take("}"):
                return SwitchStatement(mode, subject, tuple(branches))
            if self.starts_word("default"):
                self.position += 7
                branches.append((None, self.braces()))
            else:
                value = self.argument()
                branches.append((value, self.braces()))

    def try_(self, word: str) -> PsNode:
        body = self.braces()
        handlers: list[CatchClause] = []
        cleanup: StatementBlock | None = None
        while True:
            saved = self.position
            self.blanks(newlines=True)
            if self.starts_word("catch"):
                self.position += 5
                handlers.append(self._catch())
            elif self.starts_word("finally"):
                self.position += 7
                cleanup = self.braces()
            else:
                self.position = saved
                return TryStatement(body, tuple(handlers), cleanup)

    def _catch(self) -> CatchClause:
        types: list[str] = []
        self.blanks(newlines=True)
        while (match := TYPE_PATTERN.match(self.text, self.position)) is not None:
            types.append(match[1].lower())
            self.position = match.end()
            self.blanks()
            self.take(",")
            self.blanks(newlines=True)
        return CatchClause(tuple(types), self.braces())

    def trap(self, word: str) -> PsNode:
        return TrapStatement(self._catch())

    def named_block(self, word: str) -> PsNode | None:
        self.blanks(newlines=True)
        return NamedBlock(word, self.braces()) if self.starts("{") else None

    def _name(self) -> str:
        self.blanks(newlines=True)
        match = _NAME.match(self.text, self.position)
        if match is None:
            raise ParseFault("Missing name in type definition.")
        self.position = match.end()
        return match[0]

    def enum(self, word: str) -> PsNode:
        name = self._name()
        self.blanks(newlines=True)
        self.expect("{")
        members: list[tuple[str, int]] = []
        following = 0
        while True:
            self.separators()
            if self.take("}"):
                return EnumStatement(name, tuple(members))
            member = self._name()
            self.blanks()
            if self.take("="):
                self.blanks()
                value = self.number()
                following = int(value.value) if value is not None else following
            members.append((member, following))
            following += 1

    def class_(self, word: str) -> PsNode:
        name, base = self._name(), ""
        self.blanks(newlines=True)
        if self.take(":"):
            base = self._name()
            self.blanks(newlines=True)
        self.expect("{")
        members: list[ClassMember] = []
        while True:
            self.separators()
            if self.take("}"):
                return ClassStatement(name, base, tuple(members))
            members.append(self._class_member())

    def _class_member(self) -> ClassMember:
        static, hidden, kind, default = False, False, "", None
        while True:
            self.blanks(newlines=True)
            match = TYPE_PATTERN.match(self.text, self.position)
            if match is not None:
                kind, self.position = match[1], match.end()
            elif self.starts_word("static") or self.starts_word("hidden"):
                static = static or self.starts_word("static")
                hidden = hidden or self.starts_word("hidden")
                self.position += 6
            else:
                break
        variable = self.variable()
        if variable is not None:
            self.blanks()
            if self.take("="):
                self.blanks()
                default = self.pipeline()
            return ClassMember(variable.name, kind, static, default, None, hidden)
        name = self._name()
        self.blanks()
        self.expect("(")
        parameters = self._parameters()
        self.blanks(newlines=True)
        base: tuple[PsNode, ...] | None = None
        if self.take(":"):  # : base(...)
            self.blanks(newlines=True)
            self._name()
            self.blanks()
            self.expect("(")
            base = self._call_arguments()
        script = ScriptBlockLiteral(parameters, self.braces())
        return ClassMember(name, kind, static, None, script, hidden, base)

    def function(self, word: str) -> FunctionStatement:
        self.blanks()
        match = re.compile(r"[\w:-]+").match(self.text, self.position)
        if match is None:
            raise ParseFault("Missing name after function keyword.")
        self.position = match.end()
        self.blanks()
        parameters: tuple[ScriptParameter, ...] = ()
        if self.take("("):
            parameters = self._parameters()
        self.blanks(newlines=True)
        start = self.position + 1
        script = self._with_parameters(parameters, self.braces(), start)
        if word == "filter":
            block = NamedBlock("process", script.body)
            script = ScriptBlockLiteral(
                script.parameters, StatementBlock((block,)), script.binding, script.text
            )
        return FunctionStatement(match[0], script)

    def _parameters(self) -> tuple[ScriptParameter, ...]:
        out: list[ScriptParameter] = []
        while True:
            self.blanks(newlines=True)
            attributes: list[str] = []
            while True:
                attribute = _ATTRIBUTE.match(self.text, self.position)
                if attribute is None:
                    break
                attributes.append(attribute[0])
                self.position = attribute.end()
                self.blanks(newlines=True)
            if self.take(")"):
                return tuple(out)
            variable = self.variable()
            if variable is None:
                raise ParseFault("Missing ')' in function parameter list.")
            default: PsNode | None = None
            self.blanks(newlines=True)
            if self.take("="):
                self.blanks(newlines=True)
                default = self._one_of_many()
            out.append(declared_parameter(variable.name, default, attributes))
            self.blanks(newlines=True)
            self.take(",")

    def _with_parameters(
        self, parameters: tuple[ScriptParameter, ...], body: StatementBlock, start: int
    ) -> ScriptBlockLiteral:
        """A script block's own `param( )` takes precedence. Its text begins at `start` and ends
        before the brace before this position.
        """
        text = self.text[start : self.position - 1]
        statements = body.statements
        first = statements[0] if statements else None
        if isinstance(first, ParamStatement):
            return ScriptBlockLiteral(first.parameters, body.rest(), first.binding, text)
        return ScriptBlockLiteral(parameters, body, "", text)

    def param(self, word: str) -> PsNode | None:
        self.blanks(newlines=True)
        return ParamStatement(self._parameters()) if self.take("(") else None

    def jump(self, word: str) -> PsNode | None:
        self.blanks()
        if self.at_end() or self.peek() in ";\n)}":
            return _JUMPS[word](None)
        return _JUMPS[word](self.pipeline())

    def _label(self) -> str:
        self.blanks()
        match = _NAME.match(self.text, self.position)
        if match is None:
            return ""
        self.position = match.end()
        return match[0].lower()

    def break_(self, word: str) -> PsNode:
        return BreakStatement(self._label())

    def continue_(self, word: str) -> PsNode:
        return ContinueStatement(self._label())

    # Pipelines
    def pipeline(self) -> PsNode:
        first = self.element()
        if isinstance(first, Assignment):
            return first
        stages: list[PsNode] = [first]
        while True:
            self.blanks()
            if self.peek() != "|" or self.starts("||"):
                break
            self.position += 1
            self.blanks(newlines=True)
            stages.append(self.element())
        return PipelineNode(tuple(stages)) if len(stages) > 1 else first

    def element(self) -> PsNode:
        self.blanks()
        c = self.peek()
        if c in ("&", ".") and self.text[self.position + 1 : self.position + 2] in (
            " ",
            "(",
            "{",
            "$",
            '"',
            "'",
        ):
            start = self.position
            self.position += 1
            self.blanks()
            return self.command(self.argument(), c, start)
        if self._begins_expression(c):
            return self.expression()
        match = re.compile(r"[^\s;|&(){},\"'`$<>]+").match(self.text, self.position)
        if match is None:
            raise ParseFault(
                f"Unexpected token '{c}' in expression or statement."
                if c
                else "An expression was expected after '('."
            )
        start = self.position
        name_parts = self.bare_word()
        return self.command(_joined(name_parts), "", start)

    def _begins_expression(self, c: str) -> bool:
        if not c:
            return False
        if c in "$\"'(@[{!+," or c.isdigit():
            return True
        return (
            c == "-"
            and re.match(
                r"-(\d|\(|\$|-|not\b|[ic]?split\b|join\b|bnot\b)",
                self.text[self.position :],
                re.IGNORECASE,
            )
            is not None
        )

    def command(self, name: PsNode, operator: str, start: int) -> PsNode:
        """`start`: where its operator or its name begins; the position is after its name."""
        name_start = start + 1 if operator else start
        while self.text[name_start].isspace():
            name_start += 1
        name_extent = self._extent(name_start)
        arguments: list[PsArgument] = []
        redirects: list[StreamRedirect] = []
        while True:
            self.blanks()
            c = self.peek()
            if not c or c in _STATEMENT_ENDS or self.starts("&&"):
                break
            match = REDIRECT_PATTERN.match(self.text, self.position)
            if match is not None:
                self.position = match.end()
                self.blanks()
                target = ValueLiteral(match[3]) if match[3] else self.argument()
                redirects.append(StreamRedirect(match[1] or "1", match[2], target))
                continue
            parameter = _PARAMETER.match(self.text, self.position)
            if parameter is not None and not re.match(
                r"[\w./\\:=]", self.text[parameter.end() : parameter.end() + 1] or " "
            ):
                self.position = parameter.end()
                if parameter[2]:
                    self.blanks()
                    arguments.append(NamedArgument(parameter[1], self.argument()))
                else:
                    arguments.append(ParameterArgument(parameter[1]))
                continue
            arguments.append(self.splatted() or self.argument())
        extent = self._extent(start)
        return CommandNode(name, tuple(arguments), tuple(redirects), operator, extent, name_extent)

    def splatted(self) -> SplattedArgument | None:
        """`@name`: the values of a table, or of an array, as arguments."""
        match = _SPLATTED.match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return SplattedArgument(match[1])

    def argument(self) -> PsNode:
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
        return items[0] if len(items) == 1 else ArrayLiteral(tuple(items))

    def _single_argument(self) -> PsNode:
        c = self.peek()
        if (
            c in "({\"'["
            or self.starts("@(")
            or self.starts("@{")
            or self.starts('@"')
            or self.starts("@'")
            or self.starts("$(")
        ):
            if c == "[" and not TYPE_PATTERN.match(self.text, self.position):
                return self._bare()
            node = self.postfix(self.primary()) if c not in "\"'" else self._members(self.primary())
            if c in "\"'" and not self.at_end() and self.peek() not in " \t\r\n;|)},&":
                rest = self.bare_word()
                return ExpandableString((node, *rest)) if rest else node
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

    def _members(self, node: PsNode) -> PsNode:
        """For a string argument: brackets after it begin another argument."""
        return node if self.peek() == "[" else self.postfix(node)

    def _bare(self) -> PsNode:
        saved = self.position
        number = self.number()
        if number is not None and (self.at_end() or self.peek() in " \t\r\n;|)},&"):
            return number
        self.position = saved
        parts = self.bare_word()
        if not parts:
            token = self.peek()
            raise ParseFault(f"Unexpected token '{token}' in expression or statement.")
        return _joined(parts)

    def statement_value(self) -> PsNode:
        """The value of an assignment: any statement."""
        for word in ("if", "foreach", "switch", "try", "for", "while", "do"):
            if self.starts_word(word):
                self.position += len(word)
                node = _KEYWORDS[word](self, word)
                if node is not None:
                    return StatementValue(node)
        return self.pipeline()


_JUMPS: dict[str, Callable[[PsNode | None], PsNode]] = {
    "return": ReturnStatement,
    "exit": ExitStatement,
    "throw": ThrowStatement,
}

_KEYWORDS: dict[str, Callable[[_Parser, str], PsNode | None]] = {
    "if": _Parser.if_,
    "while": _Parser.while_,
    "do": _Parser.do,
    "for": _Parser.for_,
    "foreach": _Parser.foreach,
    "switch": _Parser.switch,
    "try": _Parser.try_,
    "trap": _Parser.trap,
    "begin": _Parser.named_block,
    "process": _Parser.named_block,
    "end": _Parser.named_block,
    "enum": _Parser.enum,
    "class": _Parser.class_,
    "function": _Parser.function,
    "filter": _Parser.function,
    "param": _Parser.param,
    "return": _Parser.jump,
    "exit": _Parser.jump,
    "throw": _Parser.jump,
    "break": _Parser.break_,
    "continue": _Parser.continue_,
}
