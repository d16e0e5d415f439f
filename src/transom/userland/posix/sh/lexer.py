"""Splits a script into words and operators; recognizes quoting and expansions without performing
them.
"""

from __future__ import annotations

from collections.abc import Callable

from transom.kit.named_tuple import NamedTuple
from transom.userland.posix.escapes import unescape
from transom.userland.posix.sh.tree import (
    Arithmetic,
    Incomplete,
    Literal,
    ParameterExpansion,
    Part,
    PendingDocument,
    ShellNode,
    ShellSyntaxError,
    Substitution,
    Word,
)
from transom.userland.preemption import check_slice

_OPERATORS = (
    "<<<",
    "<<-",
    "&>>",
    "&&",
    "||",
    ";;",
    "<<",
    ">>",
    "<&",
    ">&",
    "<>",
    ">|",
    "&>",
    "&",
    "|",
    ";",
    "<",
    ">",
    "(",
    ")",
)
_CHECKED = 0xFFF  # characters between two checks of the time
_BREAKS = frozenset(" \t\n&|;<>()")
_SPECIAL_PARAMETERS = frozenset("@*#?-$!0123456789")
_PARAMETER_OPERATORS = (
    ":-",
    ":=",
    ":?",
    ":+",
    "##",
    "%%",
    "//",
    "-",
    "=",
    "?",
    "+",
    "#",
    "%",
    "/",
    ":",
    "^^",
    ",,",
    "^",
    ",",
)


class ShellToken(NamedTuple):
    kind: str  # "word", "operator", "newline", "end"
    text: str  # of an operator, or of a word without quotes
    word: Word = ()
    number: int | None = None  # digits directly before a redirection


ParseBody = Callable[[str, int], tuple[ShellNode, int]]
"""Parses commands in a text from a position up to the closing parenthesis; answers with the position after it."""


class Lexer:
    def __init__(self, text: str, position: int, parse_body: ParseBody) -> None:
        self.text = text
        self.position = position
        self.ended_in_document = False  # the text ends before a here-document does
        self.pending: list[PendingDocument] = []
        self._parse_body = parse_body
        self._peeked: ShellToken | None = None

    def peek(self) -> ShellToken:
        if self._peeked is None:
            self._peeked = self._read()
        return self._peeked

    def next(self) -> ShellToken:
        token = self.peek()
        self._peeked = None
        return token

    def _read(self) -> ShellToken:
        check_slice()
        text = self.text
        while self.position < len(text):
            c = text[self.position]
            if c in " \t\r":
                self.position += 1
            elif c == "\\" and text.startswith("\\\n", self.position):
                self.position += 2
            elif c == "#":
                end = text.find("\n", self.position)
                self.position = len(text) if end < 0 else end
            else:
                break
        else:
            if any(not document.done for document in self.pending):
                self._read_documents()
            return ShellToken("end", "")
        if text[self.position] == "\n":
            self.position += 1
            self._read_documents()
            return ShellToken("newline", "\n")
        for operator in _OPERATORS:
            if text.startswith(operator, self.position):
                self.position += len(operator)
                return ShellToken("operator", operator)
        start = self.position
        digits = start
        while digits < len(text) and text[digits].isdigit():
            digits += 1
        if digits > start and digits < len(text) and text[digits] in "<>":
            for operator in _OPERATORS:
                if text.startswith(operator, digits):
                    self.position = digits + len(operator)
                    return ShellToken("operator", operator, number=int(text[start:digits]))
        word = self.word()
        plain = (
            word[0].text
            if len(word) == 1 and isinstance(word[0], Literal) and not word[0].quoted
            else ""
        )
        return ShellToken("word", plain, word)

    def word(self, stop: frozenset[str] = _BREAKS) -> Word:
        """From the position to the first unquoted character of `stop`."""
        text = self.text
        parts: list[Part] = []
        plain: list[str] = []

        def flush() -> None:
            if plain:
                parts.append(Literal("".join(plain)))
                plain.clear()

        while self.position < len(text):
            c = text[self.position]
            if c in stop:
                break
            if not self.position & _CHECKED:
                check_slice()
            if c == "\\":
                if self.position + 1 >= len(text):
                    plain.append("\\")
                    self.position += 1
                elif text[self.position + 1] == "\n":
                    self.position += 2
                else:
                    flush()
                    parts.append(Literal(text[self.position + 1], True))
                    self.position += 2
            elif c == "'":
                end = text.find("'", self.position + 1)
                if end < 0:
                    raise Incomplete("unterminated quoted string")
                flush()
                parts.append(Literal(text[self.position + 1 : end], True))
                self.position = end + 1
            elif c == '"':
                flush()
                self.position += 1
                parts.extend(self._double_quoted())
            elif c == "$" and text.startswith("$'", self.position):
                flush()
                parts.append(Literal(self._ansi_quoted(), True))
            elif c in "$`":
                part = self._dollar(False)
                if isinstance(part, Literal) and not part.quoted:
                    plain.append(part.text)
                else:
                    flush()
                    parts.append(part)
            else:
                plain.append(c)
                self.position += 1
        flush()
        return tuple(parts)

    def _double_quoted(self, end: str = '"') -> list[Part]:
        """The parts up to the closing quote; if `end` is empty, of the whole text (here-documents)."""
        text = self.text
        parts: list[Part] = []
        plain: list[str] = []
        while True:
            if self.position >= len(text):
                if end:
                    raise Incomplete("unterminated quoted string")
                break
            c = text[self.position]
            if not self.position & _CHECKED:
                check_slice()
            if c == end:
                self.position += 1
                break
            if c == "\\" and self.position + 1 < len(text):
                following = text[self.position + 1]
                if following in "$`\\\n" or (following == '"' and end):
                    if following != "\n":
                        plain.append(following)
                    self.position += 2
                    continue
                plain.append(c)
                self.position += 1
            elif c in "$`":
                part = self._dollar(True)
                if isinstance(part, Literal):
                    plain.append(part.text)
                else:
                    if plain:
                        parts.append(Literal("".join(plain), True))
                        plain.clear()
                    parts.append(part)
            else:
                plain.append(c)
                self.position += 1
        if plain or not parts:
            parts.append(Literal("".join(plain), True))
        return parts

    def _ansi_quoted(self) -> str:
        end = self.position + 2
        text = self.text
        while end < len(text) and text[end] != "'":
            end += 2 if text[end] == "\\" else 1
        if end >= len(text):
            raise Incomplete("unterminated quoted string")
        inner = text[self.position + 2 : end]
        self.position = end + 1
        return unescape(inner)

    def _dollar(self, quoted: bool) -> Part:
        check_slice()
        text = self.text
        if text[self.position] == "`":
            return self._backticks(quoted)
        following = text[self.position + 1] if self.position + 1 < len(text) else ""
        if text.startswith("$((", self.position):
            arithmetic = self._arithmetic(quoted)
            if arithmetic is not None:
                return arithmetic
        if following == "(":
            body, self.position = self._parse_body(text, self.position + 2)
            return Substitution(body, quoted)
        if following == "{":
            return self._braces(quoted)
        if following in _SPECIAL_PARAMETERS and following:
            self.position += 2
            return ParameterExpansion(following, quoted=quoted)
        end = self.position + 1
        while end < len(text) and (text[end].isalnum() or text[end] == "_") and text[end].isascii():
            end += 1
        if end == self.position + 1:
            self.position += 1
            return Literal("$")
        name = text[self.position + 1 : end]
        self.position = end
        return ParameterExpansion(name, quoted=quoted)

    def _backticks(self, quoted: bool) -> Part:
        text = self.text
        end = self.position + 1
        inner: list[str] = []
        while True:
            if end >= len(text):
                raise Incomplete("EOF in backquote substitution")
            c = text[end]
            if c == "`":
                break
            if (
                c == "\\"
                and end + 1 < len(text)
                and text[end + 1] in "$`\\" + ('"' if quoted else "")
            ):
                inner.append(text[end + 1])
                end += 2
                continue
            inner.append(c)
            end += 1
        self.position = end + 1
        body, _ = self._parse_body("".join(inner) + "\n)", 0)
        return Substitution(body, quoted)

    def _arithmetic(self, quoted: bool) -> Part | None:
        end = matching_arithmetic(self.text, self.position + 3)
        if end is None:
            return None
        inner = self.text[self.position + 3 : end]
        self.position = end + 2
        return Arithmetic(self.embedded(inner), quoted)

    def _braces(self, quoted: bool) -> Part:
        text = self.text
        start = self.position + 2
        if (
            text.startswith("#", start)
            and not text.startswith("#}", start)
            and text[start + 1 : start + 2] not in ("-", ":", "?")
        ):
            end = text.find("}", start)
            if end < 0:
                raise Incomplete("missing '}'")
            self.position = end + 1
            return ParameterExpansion(text[start + 1 : end], "length", quoted=quoted)
        end = start
        if end < len(text) and text[end] in _SPECIAL_PARAMETERS:
            end += 1
            while text[start].isdigit() and end < len(text) and text[end].isdigit():
                end += 1
        else:
            while end < len(text) and (text[end].isalnum() or text[end] == "_"):
                end += 1
        name = text[start:end]
        if end >= len(text):
            raise Incomplete("missing '}'")
        if not name:
            raise ShellSyntaxError("bad substitution")
        if text[end] == "}":
            self.position = end + 1
            return ParameterExpansion(name, quoted=quoted)
        operator = next((o for o in _PARAMETER_OPERATORS if text.startswith(o, end)), "")
        if not operator:
            raise ShellSyntaxError("bad substitution")
        self.position = end + len(operator)
        operand = self._operand(quoted)
        return ParameterExpansion(name, operator, operand, quoted)

    def _operand(self, quoted: bool) -> Word:
        """A word up to the closing brace, which is consumed."""
        if not quoted:
            word = self.word(frozenset("}"))
        else:
            parts: list[Part] = []
            while self.position < len(self.text) and self.text[self.position] != "}":
                c = self.text[self.position]
                if c == '"':
                    self.position += 1
                    parts.extend(self._double_quoted())
                elif c in "$`":
                    parts.append(self._dollar(True))
                elif c == "\\" and self.text[self.position + 1 : self.position + 2] in (
                    "}",
                    "$",
                    "`",
                    "\\",
                    '"',
                ):
                    parts.append(Literal(self.text[self.position + 1], True))
                    self.position += 2
                else:
                    parts.append(Literal(c, True))
                    self.position += 1
            word = tuple(parts)
        if self.position >= len(self.text):
            raise Incomplete("missing '}'")
        self.position += 1
        return word

    def embedded(self, text: str) -> Word:
        """The parts of a text that expands as in double quotes but has no quotes: arithmetic,
        here-documents.
        """
        return tuple(Lexer(text, 0, self._parse_body)._double_quoted(""))

    def _read_documents(self) -> None:
        for document in self.pending:
            lines: list[str] = []
            while True:
                if self.position >= len(self.text):
                    self.ended_in_document = True
                    break
                end = self.text.find("\n", self.position)
                line = self.text[self.position :] if end < 0 else self.text[self.position : end]
                self.position = len(self.text) if end < 0 else end + 1
                if document.strip_tabs:
                    line = line.lstrip("\t")
                if line == document.delimiter:
                    document.done = True
                    break
                lines.append(line + "\n")
            content = "".join(lines)
            document.redirect.target = (
                self.embedded(content) if document.expand else (Literal(content, True),)
            )
        self.pending.clear()


def matching_arithmetic(text: str, start: int) -> int | None:
    """The position of the `))` that closes an arithmetic expression; None if it is not arithmetic."""
    depth = 0
    position = start
    while position < len(text):
        c = text[position]
        if c == "(":
            depth += 1
        elif c == ")":
            if depth == 0:
                return position if text.startswith("))", position) else None
            depth -= 1
        position += 1
    raise Incomplete("missing '))'")
