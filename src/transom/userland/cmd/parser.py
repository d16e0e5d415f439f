"""cmd.exe's grammar. %variables% are already expanded."""

from __future__ import annotations

import re

from transom.userland.cmd.tree import (
    CmdBlock,
    CmdCommand,
    CmdFor,
    CmdIf,
    CmdNode,
    CmdPair,
    CmdRedirect,
    CmdSyntaxError,
)
from transom.userland.preemption import check_slice

_COMPARISONS = ("==", "equ", "neq", "lss", "leq", "gtr", "geq")
_SPACES = " \t,;=\r\n"


def parse_cmd(text: str) -> tuple[CmdNode, ...]:
    """All commands in a text, which may have several lines."""
    parser = _Parser(text)
    out: list[CmdNode] = []
    while True:
        parser.skip(" \t\r\n")
        if parser.at_end():
            return tuple(out)
        if parser.peek() == ")":
            parser.position += 1  # an unmatched closing parenthesis starts a comment
            parser.rest_of_line()
            continue
        out.append(parser.sequence())


def unexpected(token: str) -> CmdSyntaxError:
    return CmdSyntaxError(f"{token} was unexpected at this time.")


def incomplete(text: str) -> bool:
    """Whether a parenthesis is still open, or the line continues after a caret."""
    depth = 0
    quoted = False
    position = 0
    start = True
    while position < len(text):
        c = text[position]
        if c == "^" and not quoted:
            if position + 1 >= len(text.rstrip("\r\n")):
                return True
            position += 2
            continue
        if c == '"':
            quoted = not quoted
        elif c == "\n":
            quoted = False
        elif not quoted and c == "(" and (depth or start or _opens(text[:position])):
            depth += 1
        elif not quoted and c == ")" and depth:
            depth -= 1
        start = c in "&|(\n" or (start and c in " \t@")
        position += 1
    return depth > 0


def _opens(before: str) -> bool:
    """Whether a parenthesis at this position belongs to `if`, `else`, `for ... do` or `in`."""
    line = before.rpartition("\n")[2].lower().rstrip()
    return bool(re.search(r"(^|[\s&|(@])(else|do|in)$", line)) or bool(
        re.search(r"(^|[\s&|(@])if\s", line) and not re.search(r"\becho\b", line)
    )


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.depth = 0

    def at_end(self) -> bool:
        return self.position >= len(self.text)

    def peek(self) -> str:
        return self.text[self.position] if self.position < len(self.text) else ""

    def skip(self, characters: str = _SPACES) -> None:
        check_slice()
        while self.position < len(self.text) and self.text[self.position] in characters:
            self.position += 1

    def rest_of_line(self) -> str:
        end = self.text.find("\n", self.position)
        end = len(self.text) if end < 0 else end
        rest = self.text[self.position : end]
        self.position = end
        return rest

    def word(self) -> str:
        """A token up to a space or an operator, with its quotes."""
        self.skip()
        start = self.position
        quoted = False
        while self.position < len(self.text):
            c = self.text[self.position]
            if c == '"':
                quoted = not quoted
            elif c == "\n" or (
                not quoted
                and (
                    c in " \t,;\r&|<>()" or (c == "=" and self.text.startswith("==", self.position))
                )
            ):
                break
            elif c == "^" and not quoted:
                self.position += 1
            self.position += 1
        return (
            self.text[start : self.position].replace("^", "")
            if not quoted
            else self.text[start : self.position]
        )

    def ahead(self) -> str:
        saved = self.position
        word = self.word().lower()
        self.position = saved
        return word

    # Operators by precedence: & binds least, then ||, &&, |
    def sequence(self) -> CmdNode:
        left = self.alternatives()
        while True:
            self.skip(" \t")
            if self.text.startswith("&", self.position) and not self.text.startswith(
                "&&", self.position
            ):
                self.position += 1
                self.skip(" \t")
                if self.at_end() or self.peek() in ")\r\n":
                    return left
                left = CmdPair(left, "&", self.alternatives())
                continue
            return left

    def alternatives(self) -> CmdNode:
        left = self.conjunction()
        while self.operator("||"):
            left = CmdPair(left, "||", self.conjunction())
        return left

    def conjunction(self) -> CmdNode:
        left = self.pipe()
        while self.operator("&&"):
            left = CmdPair(left, "&&", self.pipe())
        return left

    def pipe(self) -> CmdNode:
        left = self.command()
        while self.operator("|"):
            left = CmdPair(left, "|", self.command())
        return left

    def operator(self, text: str) -> bool:
        self.skip(" \t")
        if not self.text.startswith(text, self.position):
            return False
        if text == "|" and self.text.startswith("||", self.position):
            return False
        self.position += len(text)
        self.skip(" \t\r\n")
        if self.at_end():
            raise CmdSyntaxError("The syntax of the command is incorrect.")
        return True

    def command(self) -> CmdNode:
        self.skip(" \t,;=")
        silent = False
        while self.peek() == "@":
            silent = True
            self.position += 1
            self.skip(" \t")
        if self.peek() == "(":
            return self.block()
        if self.peek() in ("&", "|", ")") and self.peek():
            token = self.peek()
            if self.text.startswith(token * 2, self.position):
                token *= 2
            raise unexpected(token)
        ahead = self.ahead()
        if ahead == "if":
            self.word()
            return self.if_()
        if ahead == "for":
            self.word()
            return self.for_()
        if ahead == "rem" or ahead.startswith("rem."):
            self.rest_of_line()
            return CmdCommand("rem", (), silent)
        return self.simple(silent)

    def block(self) -> CmdNode:
        self.position += 1
        self.depth += 1
        body: list[CmdNode] = []
        while True:
            self.skip(" \t\r\n")
            if self.at_end():
                raise CmdSyntaxError("The syntax of the command is incorrect.")
            if self.peek() == ")":
                self.position += 1
                self.depth -= 1
                break
            body.append(self.sequence())
            self.skip(" \t&")
        redirects: list[CmdRedirect] = []
        while (redirect := self.redirect()) is not None:
            redirects.append(redirect)
        return CmdBlock(tuple(body), tuple(redirects))

    def redirect(self) -> CmdRedirect | None:
        self.skip(" \t")
        match = re.compile(r"(\d?)(>>|>&|<&|>|<)").match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        operator = match[2]
        handle = int(match[1]) if match[1] else (0 if operator[0] == "<" else 1)
        target = self.word()
        if not target:
            raise CmdSyntaxError("The syntax of the command is incorrect.")
        return CmdRedirect(handle, operator, target.strip('"'))

    def simple(self, silent: bool) -> CmdNode:
        """The text up to an operator. Digits directly before a redirection belong to it if a space
        precedes them.
        """
        out: list[str] = []
        redirects: list[CmdRedirect] = []
        quoted = False
        while self.position < len(self.text):
            c = self.text[self.position]
            if c == "\n":
                break
            if c == '"':
                quoted = not quoted
            elif not quoted:
                if c == "^":
                    self.position += 1
                    if self.text.startswith("\r\n", self.position):
                        self.position += 2
                    elif self.peek() == "\n":
                        self.position += 1
                    if not self.at_end():
                        out.append(self.text[self.position])
                        self.position += 1
                    continue
                if c in "&|" or (c == ")" and self.depth):
                    break
                if c in "<>":
                    if out and out[-1].isdigit() and (len(out) == 1 or out[-2] in ' \t)"'):
                        out.pop()
                        self.position -= 1
                    redirect = self.redirect()
                    if redirect is not None:
                        redirects.append(redirect)
                    self._skip_before_operator()
                    continue
            out.append(c)
            self.position += 1
        return CmdCommand("".join(out).strip("\r"), tuple(redirects), silent)

    def _skip_before_operator(self) -> None:
        """Skips spaces between a redirection and the end of the command; they belong to neither."""
        saved = self.position
        self.skip(" \t")
        if not self.at_end() and self.peek() not in "&|\r\n":
            self.position = saved

    def if_(self) -> CmdNode:
        negated = fold = False
        while (ahead := self.ahead()) in ("not", "/i"):
            self.word()
            negated ^= ahead == "not"
            fold |= ahead == "/i"
        first = self.word()
        kind = first.lower()
        left = operator = right = ""
        if kind in ("exist", "defined", "errorlevel", "cmdextversion"):
            left = self.word()
        else:
            left = first
            self.skip(" \t")
            if self.text.startswith("==", self.position):
                self.position += 2
                operator = "=="
            else:
                operator = self.word().lower()
                if not operator:
                    raise CmdSyntaxError("The syntax of the command is incorrect.")
                if operator not in _COMPARISONS:
                    raise unexpected(operator)
            right = self.word()
            kind = "compare"
        then = self.branch()
        otherwise: CmdNode | None = None
        saved = self.position
        self.skip(" \t")
        if self.ahead() == "else":
            self.word()
            otherwise = self.branch()
        else:
            self.position = saved
        return CmdIf(negated, fold, kind, left, operator, right, then, otherwise)

    def branch(self) -> CmdNode:
        self.skip(" \t")
        if self.peek() == "(":
            return self.command()
        if self.at_end() or self.peek() in "\r\n":
            raise CmdSyntaxError("The syntax of the command is incorrect.")
        return self.sequence()

    def for_(self) -> CmdNode:
        switch = options = ""
        while self.ahead().startswith("/"):
            switch = self.word()[1:].upper()
            self.skip(" \t")
            if switch == "F" and self.peek() == '"':
                end = self.text.find('"', self.position + 1)
                options = self.text[self.position + 1 : end]
                self.position = end + 1
            elif switch == "R" and not self.ahead().startswith("%"):
                options = self.word().strip('"')
        variable = self.word()
        if not re.fullmatch(r"%{1,2}[A-Za-z?#$@]", variable):
            raise unexpected(variable)
        if self.word().lower() != "in":
            raise unexpected(variable)
        self.skip(" \t\r\n")
        if self.peek() != "(":
            raise unexpected(self.peek() or "(")
        end = self._closing(self.position)
        items = self.text[self.position + 1 : end]
        self.position = end + 1
        if self.word().lower() != "do":
            raise CmdSyntaxError("The syntax of the command is incorrect.")
        return CmdFor(switch, options, variable.lstrip("%"), items.strip(), self.branch())

    def _closing(self, start: int) -> int:
        quote = ""
        depth = 0
        for position in range(start, len(self.text)):
            c = self.text[position]
            if quote:
                if c == quote:
                    quote = ""
            elif c in "\"'`":
                quote = c
            elif c == "(":
                depth += 1
            elif c == ")":
                depth -= 1
                if depth == 0:
                    return position
        raise CmdSyntaxError("The syntax of the command is incorrect.")
