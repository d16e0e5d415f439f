"""The shell's grammar: from words and operators to a syntax tree."""

from __future__ import annotations

import re

from transom.kit.caching import text_cache
from transom.userland.posix.sh.lexer import Lexer, ShellToken, matching_arithmetic
from transom.userland.posix.sh.tree import (
    AndOr,
    ArithmeticCommand,
    BraceGroup,
    CaseCommand,
    CountingFor,
    ForLoop,
    FunctionDefinition,
    IfCommand,
    Incomplete,
    Literal,
    PendingDocument,
    Pipeline,
    Redirected,
    Sequence,
    ShellNode,
    ShellRedirect,
    ShellSyntaxError,
    Simple,
    Subshell,
    Test,
    WhileLoop,
    Word,
)

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REDIRECTIONS = frozenset(("<", ">", ">>", "<<", "<<-", "<<<", "<&", ">&", "<>", ">|", "&>", "&>>"))
_ENDING_WORDS = frozenset(("then", "else", "elif", "fi", "do", "done", "esac", "}"))
EMPTY = Sequence(())


@text_cache(512, longest=4096)
def parse_shell(text: str) -> ShellNode:
    """A whole script. Raises ShellSyntaxError."""
    return _parse(text)[0]


def parse_shell_input(text: str) -> ShellNode:
    """What was read up to now of a script that arrives line by line. Raises ShellSyntaxError:
    Incomplete if more must be read.
    """
    node, ended_in_document = _parse(text)
    if ended_in_document:
        raise Incomplete("here-document")
    return node


def _parse(text: str) -> tuple[ShellNode, bool]:
    parser = _Parser(text, 0)
    node = parser.commands(frozenset())
    token = parser.lexer.peek()
    if token.kind != "end":
        raise _unexpected(token)
    return node, parser.lexer.ended_in_document


def _parse_body(text: str, position: int) -> tuple[ShellNode, int]:
    parser = _Parser(text, position)
    node = parser.commands(frozenset((")",)))
    parser.expect_operator(")")
    return node, parser.lexer.position


def _unexpected(token: ShellToken) -> ShellSyntaxError:
    if token.kind == "end":
        return Incomplete("unexpected end of file")
    if token.kind == "newline":
        return ShellSyntaxError("unexpected newline")
    return ShellSyntaxError(f'unexpected "{token.text or "word"}"')


class _Parser:
    def __init__(self, text: str, position: int) -> None:
        self.lexer = Lexer(text, position, _parse_body)

    def expect_operator(self, text: str) -> None:
        token = self.lexer.next()
        if token.kind != "operator" or token.text != text:
            raise _unexpected(token)

    def expect_word(self, text: str) -> None:
        token = self.lexer.next()
        if token.kind != "word" or token.text != text:
            raise _unexpected(token)

    def skip_newlines(self) -> None:
        while self.lexer.peek().kind == "newline":
            self.lexer.next()

    def commands(self, ends: frozenset[str]) -> ShellNode:
        """Commands up to a reserved word or operator of `ends`, or the end of the text."""
        items: list[tuple[ShellNode, bool]] = []
        while True:
            self.skip_newlines()
            token = self.lexer.peek()
            if (
                token.kind == "end"
                or token.text in ends
                or (token.kind == "word" and token.text in _ENDING_WORDS)
            ):
                break
            if token.kind == "operator" and token.text in (")", ";;"):
                break
            node = self.and_or()
            background = False
            token = self.lexer.peek()
            if token.kind == "operator" and token.text in (";", "&"):
                background = token.text == "&"
                self.lexer.next()
            elif token.kind not in ("newline", "end") and not (
                token.kind == "operator" and token.text in (")", ";;")
            ):
                raise _unexpected(token)
            items.append((node, background))
        if len(items) == 1 and not items[0][1]:
            return items[0][0]
        return Sequence(tuple(items))

    def body(self, *ends: str) -> ShellNode:
        node = self.commands(frozenset(ends))
        if node == EMPTY:
            raise _unexpected(self.lexer.peek())
        return node

    def and_or(self) -> ShellNode:
        first = self.pipeline()
        rest: list[tuple[str, ShellNode]] = []
        while (token := self.lexer.peek()).kind == "operator" and token.text in ("&&", "||"):
            self.lexer.next()
            self.skip_newlines()
            rest.append((token.text, self.pipeline()))
        return AndOr(first, tuple(rest)) if rest else first

    def pipeline(self) -> ShellNode:
        negated = timed = False
        while (token := self.lexer.peek()).kind == "word" and token.text in ("!", "time"):
            self.lexer.next()
            negated ^= token.text == "!"
            timed |= token.text == "time"
        commands = [self.command()]
        while (token := self.lexer.peek()).kind == "operator" and token.text == "|":
            self.lexer.next()
            self.skip_newlines()
            commands.append(self.command())
        if len(commands) == 1 and not negated and not timed:
            return commands[0]
        return Pipeline(tuple(commands), negated, timed)

    def command(self) -> ShellNode:
        token = self.lexer.peek()
        compound: ShellNode | None = None
        if token.kind == "operator" and token.text == "(":
            compound = self._parenthesis()
        elif token.kind == "word":
            parse_compound = _COMPOUND.get(token.text)
            if parse_compound is not None:
                self.lexer.next()
                compound = parse_compound(self)
            elif token.text in _ENDING_WORDS:
                raise _unexpected(token)
        if compound is None:
            return self.simple()
        redirects = self.redirects()
        return Redirected(compound, redirects) if redirects else compound

    def _parenthesis(self) -> ShellNode:
        self.lexer.next()
        lexer = self.lexer
        if lexer.text.startswith("(", lexer.position):
            end = matching_arithmetic(lexer.text, lexer.position + 1)
            if end is not None:
                expression = lexer.embedded(lexer.text[lexer.position + 1 : end])
                lexer.position = end + 2
                return ArithmeticCommand(expression)
        body = self.body(")")
        self.expect_operator(")")
        return Subshell(body)

    def redirects(self) -> tuple[ShellRedirect, ...]:
        found: list[ShellRedirect] = []
        while (token := self.lexer.peek()).kind == "operator" and token.text in _REDIRECTIONS:
            found.append(self.redirect())
        return tuple(found)

    def redirect(self) -> ShellRedirect:
        operator = self.lexer.next()
        target = self.lexer.next()
        if target.kind != "word":
            raise _unexpected(target)
        text = operator.text
        default = 0 if text[0] == "<" else -1 if text[0] == "&" else 1
        redirect = ShellRedirect(
            default if operator.number is None else operator.number, text, target.word
        )
        if text in ("<<", "<<-"):
            quoted = any(not isinstance(p, Literal) or p.quoted for p in target.word)
            delimiter = "".join(p.text for p in target.word if isinstance(p, Literal))
            self.lexer.pending.append(
                PendingDocument(redirect, delimiter, not quoted, text == "<<-")
            )
        return redirect

    def simple(self) -> ShellNode:
        assignments: list[tuple[str, Word]] = []
        words: list[Word] = []
        redirects: list[ShellRedirect] = []
        while True:
            token = self.lexer.peek()
            if token.kind == "operator" and token.text in _REDIRECTIONS:
                redirects.append(self.redirect())
                continue
            if token.kind != "word":
                break
            self.lexer.next()
            if not words and (assignment := _assignment(token.word)) is not None:
                assignments.append(assignment)
                continue
            words.append(token.word)
            if (
                len(words) == 1
                and token.text
                and not assignments
                and not redirects
                and self._function_follows()
            ):
                return self._function(token.text)
        if not words and not assignments and not redirects:
            raise _unexpected(self.lexer.peek())
        return Simple(tuple(assignments), tuple(words), tuple(redirects))

    def _function_follows(self) -> bool:
        token = self.lexer.peek()
        return token.kind == "operator" and token.text == "("

    def _function(self, name: str) -> ShellNode:
        self.expect_operator("(")
        self.expect_operator(")")
        self.skip_newlines()
        return FunctionDefinition(name, self.command())

    def function_keyword(self) -> ShellNode:
        name = self.lexer.next()
        if self._function_follows():
            return self._function(name.text)
        self.skip_newlines()
        return FunctionDefinition(name.text, self.command())

    def group(self) -> ShellNode:
        body = self.body("}")
        self.expect_word("}")
        return BraceGroup(body)

    def if_(self) -> ShellNode:
        branches: list[tuple[ShellNode, ShellNode]] = []
        otherwise: ShellNode | None = None
        while True:
            condition = self.body("then")
            self.expect_word("then")
            branches.append((condition, self.body("elif", "else", "fi")))
            token = self.lexer.next()
            if token.text == "elif":
                continue
            if token.text == "else":
                otherwise = self.body("fi")
                self.expect_word("fi")
            elif token.text != "fi":
                raise _unexpected(token)
            return IfCommand(tuple(branches), otherwise)

    def _do(self) -> ShellNode:
        self.expect_word("do")
        body = self.body("done")
        self.expect_word("done")
        return body

    def while_(self) -> ShellNode:
        condition = self.body("do")
        return WhileLoop(condition, self._do(), False)

    def until(self) -> ShellNode:
        condition = self.body("do")
        return WhileLoop(condition, self._do(), True)

    def for_(self) -> ShellNode:
        lexer = self.lexer
        token = lexer.next()
        if (
            token.kind == "operator"
            and token.text == "("
            and lexer.text.startswith("(", lexer.position)
        ):
            return self._counting_for()
        if token.kind != "word" or _NAME.fullmatch(token.text) is None:
            raise ShellSyntaxError("bad for loop variable")
        self._skip_separator()
        words: list[Word] | None = None
        if lexer.peek().text == "in" and lexer.peek().kind == "word":
            lexer.next()
            words = []
            while lexer.peek().kind == "word":
                words.append(lexer.next().word)
            self._skip_separator()
        return ForLoop(token.text, None if words is None else tuple(words), self._do())

    def _counting_for(self) -> ShellNode:
        lexer = self.lexer
        end = matching_arithmetic(lexer.text, lexer.position + 1)
        if end is None:
            raise _unexpected(ShellToken("operator", "("))
        pieces = lexer.text[lexer.position + 1 : end].split(";")
        if len(pieces) != 3:
            raise ShellSyntaxError("arithmetic expression required")
        lexer.position = end + 2
        self._skip_separator()
        start, condition, step = (lexer.embedded(piece.strip()) for piece in pieces)
        return CountingFor(start, condition, step, self._do())

    def _skip_separator(self) -> None:
        token = self.lexer.peek()
        if token.kind == "operator" and token.text == ";":
            self.lexer.next()
        self.skip_newlines()

    def case(self) -> ShellNode:
        lexer = self.lexer
        subject = lexer.next()
        if subject.kind != "word":
            raise _unexpected(subject)
        self.skip_newlines()
        self.expect_word("in")
        branches: list[tuple[tuple[Word, ...], ShellNode]] = []
        while True:
            self.skip_newlines()
            token = lexer.next()
            if token.kind == "word" and token.text == "esac":
                return CaseCommand(subject.word, tuple(branches))
            if token.kind == "operator" and token.text == "(":
                token = lexer.next()
            patterns = [token.word]
            while True:
                if token.kind != "word":
                    raise _unexpected(token)
                separator = lexer.next()
                if separator.text == ")" and separator.kind == "operator":
                    break
                if separator.text != "|" or separator.kind != "operator":
                    raise _unexpected(separator)
                token = lexer.next()
                patterns.append(token.word)
            body = self.commands(frozenset(("esac",)))
            branches.append((tuple(patterns), body))
            if lexer.peek().kind == "operator" and lexer.peek().text == ";;":
                lexer.next()

    def test(self) -> ShellNode:
        words: list[Word] = []
        while True:
            token = self.lexer.next()
            if token.kind == "word" and token.text == "]]":
                return Test(tuple(words))
            if token.kind == "end":
                raise _unexpected(token)
            if token.kind == "operator":
                words.append((Literal(token.text),))
            elif token.kind == "word":
                words.append(token.word)


_COMPOUND = {
    "{": _Parser.group,
    "if": _Parser.if_,
    "while": _Parser.while_,
    "until": _Parser.until,
    "for": _Parser.for_,
    "case": _Parser.case,
    "function": _Parser.function_keyword,
    "[[": _Parser.test,
}


def _assignment(word: Word) -> tuple[str, Word] | None:
    """The name (with `+` behind it for `+=`) and the value."""
    first = word[0] if word else None
    if not isinstance(first, Literal) or first.quoted:
        return None
    match = _ASSIGNMENT.match(first.text)
    if match is None:
        return None
    rest = first.text[match.end() :]
    value = ((Literal(rest),) if rest else ()) + word[1:]
    return first.text[: match.end() - 1], value
