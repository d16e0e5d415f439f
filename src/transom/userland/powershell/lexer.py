"""The scanner for PowerShell scripts: comments, strings, numbers, words. What it expects depends on
the context.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from transom.userland.powershell.tree import (
    ExpandableString,
    PsNode,
    StatementBlock,
    SubExpression,
    ValueLiteral,
    VariableReference,
)
from transom.userland.preemption import check_slice

ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "e": "\x1b",
}
NUMBER = re.compile(
    r"(0[xX][0-9a-fA-F]+|\d+\.\d+(?:[eE][-+]?\d+)?|\d+(?:[eE][-+]?\d+)?|\.\d+)(?:[lLdD])?(kb|mb|gb|tb|pb)?",
    re.IGNORECASE,
)
VARIABLE = re.compile(r"\$(?:\{([^}]+)\}|([A-Za-z_][\w]*:[A-Za-z_][\w]*|[A-Za-z_]\w*|[?$^_]))")
_UNITS = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40, "pb": 1 << 50}
_WORD_ENDS = frozenset(" \t\r\n;|&(){},\"'`$<>")


class ParseFault(Exception):
    """Its text is PowerShell's message. `token` is what the parser did not expect at `position` of
    `script`.
    """

    def __init__(
        self,
        message: str,
        identity: str = "UnexpectedToken",
        *,
        script: str = "",
        position: int = 0,
        token: str = "",
    ) -> None:
        super().__init__(message)
        self.identity = identity
        self.script = script
        self.position = position
        self.token = token

    def locate(self, script: str, position: int) -> None:
        """Sets what the parser did not expect: the word or sign at `position`, or the last one."""
        position = min(position, max(0, len(script.rstrip()) - 1))
        found = re.compile(r"[\w.$-]+|.", re.DOTALL).match(script, position)
        self.script, self.position = script, position
        self.token = found[0] if found is not None else ""


class IncompleteScript(ParseFault):
    """The script continues on the next line."""


class Scanner:
    def __init__(self, text: str, position: int = 0) -> None:
        self.text = text
        self.position = position
        self.parse_block: Callable[[Scanner], StatementBlock] | None = (
            None  # for $( ) within strings
        )

    def at_end(self) -> bool:
        return self.position >= len(self.text)

    def peek(self, count: int = 1) -> str:
        return self.text[self.position : self.position + count]

    def starts(self, text: str) -> bool:
        return self.text.startswith(text, self.position)

    def starts_word(self, word: str) -> bool:
        end = self.position + len(word)
        if self.text[self.position : end].lower() != word:
            return False
        return end >= len(self.text) or not (self.text[end].isalnum() or self.text[end] in "_-")

    def take(self, text: str) -> bool:
        if self.starts(text):
            self.position += len(text)
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.take(text):
            if self.at_end():
                raise IncompleteScript(
                    f"Missing closing '{text}' in statement block or type definition."
                )
            raise ParseFault(
                "Unexpected token "
                f"'{self.text[self.position : self.position + 10].split()[0]}' in expression "
                "or statement."
            )

    def blanks(self, newlines: bool = False) -> None:
        check_slice()
        text = self.text
        while self.position < len(text):
            c = text[self.position]
            if c in " \t\r" or (newlines and c == "\n"):
                self.position += 1
            elif c == "`" and text[self.position + 1 : self.position + 2] in ("\n", "\r"):
                self.position += 3 if text.startswith("`\r\n", self.position) else 2
            elif text.startswith("<#", self.position):
                end = text.find("#>", self.position)
                if end < 0:
                    raise IncompleteScript(
                        "The terminator '#>' is missing from the multiline comment."
                    )
                self.position = end + 2
            elif c == "#":
                end = text.find("\n", self.position)
                self.position = len(text) if end < 0 else end
            else:
                return

    def separators(self) -> None:
        """Skips everything that may stand between two statements."""
        while True:
            self.blanks(newlines=True)
            if not self.take(";"):
                return

    def number(self) -> ValueLiteral | None:
        match = NUMBER.match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        digits = match[1]
        value: int | float
        if digits[:2].lower() == "0x":
            value = int(digits, 16)
        elif any(c in digits for c in ".eE"):
            value = float(digits)
        else:
            value = int(digits)
        return ValueLiteral(value * _UNITS[match[2].lower()] if match[2] else value)

    def variable(self) -> VariableReference | None:
        match = VARIABLE.match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return VariableReference(match[1] or match[2])

    def _unterminated(self, quote: str, start: int) -> IncompleteScript:
        return IncompleteScript(
            f"The string is missing the terminator: {quote}.",
            "TerminatorExpectedAtEndOfString",
            script=self.text,
            position=start,
            token=self.text[start:].splitlines()[0],
        )

    def string(self) -> PsNode:
        """A quoted string; the position is at its quote."""
        if self.starts("@'") or self.starts('@"'):
            return self._here_string()
        start = self.position
        if self.take("'"):
            out: list[str] = []
            while True:
                end = self.text.find("'", self.position)
                if end < 0:
                    raise self._unterminated("'", start)
                out.append(self.text[self.position : end])
                self.position = end + 1
                if not self.take("'"):
                    return ValueLiteral("".join(out))
                out.append("'")
        self.position += 1
        parts = self.expandable('"')
        if len(parts) == 1 and isinstance(parts[0], ValueLiteral):
            return parts[0]
        return ExpandableString(tuple(parts))

    def _here_string(self) -> PsNode:
        quote = self.text[self.position + 1]
        start = self.text.find("\n", self.position) + 1
        end = self.text.find(f"\n{quote}@", start - 1)
        if start == 0 or end < 0:
            raise IncompleteScript("The string is missing the terminator: '@.")
        content = self.text[start:end].removesuffix("\r") if end >= start else ""
        self.position = end + 3
        if quote == "'":
            return ValueLiteral(content)
        inner = Scanner(content)
        inner.parse_block = self.parse_block
        return ExpandableString(tuple(inner.expandable("")))

    def expandable(self, end: str) -> list[PsNode]:
        """The parts of an expandable string up to `end`, which is consumed."""
        parts: list[PsNode] = []
        plain: list[str] = []
        start = self.position - 1

        def flush() -> None:
            if plain:
                parts.append(ValueLiteral("".join(plain)))
                plain.clear()

        while True:
            if self.at_end():
                if end:
                    raise self._unterminated(end, start)
                break
            c = self.text[self.position]
            if c == end and end:
                self.position += 1
                if not self.starts(end):
                    break
                plain.append(end)
                self.position += 1
            elif c == "`" and self.position + 1 < len(self.text):
                following = self.text[self.position + 1]
                plain.append(ESCAPES.get(following, following))
                self.position += 2
            elif c == "$" and self.starts("$("):
                flush()
                self.position += 2
                assert self.parse_block is not None
                parts.append(SubExpression(self.parse_block(self)))
            elif c == "$" and (variable := self.variable()) is not None:
                flush()
                parts.append(variable)
            else:
                plain.append(c)
                self.position += 1
        flush()
        return parts or [ValueLiteral("")]

    def bare_word(self) -> list[PsNode]:
        """An argument without quotes: up to a space or an operator, with variables."""
        parts: list[PsNode] = []
        plain: list[str] = []
        while not self.at_end():
            c = self.text[self.position]
            if c == "`" and self.position + 1 < len(self.text):
                following = self.text[self.position + 1]
                plain.append(ESCAPES.get(following, following))
                self.position += 2
                continue
            if c == "$":
                if self.starts("$("):
                    assert self.parse_block is not None
                    if plain:
                        parts.append(ValueLiteral("".join(plain)))
                        plain.clear()
                    self.position += 2
                    parts.append(SubExpression(self.parse_block(self)))
                    continue
                variable = self.variable()
                if variable is not None:
                    if plain:
                        parts.append(ValueLiteral("".join(plain)))
                        plain.clear()
                    parts.append(variable)
                    continue
                plain.append(c)
                self.position += 1
                continue
            if c in ('"', "'") and (plain or parts):
                string = self.string()
                if plain:
                    parts.append(ValueLiteral("".join(plain)))
                    plain.clear()
                parts.append(string)
                continue
            if c in _WORD_ENDS:
                break
            plain.append(c)
            self.position += 1
        if plain:
            parts.append(ValueLiteral("".join(plain)))
        return parts
